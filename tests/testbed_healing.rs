//! Members that can never come back, each known by evidence: its data is gone or cannot be read, its volume is going, or
//! etcd has removed it. Each is replaced within seconds, while a client writes.
//!
//! Run as `testbed exec -- cargo test --features failpoints --test testbed_healing`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends at its first surprise; clippy knows that only of the #[test] functions themselves"
)]
#![allow(clippy::print_stdout, reason = "how long it took is for whoever runs it with --nocapture")]

mod support;

use std::time::{Duration, Instant};

use etcd_operator_api::{EtcdCluster, EtcdMember, conditions, names};
use etcd_operator_testbed::eventually;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use support::converged::{converged, says};
use support::history::History;
use support::identity::identities;
use support::writer::Writer;
use support::{Scene, data, etcd, frozen, spec, trace};

const LIMIT: Duration = Duration::from_secs(180);
/// From the loss to the same number of voters as before. Most of it is the replacement's way in.
const REPLACED: Duration = Duration::from_secs(60);

/// Whether Degraded ever had this reason, with a message about this member.
fn said(clusters: &History<EtcdCluster>, reason: &str, member: &str) -> bool {
    let first = clusters.first(|cluster| {
        let status = cluster.status_or_default();
        conditions::find(&status.conditions, conditions::DEGRADED)
            .is_some_and(|c| c.status == "True" && c.reason == reason && c.message.contains(member))
    });
    first.is_some()
}

/// Waits until the member of this name is gone and the cluster is whole again without it.
async fn replaced(scene: &Scene, name: &str, n: usize, since: Instant) -> EtcdCluster {
    eventually(&format!("{name} gone"), REPLACED, async || {
        let now = identities(scene).await;
        if now.contains_key(name) { Err(format!("{now:?}")) } else { Ok(()) }
    })
    .await
    .unwrap();
    let cluster = converged(scene, "db", n, REPLACED).await;
    println!("{name} was replaced in {:?}", since.elapsed());
    cluster
}

// LS-04: the one that formed the cluster is nobody special.
#[tokio::test]
async fn a_member_whose_data_directory_was_emptied_is_replaced_the_first_one_as_well() {
    let scene = Scene::new("wipe").await;
    scene.cluster("db", 3).await;
    let id = converged(&scene, "db", 3, LIMIT).await.status_or_default().cluster_id;
    let writer = Writer::start(&scene, "db").await;
    let clusters = scene.history().await;
    let first = scene.members().await.into_iter().find(|m| m.spec.bootstrap).expect("the seed").name_any();
    for turn in 0..2 {
        let (leader, _) = etcd::leader(&scene, "db").await.unwrap();
        let victim = if turn == 0 { first.clone() } else { leader };
        let start = Instant::now();
        data::wipe(&victim);
        let after = replaced(&scene, &victim, 3, start).await;
        assert_eq!(after.status_or_default().cluster_id, id, "it is the same cluster");
        assert!(said(&clusters, "DataDirectoryEmpty", &victim), "nothing was said of {victim}");
    }
    writer.finish(&scene).await;
    let counts = trace::check(&scene, &[]);
    assert_eq!((counts["member-add"], counts["member-remove"]), (4, 2), "{counts:?}");
    scene.finish().await;
}

/// Each version that the testbed has.
const VERSIONS: [&str; 3] = ["3.5.35", "3.6.16", "3.7.3"];

// LS-04: in the words of each version.
#[tokio::test]
async fn a_member_whose_log_is_damaged_is_replaced_and_its_words_are_passed_on() {
    futures::future::join_all(VERSIONS.map(one_damaged)).await;
}

async fn one_damaged(version: &str) {
    let scene = Scene::new("crc").await;
    scene.create(&spec::cluster_with("db", 3, |spec| spec.version = version.to_owned())).await;
    let id = converged(&scene, "db", 3, LIMIT).await.status_or_default().cluster_id;
    let writer = Writer::start(&scene, "db").await;
    let clusters = scene.history().await;
    let pods = History::<Pod>::start(scene.api()).await;
    let (victim, _) = etcd::leader(&scene, "db").await.unwrap();
    let start = Instant::now();
    data::damage(&victim);
    let after = replaced(&scene, &victim, 3, start).await;
    let words = data::last_words(&pods, &victim).expect("last words");
    println!("{version}: {}", words.lines().last().unwrap_or_default());
    assert_eq!(after.status_or_default().cluster_id, id, "it is the same cluster");
    assert!(said(&clusters, "DataDamaged", &victim), "nothing was said of {victim}");
    writer.finish(&scene).await;
    trace::check(&scene, &[]);
    scene.finish().await;
}

