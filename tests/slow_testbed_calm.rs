//! Clusters that are left alone for minutes: what is parked or settled writes nothing.
//!
//! Run as `testbed exec -- cargo test --features failpoints --test slow_testbed_calm`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends at its first surprise; clippy knows that only of the #[test] functions themselves"
)]

mod support;

use std::time::Duration;

use etcd_operator_api::{EtcdCluster, EtcdMember, conditions};
use etcd_operator_testbed::object;
use kube::ResourceExt as _;
use serde_json::json;
use support::converged::{converged, words};
use support::{Scene, VERSION, spec};

const LIMIT: Duration = Duration::from_secs(180);
/// Long enough for several of the operator's own looks, which come every 30 s.
const WATCHED: Duration = Duration::from_secs(300);

/// Writes of the operator in this namespace, the renewals of its Lease aside.
fn writes(scene: &Scene) -> usize {
    scene.requests().filter(|r| r.resource != "leases").writes()
}

// VC-07
#[tokio::test]
async fn a_bootstrap_that_failed_is_calm_and_an_edit_leads_out() {
    let scene = Scene::new("calm").await;
    let broken = spec::cluster_with("db", 1, |spec| {
        spec.version = "3.6.97".to_owned();
        spec.progress_deadline_seconds = 60;
    });
    scene.create(&broken).await;
    object(scene.api::<EtcdCluster>(), "db", "BootstrapFailed", LIMIT, |cluster: Option<&EtcdCluster>| {
        let cluster = cluster.ok_or("it is gone")?;
        let status = cluster.status_or_default();
        let failed =
            |kind| conditions::find(&status.conditions, kind).is_some_and(|c| c.reason == "BootstrapFailed");
        let both = failed(conditions::AVAILABLE) && failed(conditions::PROGRESSING);
        if both { Ok(()) } else { Err(words(cluster)) }
    })
    .await
    .unwrap();
    let (before, member) = (scene.get("db").await, scene.members().await.remove(0));
    tokio::time::sleep(WATCHED).await;
    let (after, same) = (scene.get("db").await, scene.members().await.remove(0));
    assert_eq!(
        before.resource_version(),
        after.resource_version(),
        "{}, then {}",
        words(&before),
        words(&after)
    );
    assert_eq!(member.resource_version(), same.resource_version(), "the EtcdMember was written");
    scene.edit("db", json!({"spec": {"version": VERSION}})).await;
    converged(&scene, "db", 1, LIMIT).await;
    scene.finish().await;
}

#[tokio::test]
async fn a_settled_cluster_is_looked_at_and_not_written() {
    let scene = Scene::new("settled").await;
    scene.cluster("db", 3).await;
    converged(&scene, "db", 3, LIMIT).await;
    let versions = |members: Vec<EtcdMember>| {
        members.iter().map(kube::ResourceExt::resource_version).collect::<Vec<_>>()
    };
    let (before, members) = (writes(&scene), versions(scene.members().await));
    tokio::time::sleep(WATCHED).await;
    assert_eq!(writes(&scene) - before, 0, "{:?}", scene.requests().counts());
    assert_eq!(versions(scene.members().await), members);
    scene.finish().await;
}
