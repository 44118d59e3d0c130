//! Clusters that form, grow and shrink on a real Kubernetes, and what their status says at each moment.
//!
//! Run as `testbed exec -- cargo test --features failpoints --test testbed_growth`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends at its first surprise; clippy knows that only of the #[test] functions themselves"
)]

mod support;

use std::time::Duration;

use etcd_operator_api::{EtcdCluster, EtcdMember, conditions};
use etcd_operator_testbed::{eventually, object};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::DeleteParams;
use support::converged::{converged, words};
use support::history::{History, Seen};
use support::learners::{Door, is_voter};
use support::writer::Writer;
use support::{Scene, etcd, trace};

/// Five members, one learner after the other, take about a minute when the testbed is shared.
const LIMIT: Duration = Duration::from_secs(180);

fn is(cluster: &EtcdCluster, kind: &str) -> bool {
    conditions::is_true(&cluster.status_or_default().conditions, kind)
}

/// What must be true of a status at every moment of a growth that nothing disturbs.
fn every_status_was_true(states: &[Seen<EtcdCluster>]) {
    let mut most = 0;
    let mut id = None;
    for state in states.iter().filter(|s| !s.gone) {
        let status = state.object.status_or_default();
        let told = words(&state.object);
        if status.cluster_id.is_none() {
            assert!(
                !is(&state.object, conditions::AVAILABLE),
                "available before it could be recognised: {told}"
            );
            assert_eq!(status.ready_members, 0, "ready before it could be recognised: {told}");
        }
        assert!(status.ready_members >= most, "fewer than {most} ready while it grew: {told}");
        assert!(!is(&state.object, conditions::DEGRADED), "nothing was wrong: {told}");
        let reached = status.ready_members >= state.object.spec.replicas;
        let observed = status.observed.as_ref().is_some_and(|o| o.replicas == state.object.spec.replicas);
        if observed && !reached {
            assert!(is(&state.object, conditions::PROGRESSING), "not there yet, and not on its way: {told}");
        }
        for condition in &status.conditions {
            let generation = condition.observed_generation;
            assert!(generation.is_some() && generation <= state.object.metadata.generation, "{condition:?}");
        }
        assert!(id.is_none() || id == status.cluster_id, "the cluster ID changed: {told}");
        id = id.or(status.cluster_id);
        most = status.ready_members;
    }
    assert!(id.is_some(), "no cluster ID was ever seen");
}

/// The seed's Pod became a voter's only after the cluster ID was stored: nobody's write is acknowledged before.
fn the_seed_was_hidden_until_the_cluster_could_be_recognised(
    states: &[Seen<EtcdCluster>],
    pods: &History<Pod>,
) {
    let recorded =
        states.iter().find(|s| s.object.status_or_default().cluster_id.is_some()).expect("no cluster ID");
    let voter = pods.first(is_voter).expect("no voter");
    assert!(
        voter.version() > recorded.version(),
        "Pod {} is a voter's at {}, the cluster ID is stored at {}",
        voter.object.name_any(),
        voter.version(),
        recorded.version()
    );
}

async fn grows_to(n: i32) {
    let scene = Scene::new(&format!("grow{n}")).await;
    let history = scene.history().await;
    let door = Door::watch(&scene).await;
    let voters = usize::try_from(n).unwrap();
    scene.cluster("db", n).await;
    converged(&scene, "db", voters, LIMIT).await;

    let states = history.of("db");
    every_status_was_true(&states);
    the_seed_was_hidden_until_the_cluster_could_be_recognised(&states, door.check());
    assert_eq!(scene.count().await, [voters, voters, voters, 2], "members, Pods, PVCs, Services");
    assert_eq!(door.check().objects(), voters, "each Pod was made once");
    let counts = trace::check(&scene, &[]);
    for change in ["member-add", "member-promote"] {
        assert_eq!(counts.get(change).copied().unwrap_or_default(), voters - 1, "{change}: {counts:?}");
    }
    scene.finish().await;
}

