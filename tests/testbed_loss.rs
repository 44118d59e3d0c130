//! Members that lose their Pod, their process, their volume or their EtcdMember, one way after the other, while the
//! cluster stays what it is.
//!
//! Run as `testbed exec -- cargo test --features failpoints --test testbed_loss`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends at its first surprise; clippy knows that only of the #[test] functions themselves"
)]

mod support;

use std::time::Duration;

use etcd_operator_api::{EtcdMember, conditions, names};
use etcd_operator_testbed::eventually;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use support::converged::{converged, says};
use support::history::History;
use support::identity::{identities, pod};
use support::writer::Writer;
use support::{QUOTA, Scene, etcd, frozen, quota, trace};

const LIMIT: Duration = Duration::from_secs(180);

/// How a Pod is lost.
#[derive(Debug, Clone, Copy)]
enum Loss {
    /// Somebody deletes it.
    Deleted,
    /// A drain asks for it through the Eviction API.
    Evicted,
    /// The kubelet ends it for good: phase Failed.
    Failed,
    /// Its status says Succeeded, which an etcd's never should.
    Succeeded,
}

/// Does it, and returns when the Pod with this UID is gone or on its way out.
async fn lose(scene: &Scene, name: &str, uid: &str, how: Loss) {
    let pods = scene.api::<Pod>();
    let patch = |value| Patch::Merge(value);
    match how {
        Loss::Deleted => drop(pods.delete(name, &DeleteParams::default()).await.unwrap()),
        Loss::Evicted => drop(pods.evict(name, &EvictParams::default()).await.unwrap()),
        Loss::Failed => {
            // The one way to end a Pod that always restarts: the kubelet itself does it, after a second.
            let over = patch(json!({"spec": {"activeDeadlineSeconds": 1}}));
            pods.patch(name, &PatchParams::default(), &over).await.unwrap();
        }
        Loss::Succeeded => {}
    }
    eventually(&format!("{name}: {how:?}"), LIMIT, async || {
        if pod(scene, name).await.as_deref() != Some(uid) {
            return Ok(());
        }
        if matches!(how, Loss::Succeeded) {
            // The kubelet knows better and may say so before the operator has looked, so it is said again.
            let over = patch(json!({"metadata": {"uid": uid}, "status": {"phase": "Succeeded"}}));
            let _ = pods.patch_status(name, &PatchParams::default(), &over).await;
        }
        Err("it is there".to_owned())
    })
    .await
    .unwrap();
}

// LP-06, LS-03, LS-10, SD-05: back on the same volume, under the same name, with the same member ID.
#[tokio::test]
async fn a_pod_lost_in_any_way_comes_back_as_the_same_member_on_the_same_volume() {
    let scene = Scene::new("pods").await;
    scene.cluster("db", 3).await;
    converged(&scene, "db", 3, LIMIT).await;
    let writer = Writer::start(&scene, "db").await;
    let members = identities(&scene).await;
    let ways = [Loss::Deleted, Loss::Evicted, Loss::Failed, Loss::Succeeded];
    for (name, how) in members.keys().cycle().zip(ways) {
        let old = pod(&scene, name).await.expect("a Pod");
        lose(&scene, name, &old, how).await;
        eventually(&format!("another Pod of {name} after it was {how:?}"), LIMIT, async || {
            let now = pod(&scene, name).await;
            if now.as_ref().is_some_and(|uid| *uid != old) { Ok(()) } else { Err(format!("{now:?}")) }
        })
        .await
        .unwrap();
        converged(&scene, "db", 3, LIMIT).await;
        assert_eq!(identities(&scene).await, members, "{how:?}");
    }

    // A process that is killed is started again in the same Pod, and the operator has nothing to do.
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
    assert_eq!(pod(&scene, &leader).await, same);
    assert_eq!(identities(&scene).await, members);

    writer.finish(&scene).await;
    let counts = trace::check(&scene, &[]);
    assert_eq!((counts["member-add"], counts.get("member-remove")), (2, None), "{counts:?}");
    scene.finish().await;
}

