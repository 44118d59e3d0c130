//! The operator ends at every point at which it can, before and after each of its effects, and loses every answer.
//! Whatever it left half done is finished by its next life, and nothing is done twice.
//!
//! Run as `testbed exec -- cargo test --features failpoints --test testbed_failpoints`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends at its first surprise; clippy knows that only of the #[test] functions themselves"
)]

mod support;

use std::time::Duration;

use etcd_operator_api::EtcdMember;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};

use kube::api::DeleteParams;
use serde_json::json;
use support::chain::{points, run};
use support::converged::converged;
use support::history::History;
use support::{Scene, etcd, spec, trace};

const LIMIT: Duration = Duration::from_secs(120);

/// Every object of the kinds that an operator creates, also of those that are gone.
struct Made {
    members: History<EtcdMember>,
    pods: History<Pod>,
    pvcs: History<PersistentVolumeClaim>,
    services: History<Service>,
}

impl Made {
    async fn record(scene: &Scene) -> Self {
        Self {
            members: History::start(scene.api()).await,
            pods: History::start(scene.api()).await,
            pvcs: History::start(scene.api()).await,
            services: History::start(scene.api()).await,
        }
    }

    /// How many of each there ever were, by UID. A retried create that made a second object shows here (AP-04).
    fn count(&self) -> [usize; 4] {
        [self.members.objects(), self.pods.objects(), self.pvcs.objects(), self.services.objects()]
    }
}

/// What the bootstrap of one member does to the outside world, in this order. The first status comes beside the
/// Services; the one after the Pod records the cluster ID, and the last says that all is done. The label of the first
/// voter is missing here: its actor gives it beside the budget, and neither waits for the other.
const BOOTSTRAP: [&str; 8] = [
    "create-service",
    "create-member",
    "create-pvc",
    "member-status",
    "create-pod",
    "cluster-status",
    "create-budget",
    "cluster-status",
];

/// What a second member's way to being a voter does to the outside world, in this order. No target is worked towards
/// before the status records it, and the budget counts the second before it is made.
const JOIN: [&str; 10] = [
    "cluster-status",
    "patch-budget",
    "create-member",
    "create-pvc",
    "member-status",
    "member-add",
    "patch-member",
    "create-pod",
    "member-promote",
    "patch-pod",
];

/// What the way out of a leader, and then of a follower, does to the outside world, in this order: the follower is sent
/// away as soon as etcd has let go of the leader, while that one's objects are still being cleared away. Each loses its
/// label before etcd is asked, and the budget counts on them until they are gone.
const LEAVE: [&str; 9] = [
    "cluster-status",
    "patch-pod",
    "move-leader",
    "member-remove",
    "delete-member",
    "delete-pod",
    "delete-pvc",
    "release-member",
    "patch-budget",
];

/// What the restart of one member for a changed spec does to the outside world, in this order. The permit is written
/// together with the spec, and each of the three members comes by all of it.
const ROLL: [&str; 4] = ["cluster-status", "patch-member", "evict-pod", "create-pod"];

fn lost(effects: &[&str]) -> String {
    effects.iter().map(|effect| format!("{effect}:lost")).collect::<Vec<_>>().join(",")
}

// AP-04
#[tokio::test]
async fn an_operator_that_ends_at_each_point_of_a_bootstrap_makes_one_member_and_nothing_twice() {
    let mut scene = Scene::without_operator("boot").await;
    let made = Made::record(&scene).await;
    scene.cluster("db", 1).await;
    run(&mut scene, &points(&BOOTSTRAP), "db", 1).await;
    assert_eq!(made.count(), [1, 1, 1, 2], "members, Pods, PVCs, Services");
    assert!(trace::check(&scene, &[]).is_empty(), "a bootstrap changes no membership");
    scene.finish().await;
}

// AP-04
#[tokio::test]
async fn an_operator_that_ends_at_the_label_of_the_first_voter_gives_it_in_its_next_life() {
    let mut scene = Scene::without_operator("label").await;
    let made = Made::record(&scene).await;
    scene.cluster("db", 1).await;
    run(&mut scene, &points(&["patch-pod"]), "db", 1).await;
    assert_eq!(made.count(), [1, 1, 1, 2], "members, Pods, PVCs, Services");
    scene.finish().await;
}

