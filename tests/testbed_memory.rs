//! Clusters whose members keep their data in memory: a Pod that is gone takes its member with it, and nothing else.
//!
//! Run as `testbed exec -- cargo test --features failpoints --test testbed_memory`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends at its first surprise; clippy knows that only of the #[test] functions themselves"
)]
#![allow(clippy::print_stdout, reason = "how long it took is for whoever runs it with --nocapture")]

mod support;

use std::time::{Duration, Instant};

use etcd_operator_api::{EtcdCluster, EtcdMember, StorageMedium, StorageSpec, conditions, labels};
use etcd_operator_testbed::eventually;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use support::converged::{converged, says};
use support::history::History;
use support::identity::{identities, pod};
use support::writer::Writer;
use support::{Scene, etcd, frozen, spec, trace};

const LIMIT: Duration = Duration::from_secs(180);
/// From the loss of a Pod to three voters again (LS-06).
const REPLACED: Duration = Duration::from_secs(120);

fn in_memory(replicas: i32) -> EtcdCluster {
    spec::cluster_with("db", replicas, |spec| {
        spec.storage = StorageSpec {
            size: Quantity("256Mi".to_owned()),
            medium: StorageMedium::Memory,
            storage_class_name: None,
        };
    })
}

/// Waits until the member of this name is gone.
async fn gone(scene: &Scene, name: &str) {
    eventually(&format!("{name} gone"), LIMIT, async || {
        let now = identities(scene).await;
        if now.contains_key(name) { Err(format!("{now:?}")) } else { Ok(()) }
    })
    .await
    .unwrap();
}

// LS-06, LS-07
#[tokio::test]
async fn a_member_in_memory_survives_its_process_and_is_replaced_when_its_pod_is_gone() {
    let scene = Scene::new("mem").await;
    scene.create(&in_memory(3)).await;
    let id = converged(&scene, "db", 3, LIMIT).await.status_or_default().cluster_id;
    assert_eq!(scene.count().await, [3, 3, 0, 2], "members, Pods, PVCs, Services");
    for pod in scene.pods().await {
        let volumes = pod.spec.unwrap().volumes.unwrap();
        let data =
            volumes.into_iter().find(|v| v.name == "data").and_then(|v| v.empty_dir).expect("an emptyDir");
        assert_eq!(data.medium.as_deref(), Some("Memory"));
        assert_eq!(data.size_limit, Some(Quantity("256Mi".to_owned())));
    }
    let writer = Writer::start(&scene, "db").await;
    let before = identities(&scene).await;
    let (leader, _) = etcd::leader(&scene, "db").await.unwrap();
    let same = pod(&scene, &leader).await;
    frozen::kill(std::slice::from_ref(&leader));
    eventually("the container started again", LIMIT, async || {
        let status = scene.api::<Pod>().get(&leader).await.map_err(|e| e.to_string())?.status;
        let container = status.and_then(|s| s.container_statuses?.pop()).ok_or("no container")?;
        if container.restart_count == 1 && container.ready { Ok(()) } else { Err(format!("{container:?}")) }
    })
    .await
    .unwrap();
    converged(&scene, "db", 3, LIMIT).await;
    assert_eq!((pod(&scene, &leader).await, identities(&scene).await), (same, before.clone()));

    // A follower, and then the one that leads.
    for leads in [false, true] {
        let (leader, _) = etcd::leader(&scene, "db").await.unwrap();
        let victim = identities(&scene).await.into_keys().find(|name| (*name == leader) == leads).unwrap();
        let start = Instant::now();
        scene.api::<Pod>().delete(&victim, &DeleteParams::default()).await.unwrap();
        gone(&scene, &victim).await;
        let after = converged(&scene, "db", 3, REPLACED).await;
        println!("a member whose memory is gone was replaced in {:?} (leader: {leads})", start.elapsed());
        assert_eq!(after.status_or_default().cluster_id, id);
    }
    let ids = identities(&scene).await;
    assert_eq!(ids.keys().filter(|name| before.contains_key(*name)).count(), 1, "{before:?}, {ids:?}");
    assert_eq!(scene.count().await, [3, 3, 0, 2], "members, Pods, PVCs, Services");
    writer.finish(&scene).await;
    let counts = trace::check(&scene, &[]);
    assert_eq!((counts["member-add"], counts["member-remove"]), (4, 2), "{counts:?}");
    scene.finish().await;
}

// LS-05, LS-06: two of three are one too many, and whoever is left is kept.
#[tokio::test]
async fn two_members_in_memory_lost_at_once_are_told_and_nobody_is_removed() {
    let scene = Scene::new("two").await;
    scene.create(&in_memory(3)).await;
    converged(&scene, "db", 3, LIMIT).await;
    let before = identities(&scene).await;
    let pods = History::<Pod>::start(scene.api()).await;
    let victims: Vec<&String> = before.keys().take(2).collect();
    // Between two deletions the operator may see one member lost and the quorum of the others, and begin to replace it.
    scene.annotate("db", labels::RECONCILE_PAUSED, Some("true")).await;
    says(&scene, "db", [conditions::PROGRESSING, "False", "ReconcilePaused", ""]).await;
    for name in &victims {
        scene.api::<Pod>().delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
    }
    says(&scene, "db", [conditions::AVAILABLE, "False", "QuorumLost", ""]).await;
    scene.annotate("db", labels::RECONCILE_PAUSED, None).await;
    says(&scene, "db", [conditions::AVAILABLE, "False", "QuorumLost", ""]).await;
    says(&scene, "db", [conditions::DEGRADED, "True", "MemoryLost", "nobody is replaced"]).await;
    tokio::time::sleep(Duration::from_secs(35)).await;
    says(&scene, "db", [conditions::DEGRADED, "True", "MemoryLost", "nobody is replaced"]).await;
    assert_eq!(identities(&scene).await, before, "nobody is removed, and nobody made");
    assert!(scene.members().await.iter().all(|m| m.metadata.deletion_timestamp.is_none()));
    assert_eq!(pods.objects(), 3, "a Pod without its data was started again");
    scene.finish().await;
}

// SZ-06
#[tokio::test]
async fn a_cluster_in_memory_cannot_be_paused() {
    let scene = Scene::new("nopause").await;
    let clusters = scene.api::<EtcdCluster>();
    let refused = |error: kube::Error| match error {
        kube::Error::Api(status) => {
            assert_eq!(status.code, 422, "{status:?}");
            assert!(status.message.contains("Memory"), "{}", status.message);
        }
        other => panic!("{other}"),
    };
    refused(clusters.create(&PostParams::default(), &in_memory(0)).await.unwrap_err());
    scene.create(&in_memory(1)).await;
    let zero = Patch::Merge(json!({"spec": {"replicas": 0}}));
    refused(clusters.patch("db", &PatchParams::default(), &zero).await.unwrap_err());
    converged(&scene, "db", 1, LIMIT).await;
    let member: EtcdMember = scene.members().await.remove(0);
    assert!(!member.spec.dormant, "{}", member.name_any());
    scene.finish().await;
}
