//! Volumes that grow, and volumes that cannot.
//!
//! Run as `testbed exec -- cargo test --features failpoints --test testbed_volumes`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends at its first surprise; clippy knows that only of the #[test] functions themselves"
)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use etcd_operator_api::{EtcdCluster, conditions};
use etcd_operator_testbed::eventually;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt as _;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use support::converged::{converged, says};
use support::history::History;
use support::roll::Roll;
use support::writer::Writer;
use support::{Scene, etcd, spec, trace};

const LIMIT: Duration = Duration::from_secs(180);
/// Longer than the pause before a volume that was refused is asked for again.
const QUIET: Duration = Duration::from_secs(70);

fn size(size: &str) -> Value {
    json!({"spec": {"storage": {"size": size}}})
}

/// What each volume is asked to hold, and what it holds.
async fn sizes(scene: &Scene) -> BTreeMap<String, (String, String)> {
    let text = |map: Option<&BTreeMap<String, Quantity>>| {
        map.and_then(|m| m.get("storage")).map(|q| q.0.clone()).unwrap_or_default()
    };
    let all = scene.api::<PersistentVolumeClaim>().list(&ListParams::default()).await.unwrap();
    let of = |pvc: PersistentVolumeClaim| {
        let spec = pvc.spec.clone().unwrap_or_default().resources.unwrap_or_default();
        let status = pvc.status.clone().unwrap_or_default();
        (pvc.name_any(), (text(spec.requests.as_ref()), text(status.capacity.as_ref())))
    };
    all.items.into_iter().map(of).collect()
}

// VC-04: a class that can grow, as most network disks do, without a restart.
#[tokio::test]
async fn volumes_grow_one_at_a_time_and_nobody_is_restarted() {
    let scene = Scene::new("grow").await;
    let cluster =
        spec::cluster_with("db", 3, |spec| spec.storage.storage_class_name = Some("testbed-net".to_owned()));
    scene.create(&cluster).await;
    converged(&scene, "db", 3, LIMIT).await;
    let writer = Writer::start(&scene, "db").await;
    let roll = Roll::watch(&scene).await;
    let volumes = History::<PersistentVolumeClaim>::start(scene.api()).await;
    scene.edit("db", size("2Gi")).await;
    let two = ("2Gi".to_owned(), "2Gi".to_owned());
    eventually("volumes of 2Gi", LIMIT, async || {
        let now = sizes(&scene).await;
        if now.len() == 3 && now.values().all(|size| *size == two) { Ok(()) } else { Err(format!("{now:?}")) }
    })
    .await
    .unwrap();
    converged(&scene, "db", 3, LIMIT).await;
    assert!(scene.members().await.iter().all(|m| m.spec.storage.size == Quantity("2Gi".to_owned())));
    assert_eq!(roll.made(), 0);
    // Who was asked to grow and has not yet, over time.
    let mut growing = BTreeSet::new();
    for seen in volumes.all() {
        let spec = seen.object.spec.clone().and_then(|s| s.resources?.requests);
        let status = seen.object.status.clone().and_then(|s| s.capacity);
        if spec == status {
            growing.remove(&seen.object.name_any())
        } else {
            growing.insert(seen.object.name_any())
        };
        assert!(growing.len() <= 1, "more than one at a time: {growing:?}");
    }

    // Smaller is refused by the API server.
    let smaller = Patch::Merge(size("1Gi"));
    let error = scene.api::<EtcdCluster>().patch("db", &PatchParams::default(), &smaller).await.unwrap_err();
    assert!(error.to_string().contains("storage.size cannot shrink"), "{error}");
    writer.finish(&scene).await;
    trace::check(&scene, &[]);
    scene.finish().await;
}

// VC-04: with a class that cannot grow it is told, once, and nothing else waits for it.
#[tokio::test]
async fn volumes_that_cannot_grow_are_told_and_new_members_get_the_new_size() {
    let mut scene = Scene::new("fixed").await;
    scene.expect_refusals();
    scene.cluster("db", 1).await;
    converged(&scene, "db", 1, LIMIT).await;
    let old = sizes(&scene).await;
    let writer = Writer::start(&scene, "db").await;
    scene.edit("db", size("2Gi")).await;
    let volume = old.keys().next().unwrap();
    says(&scene, "db", [conditions::DEGRADED, "True", "VolumeCannotGrow", volume]).await;
    says(&scene, "db", [conditions::AVAILABLE, "True", "QuorumHealthy", ""]).await;
    scene.scale("db", 2).await;
    eventually("two voters", LIMIT, async || {
        let list = etcd::list(&scene, "db").await?;
        if list.counts() == (2, 0) { Ok(()) } else { Err(format!("{list:?}")) }
    })
    .await
    .unwrap();
    let now = sizes(&scene).await;
    assert_eq!(now.get(volume), old.get(volume));
    let new = now.iter().find(|(name, _)| *name != volume).expect("another volume");
    assert_eq!(new.1.0, "2Gi");
    // And a change that needs another Pod is not held back by it either.
    let roll = Roll::watch(&scene).await;
    scene.edit("db", json!({"spec": {"resources": {"requests": {"cpu": "70m"}}}})).await;
    eventually("two Pods made anew", LIMIT, async || {
        if roll.made() == 2 { Ok(()) } else { Err(format!("{:?}", roll.restarted())) }
    })
    .await
    .unwrap();
    says(&scene, "db", [conditions::DEGRADED, "True", "VolumeCannotGrow", volume]).await;
    says(&scene, "db", [conditions::AVAILABLE, "True", "QuorumHealthy", "all 2"]).await;
    let asked =
        || scene.requests().filter(|r| r.verb == "patch" && r.resource == "persistentvolumeclaims").total();
    let (before, clusters) = (asked(), scene.history().await);
    tokio::time::sleep(QUIET).await;
    assert!(
        (before + 1..=before + 2).contains(&asked()),
        "it is asked for now and then: {before}, {}",
        asked()
    );
    let other = clusters.first(|cluster| {
        let status = cluster.status_or_default();
        conditions::find(&status.conditions, conditions::DEGRADED)
            .is_none_or(|c| c.reason != "VolumeCannotGrow")
    });
    assert!(other.is_none(), "it was told, not told, and told again: {other:?}");
    writer.finish(&scene).await;
    trace::check(&scene, &[]);
    scene.finish().await;
}