// LS-08: it still serves, so its replacement votes first.
#[tokio::test]
async fn a_member_whose_volume_was_deleted_under_it_serves_until_its_replacement_votes() {
    let scene = Scene::new("pvc").await;
    scene.cluster("db", 3).await;
    converged(&scene, "db", 3, LIMIT).await;
    let writer = Writer::start(&scene, "db").await;
    let clusters = scene.history().await;
    let pods = History::<Pod>::start(scene.api()).await;
    let (victim, _) = etcd::leader(&scene, "db").await.unwrap();
    let start = Instant::now();
    let volumes = scene.api::<PersistentVolumeClaim>();
    volumes.delete(&names::pvc(&victim), &DeleteParams::default()).await.unwrap();
    replaced(&scene, &victim, 3, start).await;
    assert!(said(&clusters, "VolumeTerminating", &victim), "nothing was said of {victim}");
    assert_eq!(pods.objects(), 4, "one Pod was made, the replacement's");
    let few = clusters.first(|c| c.status_or_default().ready_members < 3);
    assert!(few.is_none(), "fewer than three served: {few:?}");
    writer.finish(&scene).await;
    // A refused one is sent again.
    let sent: Vec<String> = trace::sent_so_far(&scene).into_iter().map(|(change, _)| change).collect();
    let removed = sent.iter().position(|c| c == "member-remove").expect("it was removed");
    assert!(!sent[removed..].iter().any(|c| c == "member-promote"), "it went first: {sent:?}");
    let counts = trace::check(&scene, &[]);
    assert_eq!((counts["member-promote"], counts["member-remove"]), (3, 1), "{counts:?}");
    scene.finish().await;
}

// MQ-02: etcd's word counts; what it has removed can never come back.
#[tokio::test]
async fn a_member_that_somebody_removed_from_etcd_is_replaced() {
    let scene = Scene::new("removed").await;
    scene.cluster("db", 3).await;
    converged(&scene, "db", 3, LIMIT).await;
    let writer = Writer::start(&scene, "db").await;
    let (leader, _) = etcd::leader(&scene, "db").await.unwrap();
    let ids = identities(&scene).await;
    let (victim, [_, id, _]) = ids.into_iter().find(|(name, _)| *name != leader).unwrap();
    let id = id.expect("a member ID");
    let start = Instant::now();
    // etcd refuses until its voters have been connected for a while.
    eventually("removed", LIMIT, async || etcd::ask(&scene, "db", &["member", "remove", &id]).await)
        .await
        .unwrap();
    replaced(&scene, &victim, 3, start).await;
    writer.finish(&scene).await;
    let counts = trace::check(&scene, &[&id]);
    assert_eq!((counts["member-add"], counts.get("member-remove")), (3, None), "{counts:?}");
    scene.finish().await;
}

// LS-05: no quorum, no replacement, however clear the evidence is.
#[tokio::test]
async fn two_emptied_members_of_three_are_told_and_nobody_is_removed() {
    let scene = Scene::new("both").await;
    scene.cluster("db", 3).await;
    converged(&scene, "db", 3, LIMIT).await;
    let before = identities(&scene).await;
    let victims: Vec<String> = before.keys().take(2).cloned().collect();
    // Both stand still before either is touched, so that nobody is replaced in between.
    let frozen = frozen::Frozen::all(&victims);
    for victim in &victims {
        data::wipe(victim);
    }
    drop(frozen);
    says(&scene, "db", [conditions::AVAILABLE, "False", "QuorumLost", ""]).await;
    says(&scene, "db", [conditions::DEGRADED, "True", "DataDirectoryEmpty", "nobody is replaced"]).await;
    eventually("three ends of each process", LIMIT, async || {
        let pods = scene.pods().await.into_iter().filter(|p| victims.contains(&p.name_any()));
        let ends: Vec<i32> =
            pods.filter_map(|p| Some(p.status?.container_statuses?.pop()?.restart_count)).collect();
        if ends.iter().all(|n| *n >= 3) { Ok(()) } else { Err(format!("{ends:?}")) }
    })
    .await
    .unwrap();
    says(&scene, "db", [conditions::DEGRADED, "True", "DataDirectoryEmpty", "nobody is replaced"]).await;
    assert_eq!(identities(&scene).await, before);
    let going = |m: &EtcdMember| m.metadata.deletion_timestamp.is_some();
    assert!(!scene.members().await.iter().any(going), "somebody is on the way out");
    scene.finish().await;
}