// LS-08, LS-10: the only volume is deleted, and somebody makes another one of its name that looks like ours. Nobody
// else could take its place, so it is all told and nothing is done.
#[tokio::test]
async fn a_member_never_starts_on_another_volume_of_the_same_name() {
    let mut scene = Scene::new("vol").await;
    scene.cluster("db", 1).await;
    let id = converged(&scene, "db", 1, LIMIT).await.status_or_default().cluster_id;
    let mut members = identities(&scene).await;
    let (member, identity) = members.pop_first().unwrap();
    let (volumes, name) = (scene.api::<PersistentVolumeClaim>(), names::pvc(&member));
    let ours = volumes.get(&name).await.unwrap();
    let pods = History::<Pod>::start(scene.api()).await;
    // The operator is away, else a replacement is a voter before the Pod is gone.
    scene.stop().await;
    volumes.delete(&name, &DeleteParams::default()).await.unwrap();
    scene.api::<Pod>().delete(&member, &DeleteParams::default()).await.unwrap();
    eventually("the volume gone", LIMIT, async || {
        if volumes.get_opt(&name).await.unwrap().is_none() { Ok(()) } else { Err("it is there".to_owned()) }
    })
    .await
    .unwrap();
    scene.start(&[]).await;
    says(&scene, "db", [conditions::DEGRADED, "True", "VolumeMissing", &name]).await;
    says(&scene, "db", [conditions::AVAILABLE, "False", "ClusterUnreachable", ""]).await;
    let copy = json!({
        "metadata": {"name": name, "labels": ours.labels(), "ownerReferences": ours.owner_references()},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    let copy = volumes.create(&PostParams::default(), &serde_json::from_value(copy).unwrap()).await.unwrap();
    says(&scene, "db", [conditions::DEGRADED, "True", "VolumeReplaced", &name]).await;
    assert_ne!(copy.uid(), ours.uid());
    assert_eq!(pods.objects(), 1, "a Pod was made for a volume that is not the recorded one");
    assert_eq!(identities(&scene).await.get(&member), Some(&identity));
    assert_eq!(scene.get("db").await.status_or_default().cluster_id, id);
    scene.finish().await;
}

// MQ-14: a sweep deletes every EtcdMember. Each is replaced before it goes, so the data never leaves the cluster.
#[tokio::test]
async fn all_members_deleted_at_once_are_replaced_one_by_one_and_the_condition_says_so() {
    let scene = Scene::new("sweep").await;
    scene.cluster("db", 3).await;
    let before = converged(&scene, "db", 3, LIMIT).await.status_or_default().cluster_id;
    let writer = Writer::start(&scene, "db").await;
    let old = identities(&scene).await;
    let clusters = scene.history().await;
    let (default, all) = (DeleteParams::default(), ListParams::default());
    scene.api::<EtcdMember>().delete_collection(&default, &all).await.unwrap();
    eventually("three other members", LIMIT, async || {
        let now = identities(&scene).await;
        if now.keys().any(|name| old.contains_key(name)) { Err(format!("{now:?}")) } else { Ok(()) }
    })
    .await
    .unwrap();
    let after = converged(&scene, "db", 3, LIMIT).await.status_or_default().cluster_id;
    assert_eq!(before, after, "it is the same cluster");
    let said = |seen: &etcd_operator_api::EtcdCluster| {
        let status = seen.status_or_default();
        conditions::find(&status.conditions, conditions::DEGRADED)
            .is_some_and(|c| c.status == "True" && c.reason == "LastMemberKept")
    };
    assert!(clusters.first(said).is_some(), "nothing was said about it");
    writer.finish(&scene).await;
    let counts = trace::check(&scene, &[]);
    assert_eq!(
        (counts["member-add"], counts["member-promote"], counts["member-remove"]),
        (5, 5, 3),
        "{counts:?}"
    );
    scene.finish().await;
}

// MQ-14: the replacement cannot start, so the one that is left stays, whatever was asked for.
#[tokio::test]
async fn the_last_volume_is_kept_while_nothing_can_take_its_place() {
    let mut scene = Scene::new("last").await;
    scene.expect_refusals();
    scene.cluster("db", 1).await;
    converged(&scene, "db", 1, LIMIT).await;
    let writer = Writer::start(&scene, "db").await;
    let old = identities(&scene).await;
    // No further Pod is let in.
    let quotas = quota(&scene, 1).await;
    let name = old.keys().next().unwrap();
    scene.api::<EtcdMember>().delete(name, &DeleteParams::default()).await.unwrap();
    says(&scene, "db", [conditions::DEGRADED, "True", "LastMemberKept", ""]).await;
    says(&scene, "db", [conditions::PROGRESSING, "True", "MemberJoining", "exceeded quota"]).await;
    says(&scene, "db", [conditions::AVAILABLE, "True", "QuorumHealthy", ""]).await;
    let now = identities(&scene).await;
    assert_eq!(now.get(name), old.get(name));
    let volume = scene.api::<PersistentVolumeClaim>().get(&names::pvc(name)).await.unwrap();
    assert_eq!(volume.metadata.deletion_timestamp, None);

    quotas.delete(QUOTA, &DeleteParams::default()).await.unwrap();
    eventually("the deleted member gone", LIMIT, async || {
        let now = identities(&scene).await;
        if now.contains_key(name) { Err(format!("{now:?}")) } else { Ok(()) }
    })
    .await
    .unwrap();
    converged(&scene, "db", 1, LIMIT).await;
    writer.finish(&scene).await;
    trace::check(&scene, &[]);
    scene.finish().await;
}