// MQ-02, MQ-03, LP-01, LP-03, LP-07
#[tokio::test]
async fn one_member_forms_a_cluster_that_says_when_it_can_be_used() {
    grows_to(1).await;
}

// MQ-02, MQ-03, LP-01, LP-03, LP-07
#[tokio::test]
async fn three_members_become_voters_one_after_the_other() {
    grows_to(3).await;
}

// LP-05: 1→5 in one patch, while somebody writes, with a stranger in the learner's place midway.
#[tokio::test]
async fn five_members_become_voters_and_a_strange_learner_is_named_until_it_is_gone() {
    let scene = Scene::new("grow5").await;
    let door = Door::watch(&scene).await;
    let stranger = "http://stranger.invalid:2380";
    scene.cluster("db", 1).await;
    converged(&scene, "db", 1, LIMIT).await;
    let writer = Writer::start(&scene, "db").await;
    scene.scale("db", 5).await;
    eventually("two voters", LIMIT, async || {
        let list = etcd::list(&scene, "db").await?;
        if list.counts().0 >= 2 { Ok(()) } else { Err(format!("{list:?}")) }
    })
    .await
    .unwrap();
    eventually("a strange learner added", LIMIT, async || {
        let args = ["member", "add", "stranger", "--learner", &format!("--peer-urls={stranger}")];
        etcd::ask(&scene, "db", &args).await
    })
    .await
    .unwrap();
    let list = etcd::list(&scene, "db").await.unwrap();
    let id =
        list.members.iter().find(|m| m.peer_urls == [stranger]).expect("the stranger is listed").id.clone();

    let what = "a condition that names the stranger";
    object(scene.api::<EtcdCluster>(), "db", what, LIMIT, |cluster| {
        let cluster = cluster.ok_or("it is gone")?;
        let status = cluster.status_or_default();
        let found = conditions::find(&status.conditions, conditions::DEGRADED).filter(|c| {
            c.status == "True"
                && c.reason == "UnexplainedMember"
                && c.message.contains(stranger)
                && c.message.contains(&id)
        });
        found.map(drop).ok_or_else(|| words(cluster))
    })
    .await
    .unwrap();
    assert!(is(&scene.get("db").await, conditions::AVAILABLE), "{}", words(&scene.get("db").await));
    etcd::ask(&scene, "db", &["member", "remove", &id]).await.unwrap();

    converged(&scene, "db", 5, LIMIT).await;
    writer.finish(&scene).await;
    door.check();
    let counts = trace::check(&scene, &[stranger, &id]);
    assert_eq!((counts["member-add"], counts["member-promote"]), (4, 4), "{counts:?}");
    scene.finish().await;
}

// MQ-06
#[tokio::test]
async fn a_change_of_mind_within_a_moment_leaves_no_member_that_nobody_owns() {
    let scene = Scene::new("mind").await;
    scene.cluster("db", 3).await;
    converged(&scene, "db", 3, LIMIT).await;
    let writer = Writer::start(&scene, "db").await;
    scene.scale("db", 4).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    scene.scale("db", 3).await;
    converged(&scene, "db", 3, LIMIT).await;
    assert_eq!(scene.count().await, [3, 3, 3, 2], "members, Pods, PVCs, Services");

    // And once more when the fourth has come as far as etcd's list.
    scene.scale("db", 4).await;
    eventually("a fourth member in etcd's list", LIMIT, async || {
        let list = etcd::list(&scene, "db").await?;
        if list.members.len() == 4 { Ok(()) } else { Err(format!("{list:?}")) }
    })
    .await
    .unwrap();
    scene.scale("db", 3).await;
    converged(&scene, "db", 3, LIMIT).await;
    writer.finish(&scene).await;
    trace::check(&scene, &[]);
    assert_eq!(scene.count().await, [3, 3, 3, 2], "members, Pods, PVCs, Services");
    scene.finish().await;
}

