//! A healthy cluster's life: it grows and shrinks while a client writes, people change their minds, and its leader
//! leaves, or is cut off, at the worst moment.
//!
//! Run as `testbed exec -- cargo test --features failpoints --test testbed_life`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends at its first surprise; clippy knows that only of the #[test] functions themselves"
)]

mod support;

use std::collections::BTreeSet;
use std::time::Duration;

use etcd_operator_api::{EtcdMember, conditions};
use etcd_operator_testbed::{Partition, eventually};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use support::converged::{converged, says};
use support::history::History;
use support::writer::Writer;
use support::{Scene, etcd, spec, trace};

/// Four members more, one learner after the other, take about a minute when the testbed is shared.
const LIMIT: Duration = Duration::from_secs(180);

/// Waits until there are so many EtcdMembers.
async fn members(scene: &Scene, n: usize) {
    eventually(&format!("{n} EtcdMembers"), LIMIT, async || {
        let now = scene.members().await.len();
        if now == n { Ok(()) } else { Err(format!("{now}")) }
    })
    .await
    .unwrap();
}

/// Waits until etcd lists so many voters and learners.
async fn listed(scene: &Scene, counts: (usize, usize)) {
    eventually(&format!("{counts:?} voters and learners"), LIMIT, async || {
        let list = etcd::list(scene, "db").await?;
        if list.counts() == counts { Ok(()) } else { Err(format!("{list:?}")) }
    })
    .await
    .unwrap();
}

/// Waits until the objects are as many as a cluster of `n` needs.
async fn only_what_is_needed(scene: &Scene, n: usize) {
    eventually(&format!("no more than {n} members need"), LIMIT, async || {
        let count = scene.count().await;
        if count == [n, n, n, 2] { Ok(()) } else { Err(format!("{count:?}")) }
    })
    .await
    .unwrap();
}

// MQ-05, MQ-06, LP-03, LS-08: 1 → 3 → (5 → 3) → 5 → 3 → 1, with a client that writes all the while.
#[tokio::test]
async fn a_cluster_grows_to_five_and_shrinks_to_one_and_nothing_that_was_written_is_lost() {
    let scene = Scene::new("life").await;
    let volumes = History::<PersistentVolumeClaim>::start(scene.api()).await;
    scene.cluster("db", 1).await;
    let id = converged(&scene, "db", 1, LIMIT).await.status_or_default().cluster_id;
    let writer = Writer::start(&scene, "db").await;
    scene.scale("db", 3).await;
    converged(&scene, "db", 3, LIMIT).await;

    // A change of mind as soon as the fourth EtcdMember is there.
    scene.scale("db", 5).await;
    members(&scene, 4).await;
    scene.scale("db", 3).await;
    converged(&scene, "db", 3, LIMIT).await;
    only_what_is_needed(&scene, 3).await;

    for n in [5, 3, 1] {
        scene.scale("db", n).await;
        let n = usize::try_from(n).unwrap();
        assert_eq!(converged(&scene, "db", n, LIMIT).await.status_or_default().cluster_id, id);
        only_what_is_needed(&scene, n).await;
    }
    writer.finish(&scene).await;
    let counts = trace::check(&scene, &[]);
    let (added, removed) = (counts["member-add"], counts["member-remove"]);
    assert!(counts["member-promote"] >= 4 && added == removed, "one member is left of 1 + {counts:?}");
    let names: BTreeSet<_> = volumes.all().iter().map(|v| v.object.name_any()).collect();
    assert_eq!(volumes.objects(), names.len(), "a volume was made a second time");
    scene.finish().await;
}

// MQ-09, MQ-14: who leads is sent away; somebody else leads before it goes.
#[tokio::test]
async fn a_leader_that_is_to_leave_hands_over_first() {
    let scene = Scene::new("lead").await;
    scene.cluster("db", 2).await;
    converged(&scene, "db", 2, LIMIT).await;
    let writer = Writer::start(&scene, "db").await;
    let (leader, _) = etcd::leader(&scene, "db").await.unwrap();
    let id = scene.api::<EtcdMember>().get(&leader).await.unwrap().status.unwrap().member_id.unwrap();
    scene.api::<EtcdMember>().delete(&leader, &DeleteParams::default()).await.unwrap();
    eventually("the leader gone", LIMIT, async || {
        let members: Vec<_> = scene.members().await.iter().map(kube::ResourceExt::name_any).collect();
        if members.contains(&leader) { Err(format!("{members:?}")) } else { Ok(()) }
    })
    .await
    .unwrap();
    converged(&scene, "db", 2, LIMIT).await;
    writer.finish(&scene).await;
    trace::check(&scene, &[]);
    let sent = trace::sent_so_far(&scene);
    let at = |change: &str| sent.iter().position(|(sent, _)| sent == change);
    let removed = sent.iter().position(|(change, of)| change == "member-remove" && *of == id);
    assert!(at("move-leader").is_some() && at("move-leader") < removed, "{sent:?}");
    assert!(at("member-promote") < removed, "its replacement votes before it goes: {sent:?}");
    scene.finish().await;
}

