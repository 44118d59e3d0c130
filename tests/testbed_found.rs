//! What random faults have found (`make chaos`), each as the shortest way to it.
//!
//! Run as `testbed exec -- cargo test --features failpoints --test testbed_found`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends at its first surprise; clippy knows that only of the #[test] functions themselves"
)]

mod support;

use std::time::Duration;

use etcd_operator_api::{EtcdMember, labels, names};
use etcd_operator_testbed::eventually;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use support::converged::converged;
use support::writer::Writer;
use support::{Scene, trace};

const LIMIT: Duration = Duration::from_secs(180);

// VC-08's other half, at the one moment at which the member cannot be done without: its deletion was asked for, and it
// serves alone until its replacement votes.
#[tokio::test]
async fn a_member_that_serves_until_its_replacement_does_is_not_lost_with_its_labels() {
    let mut scene = Scene::new("bare").await;
    scene.cluster("db", 1).await;
    converged(&scene, "db", 1, LIMIT).await;
    let writer = Writer::start(&scene, "db").await;
    let member = scene.members().await.remove(0).name_any();
    // Both are done while nobody looks, so that the operator comes back to a member that it cannot see.
    scene.stop().await;
    scene.api::<EtcdMember>().delete(&member, &DeleteParams::default()).await.unwrap();
    let bare = json!({"metadata": {"labels": {labels::MANAGED_BY: null, labels::CLUSTER: null, labels::ROLE: null}}});
    let (bare, default) = (Patch::Merge(bare), PatchParams::default());
    scene.api::<Pod>().patch(&member, &default, &bare).await.unwrap();
    scene.api::<PersistentVolumeClaim>().patch(&names::pvc(&member), &default, &bare).await.unwrap();
    scene.start(&[]).await;
    eventually("the member replaced", LIMIT, async || {
        let names: Vec<_> = scene.members().await.iter().map(|m| m.name_any()).collect();
        if names.contains(&member) { Err(format!("{names:?}")) } else { Ok(()) }
    })
    .await
    .unwrap();
    converged(&scene, "db", 1, LIMIT).await;
    assert_eq!(scene.count().await, [1, 1, 1, 2], "members, Pods, PVCs, Services");
    writer.finish(&scene).await;
    let counts = trace::check(&scene, &[]);
    assert_eq!((counts["member-add"], counts["member-remove"]), (1, 1), "{counts:?}");
    scene.finish().await;
}