// AP-04, MQ-05
#[tokio::test]
async fn an_operator_that_ends_at_each_point_of_a_join_adds_one_voter_and_nothing_twice() {
    let mut scene = Scene::without_operator("join").await;
    let made = Made::record(&scene).await;
    scene.start(&[]).await;
    scene.cluster("db", 1).await;
    converged(&scene, "db", 1, LIMIT).await;
    scene.stop().await;
    scene.scale("db", 2).await;
    run(&mut scene, &points(&JOIN), "db", 2).await;
    assert_eq!(made.count(), [2, 2, 2, 2], "members, Pods, PVCs, Services");
    let counts = trace::check(&scene, &[]);
    assert_eq!((counts["member-add"], counts["member-promote"]), (1, 1), "{counts:?}");
    scene.finish().await;
}

// MQ-05, MQ-07
#[tokio::test]
async fn an_operator_that_ends_at_each_point_of_two_departures_removes_both_and_nobody_else() {
    let mut scene = Scene::without_operator("leave").await;
    let made = Made::record(&scene).await;
    scene.start(&[]).await;
    scene.cluster("db", 3).await;
    converged(&scene, "db", 3, LIMIT).await;
    scene.stop().await;
    // The leader is sent away by hand, and one of the other two is one too many.
    let (leader, _) = etcd::leader(&scene, "db").await.unwrap();
    scene.api::<EtcdMember>().delete(&leader, &DeleteParams::default()).await.unwrap();
    scene.scale("db", 1).await;
    run(&mut scene, &points(&LEAVE), "db", 1).await;
    assert_eq!(made.count(), [3, 3, 3, 2], "members, Pods, PVCs, Services");
    let counts = trace::check(&scene, &[]);
    assert_eq!(counts["member-remove"], 2, "{counts:?}");
    scene.finish().await;
}

// UP-02, AP-04
#[tokio::test]
async fn an_operator_that_ends_at_each_point_of_a_roll_restarts_each_member_once() {
    let mut scene = Scene::without_operator("roll").await;
    let made = Made::record(&scene).await;
    scene.start(&[]).await;
    scene.cluster("db", 3).await;
    converged(&scene, "db", 3, LIMIT).await;
    scene.stop().await;
    scene.edit("db", json!({"spec": {"resources": {"requests": {"cpu": "70m"}}}})).await;
    run(&mut scene, &points(&ROLL), "db", 3).await;
    assert_eq!(made.count(), [3, 6, 3, 2], "members, Pods, PVCs, Services");
    let counts = trace::check(&scene, &[]);
    assert_eq!((counts["member-add"], counts.get("member-remove")), (2, None), "{counts:?}");
    scene.finish().await;
}

#[tokio::test]
async fn an_operator_that_loses_each_answer_once_still_grows_and_shrinks_a_cluster() {
    let mut scene = Scene::without_operator("lost").await;
    let made = Made::record(&scene).await;
    let all: Vec<&str> = BOOTSTRAP.into_iter().chain(JOIN).chain(LEAVE).collect();
    let env = lost(&all);
    scene.start(&[("ETCD_OPERATOR_FAILPOINTS", &env)]).await;
    scene.create(&spec::cluster("db", 2)).await;
    converged(&scene, "db", 2, LIMIT).await;
    assert_eq!(made.count(), [2, 2, 2, 2], "members, Pods, PVCs, Services");
    scene.scale("db", 1).await;
    converged(&scene, "db", 1, LIMIT).await;
    assert_eq!(made.count(), [2, 2, 2, 2], "members, Pods, PVCs, Services");
    let counts = trace::check(&scene, &[]);
    assert_eq!(
        (counts["member-add"], counts["member-promote"], counts["member-remove"]),
        (1, 1, 1),
        "{counts:?}"
    );
    scene.finish().await;
}
