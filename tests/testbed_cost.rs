//! What a bring-up costs the API server, counted in its audit log. Counts only: times are for the benches.
//!
//! Run as `testbed exec -- cargo test --features failpoints --test testbed_cost`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends at its first surprise; clippy knows that only of the #[test] functions themselves"
)]

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use support::Scene;
use support::converged::converged;

const LIMIT: Duration = Duration::from_secs(180);

/// Whatever still follows from a bring-up by itself has happened by then.
const AFTER: Duration = Duration::from_secs(5);

#[tokio::test]
async fn three_members_come_up_with_one_write_for_each_transition() {
    let scene = Scene::new("cost").await;
    scene.cluster("db", 3).await;
    converged(&scene, "db", 3, LIMIT).await;
    tokio::time::sleep(AFTER).await;
    let ours = scene.requests().filter(|r| r.resource != "leases" && r.resource != "events");
    // A write that meets somebody else's (a kubelet's, to a Pod) is refused and made again; how often that happens
    // is not ours to say. What was written is.
    let written = ours.filter(|r| r.code < 300 && !["get", "list", "watch"].contains(&r.verb.as_str()));
    let expected = [
        ("create services", 2),
        // Its floor is that of the three that are wanted, so it is not touched again.
        ("create poddisruptionbudgets", 1),
        ("create etcdmembers", 3),
        ("create persistentvolumeclaims", 3),
        ("create pods", 3),
        // What etcd said when it took each of the two that join.
        ("patch etcdmembers", 2),
        // Each is told once that it has data; the two that join get the voter's label after that.
        ("patch pods", 5),
    ];
    let expected: BTreeMap<String, usize> = expected.map(|(what, n)| (what.to_owned(), n)).into();
    let mut counts = written.counts();
    let mut status = |what: &str| counts.remove(what).unwrap_or_default();
    // The target, the cluster ID, two voters, three voters.
    let of_cluster = status("patch etcdclusters/status");
    // The volume of each; that each of the two learns; that each votes.
    let of_members = status("patch etcdmembers/status");
    assert_eq!(counts, expected, "all requests: {:?}", ours.counts());
    // A busy machine may need more, and actors/tests/rules/cost.rs counts without one: a label that takes longer
    // than the half second that the status waits for it, and a scheduler that has no node while a volume is
    // being bound, which is told and taken back.
    assert!((4..=7).contains(&of_cluster), "{of_cluster} writes of the EtcdCluster's status");
    assert!((8..=14).contains(&of_members), "{of_members} writes of the EtcdMembers' status");
    scene.finish().await;
}