// LP-06: the Pod of the first voter goes when there are two voters, on the way from 1 to 3.
#[tokio::test]
async fn the_first_pod_lost_between_two_voters_and_three_comes_back_with_its_data() {
    let scene = Scene::new("first").await;
    scene.cluster("db", 1).await;
    converged(&scene, "db", 1, LIMIT).await;
    let writer = Writer::start(&scene, "db").await;
    let first = scene.members().await.remove(0);
    let volume = first.status.unwrap().pvc_uid;
    let first = first.metadata.name.unwrap();
    scene.scale("db", 3).await;
    eventually("two voters", LIMIT, async || {
        let list = etcd::list(&scene, "db").await?;
        if list.counts().0 == 2 { Ok(()) } else { Err(format!("{list:?}")) }
    })
    .await
    .unwrap();
    scene.api::<Pod>().delete(&first, &DeleteParams::default()).await.unwrap();
    converged(&scene, "db", 3, LIMIT).await;
    writer.finish(&scene).await;
    let back = scene.api::<EtcdMember>().get(&first).await.unwrap();
    assert_eq!(back.status.unwrap().pvc_uid, volume, "on the volume that it had");
    let deletes = scene.requests().filter(|r| r.verb == "delete" && r.resource == "pods");
    assert_eq!(deletes.total(), 0, "the operator itself deletes no Pod on the way up");
    scene.finish().await;
}

// MQ-05, MQ-09, MQ-14: two EtcdMembers are deleted in the same second, the leader's among them.
#[tokio::test]
async fn two_deleted_members_leave_one_after_the_other_and_are_replaced() {
    let scene = Scene::new("pair").await;
    scene.cluster("db", 3).await;
    converged(&scene, "db", 3, LIMIT).await;
    let writer = Writer::start(&scene, "db").await;
    let (leader, _) = etcd::leader(&scene, "db").await.unwrap();
    let names: Vec<_> = scene.members().await.iter().map(ResourceExt::name_any).collect();
    let other = names.iter().find(|n| **n != leader).unwrap();
    for name in [&leader, other] {
        scene.api::<EtcdMember>().delete(name, &DeleteParams::default()).await.unwrap();
    }
    eventually("two new members", LIMIT, async || {
        let now: Vec<_> = scene.members().await.iter().map(ResourceExt::name_any).collect();
        if now.contains(&leader) || now.contains(other) { Err(format!("{now:?}")) } else { Ok(()) }
    })
    .await
    .unwrap();
    converged(&scene, "db", 3, LIMIT).await;
    writer.finish(&scene).await;
    let counts = trace::check(&scene, &[]);
    assert_eq!((counts["member-add"], counts["member-remove"]), (4, 2), "{counts:?}");
    // A member that is asked to remove itself stops before it has answered.
    let log = scene.operator_log();
    let doubtful = log.lines().find(|l| l.contains("etcd_operator::membership") && l.contains("leaves open"));
    assert_eq!(doubtful, None, "a change was left in doubt");
    scene.finish().await;
}

// 3→1: the members that leave are gone with their volumes, and the last one stays.
#[tokio::test]
async fn a_cluster_shrinks_to_one_and_loses_nothing_that_was_written() {
    let scene = Scene::new("shrink").await;
    scene.cluster("db", 3).await;
    let before = converged(&scene, "db", 3, LIMIT).await.status_or_default().cluster_id;
    let writer = Writer::start(&scene, "db").await;
    scene.scale("db", 1).await;
    let after = converged(&scene, "db", 1, LIMIT).await.status_or_default().cluster_id;
    assert_eq!(before, after);
    eventually("only what one member needs", LIMIT, async || {
        let count = scene.count().await;
        if count == [1, 1, 1, 2] { Ok(()) } else { Err(format!("{count:?}")) }
    })
    .await
    .unwrap();
    writer.finish(&scene).await;
    let counts = trace::check(&scene, &[]);
    assert_eq!(counts["member-remove"], 2, "{counts:?}");
    scene.finish().await;
}