// AP-08, SD-06: there are three nodes and one member for each.
#[tokio::test]
async fn a_size_that_no_node_can_take_is_corrected_without_a_word_to_the_voters() {
    let scene = Scene::new("apart").await;
    let apart = spec::one_on_a_node("db");
    scene.create(&spec::cluster_with("db", 3, |spec| spec.affinity = Some(apart))).await;
    converged(&scene, "db", 3, LIMIT).await;
    let writer = Writer::start(&scene, "db").await;
    let pods = History::<Pod>::start(scene.api()).await;
    let voters = pods.objects();
    scene.scale("db", 5).await;
    listed(&scene, (3, 1)).await;
    says(&scene, "db", [conditions::DEGRADED, "True", "PodUnschedulable", "db-"]).await;
    // Three of five is a quorum that works, and no other member is begun meanwhile.
    says(&scene, "db", [conditions::AVAILABLE, "True", "QuorumAvailable", "3 of 5"]).await;
    assert_eq!(scene.count().await, [4, 4, 4, 2], "members, Pods, PVCs, Services");

    scene.scale("db", 3).await;
    converged(&scene, "db", 3, LIMIT).await;
    only_what_is_needed(&scene, 3).await;
    writer.finish(&scene).await;
    let counts = trace::check(&scene, &[]);
    assert_eq!(
        (counts["member-add"], counts["member-promote"], counts["member-remove"]),
        (3, 2, 1),
        "{counts:?}"
    );
    assert_eq!(pods.objects() - voters, 1, "no voter's Pod was made anew");
    scene.finish().await;
}

// MQ-05, MQ-10, CL-02: the leader loses its peers while a fourth member joins.
#[tokio::test]
async fn a_leader_cut_off_from_its_peers_during_a_join_delays_it_and_comes_back() {
    let scene = Scene::new("cut").await;
    scene.cluster("db", 3).await;
    let id = converged(&scene, "db", 3, LIMIT).await.status_or_default().cluster_id;
    let before = support::identity::identities(&scene).await;
    let writer = Writer::start(&scene, "db").await;
    let (leader, endpoint) = etcd::leader(&scene, "db").await.unwrap();
    scene.scale("db", 5).await;
    eventually("a fourth member in etcd's list", LIMIT, async || {
        let list = etcd::list(&scene, "db").await?;
        if list.members.len() == 4 { Ok(()) } else { Err(format!("{list:?}")) }
    })
    .await
    .unwrap();
    let address = endpoint.trim_start_matches("http://").trim_end_matches(":2379");
    let cut = Partition::of(address).unwrap();
    says(&scene, "db", [conditions::DEGRADED, "True", "MembersUnhealthy", &leader]).await;
    says(&scene, "db", [conditions::AVAILABLE, "True", "QuorumAvailable", ""]).await;
    // The fifth joins when all voters can be asked again, and nobody is removed for having been silent.
    let list = etcd::list(&scene, "db").await.unwrap();
    assert_eq!(list.members.len(), 4, "a change while a voter is cut off: {list:?}");
    let served = writer.count();
    eventually("writes while the leader is cut off", LIMIT, async || {
        let now = writer.count();
        if now > served { Ok(()) } else { Err(format!("{now}")) }
    })
    .await
    .unwrap();
    cut.heal().unwrap();
    let after = converged(&scene, "db", 5, LIMIT).await.status_or_default().cluster_id;
    assert_eq!(after, id);
    writer.finish(&scene).await;
    let counts = trace::check(&scene, &[]);
    assert_eq!((counts["member-add"], counts["member-promote"]), (4, 4), "{counts:?}");
    assert_eq!(counts.get("member-remove"), None, "{counts:?}");
    let now = support::identity::identities(&scene).await;
    assert!(before.iter().all(|(name, who)| now.get(name) == Some(who)), "{before:?}, then {now:?}");
    scene.finish().await;
}
