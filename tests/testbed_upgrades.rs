//! From one version of etcd to the next while a client writes, and every way in which that is not possible.
//!
//! Run as `testbed exec -- cargo test --features failpoints --test testbed_upgrades`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends at its first surprise; clippy knows that only of the #[test] functions themselves"
)]
#![allow(clippy::print_stdout, reason = "how long it took is for whoever runs it with --nocapture")]

mod support;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use etcd_operator_api::{EtcdMember, EtcdOptions, conditions};
use etcd_operator_testbed::eventually;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::json;
use support::converged::{converged, says};
use support::history::History;
use support::identity::identities;
use support::roll::Roll;
use support::writer::Writer;
use support::{Scene, etcd, spec, trace};

const LIMIT: Duration = Duration::from_secs(180);
/// Longer than the pause between two looks at a cluster for which there is nothing to do.
const QUIET: Duration = Duration::from_secs(35);

async fn set_version(scene: &Scene, version: &str) {
    scene.edit("db", json!({"spec": {"version": version}})).await;
}

/// Waits until so many more writes were acknowledged.
async fn written(writer: &Writer, more: usize) {
    let before = writer.count();
    eventually(&format!("{more} more writes"), LIMIT, async || {
        let now = writer.count() - before;
        if now >= more { Ok(()) } else { Err(now.to_string()) }
    })
    .await
    .unwrap();
}

/// What each member's process last said of its version.
async fn running(scene: &Scene) -> BTreeMap<String, Option<String>> {
    let of = |m: EtcdMember| (m.name_any(), m.status_or_default().version);
    scene.members().await.into_iter().map(of).collect()
}

/// Tries to set a version to which etcd cannot go, and checks that it is told and that nothing comes of it.
async fn refused(scene: &Scene, version: &str, words: &str) {
    let before = running(scene).await;
    let pods = History::<Pod>::start(scene.api()).await;
    set_version(scene, version).await;
    says(scene, "db", [conditions::PROGRESSING, "False", "VersionStepRefused", words]).await;
    says(scene, "db", [conditions::AVAILABLE, "True", "QuorumHealthy", ""]).await;
    tokio::time::sleep(QUIET).await;
    says(scene, "db", [conditions::PROGRESSING, "False", "VersionStepRefused", words]).await;
    assert_eq!((pods.objects(), running(scene).await), (3, before));
}

// UP-02, UP-03: one minor at a time, and each time the same cluster.
#[tokio::test]
async fn a_cluster_goes_from_3_5_to_3_7_by_3_6_and_neither_skips_a_minor_nor_goes_back() {
    let scene = Scene::new("up").await;
    // etcd 3.7 cannot read what 3.5 has written into the log, so a snapshot by 3.6 must lie between the two. By default it
    // comes after 10,000 entries, which is more than a test writes.
    let options = EtcdOptions { snapshot_count: Some(50), ..EtcdOptions::default() };
    let cluster = spec::cluster_with("db", 3, |spec| {
        spec.version = "3.5.35".to_owned();
        spec.options = Some(options);
    });
    scene.create(&cluster).await;
    let id = converged(&scene, "db", 3, LIMIT).await.status_or_default().cluster_id;
    let members = identities(&scene).await;
    let writer = Writer::start(&scene, "db").await;
    refused(&scene, "3.7.3", "Set version to 3.6 first").await;
    for version in ["3.6.16", "3.7.3"] {
        written(&writer, 200).await;
        let roll = Roll::watch(&scene).await;
        let (leader, _) = etcd::leader(&scene, "db").await.unwrap();
        let start = Instant::now();
        set_version(&scene, version).await;
        let after = converged(&scene, "db", 3, LIMIT).await;
        println!("the upgrade to {version} took {:?}", start.elapsed());
        roll.check(&leader);
        assert_eq!(after.status_or_default().cluster_id, id);
        assert_eq!(identities(&scene).await, members);
        assert!(running(&scene).await.values().all(|v| v.as_deref() == Some(version)));
    }
    refused(&scene, "3.6.16", "cannot go back").await;
    set_version(&scene, "3.7.3").await;
    converged(&scene, "db", 3, LIMIT).await;
    let gap = writer.finish(&scene).await;
    println!("the longest time without a write was {gap:?}");
    let counts = trace::check(&scene, &[]);
    assert_eq!((counts["member-add"], counts.get("member-remove")), (2, None), "{counts:?}");
    scene.finish().await;
}

// UP-02: the operator is away while two versions run side by side.
#[tokio::test]
async fn an_upgrade_that_outlives_its_operator_is_ended_by_the_next_one() {
    let mut scene = Scene::new("away").await;
    scene.cluster("db", 3).await;
    let id = converged(&scene, "db", 3, LIMIT).await.status_or_default().cluster_id;
    let members = identities(&scene).await;
    let writer = Writer::start(&scene, "db").await;
    let roll = Roll::watch(&scene).await;
    let (leader, _) = etcd::leader(&scene, "db").await.unwrap();
    set_version(&scene, "3.7.3").await;
    eventually("one is on 3.7", LIMIT, async || {
        let now = running(&scene).await;
        if now.values().any(|v| v.as_deref() == Some("3.7.3")) { Ok(()) } else { Err(format!("{now:?}")) }
    })
    .await
    .unwrap();
    scene.stop().await;
    // Two versions serve side by side for as long as it takes.
    written(&writer, 20).await;
    scene.start(&[]).await;
    assert_eq!(converged(&scene, "db", 3, LIMIT).await.status_or_default().cluster_id, id);
    roll.check(&leader);
    assert_eq!(identities(&scene).await, members);
    writer.finish(&scene).await;
    trace::check(&scene, &[]);
    scene.finish().await;
}

// UP-05
#[tokio::test]
async fn a_version_that_cannot_be_pulled_stops_at_the_first_member_and_an_edit_brings_it_back() {
    let scene = Scene::new("nopull").await;
    scene.cluster("db", 3).await;
    let id = converged(&scene, "db", 3, LIMIT).await.status_or_default().cluster_id;
    let members = identities(&scene).await;
    let version = scene.get("db").await.spec.version;
    let writer = Writer::start(&scene, "db").await;
    let roll = Roll::watch(&scene).await;
    set_version(&scene, "3.6.99").await;
    says(&scene, "db", [conditions::DEGRADED, "True", "ImagePullFailed", "3.6.99"]).await;
    says(&scene, "db", [conditions::AVAILABLE, "True", "QuorumAvailable", "2 of 3"]).await;
    tokio::time::sleep(QUIET).await;
    says(&scene, "db", [conditions::DEGRADED, "True", "ImagePullFailed", "3.6.99"]).await;
    assert_eq!((roll.restarted().len(), roll.made()), (1, 1), "{:?}", roll.restarted());
    let taken_up = scene.members().await.into_iter().filter(|m| m.spec.version != version).count();
    assert_eq!(taken_up, 1, "members that were to run 3.6.99");
    set_version(&scene, &version).await;
    assert_eq!(converged(&scene, "db", 3, LIMIT).await.status_or_default().cluster_id, id);
    assert_eq!((roll.restarted().len(), roll.made()), (1, 2), "{:?}", roll.restarted());
    assert!(roll.fewest_up() >= 2);
    roll.one_permit_at_a_time();
    assert_eq!(identities(&scene).await, members);
    writer.finish(&scene).await;
    let counts = trace::check(&scene, &[]);
    assert_eq!((counts["member-add"], counts.get("member-remove")), (2, None), "{counts:?}");
    scene.finish().await;
}
