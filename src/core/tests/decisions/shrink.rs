//! Who leaves when there are more members than wanted: each step of the order, and what breaks a tie.

use etcd_operator_core::{
    cluster::{ClusterAction, ClusterDecision, decide},
    reason::Reason,
    time::Time,
    view::*,
};

use crate::fixtures::*;

/// A voter on a node, in a zone; m0 leads, and the higher number is the younger.
fn at(n: u64, node: &str, zone: Option<&str>) -> MemberFacts {
    let place = PodView { node: Some(node.into()), zone: zone.map(str::to_owned), ..pod(n) };
    MemberFacts { pod: Presence::Present(place), ..voter(n) }
}

fn victim(s: &ClusterSituation) -> String {
    match decide(s) {
        ClusterDecision::Act(ClusterAction::DeleteMember { name, why: Reason::ScalingDown, .. }) => name.0,
        other => panic!("{other:?}"),
    }
}

/// It answers as a voter and does not serve.
fn ill(m: MemberFacts, n: u64) -> MemberFacts {
    MemberFacts { look: answers(n), ..m }
}

// MQ-09
#[test]
fn who_never_joined_goes_before_a_dead_voter() {
    let mut s = cluster(3, vec![at(0, "a", None), at(1, "b", None), at(2, "c", None), dead(3)]);
    s.members.push(newcomer(4));
    assert_eq!(victim(&s), "m4");
}

// MQ-09
#[test]
fn a_dead_voter_goes_before_one_that_answers_and_does_not_serve_and_that_before_a_healthy_one() {
    let one = at(1, "b", None);
    let mut s = cluster(3, vec![at(0, "a", None), ill(one, 1), dead(2), at(3, "a", None)]);
    assert_eq!(victim(&s), "m2");
    s.members.remove(2);
    s.cluster.replicas = 2;
    s.cluster.recorded.target = Some(Target { blueprint: blueprint(), replicas: 2, template: "t".into() });
    let smaller = cluster(2, s.members.clone());
    (s.list, s.budget) = (smaller.list, smaller.budget);
    assert_eq!(victim(&s), "m1", "m3 is younger and shares a node, but it serves");
}

// MQ-09
#[test]
fn what_nobody_has_looked_at_and_what_was_last_seen_as_a_learner_is_not_unhealthy() {
    for look in [unknown(), learns(1)] {
        let unseen = MemberFacts { look, ..at(1, "b", None) };
        let s = cluster(2, vec![at(0, "a", None), unseen, at(2, "c", None)]);
        // The youngest would go, if all others served.
        assert_eq!(decide(&s), ClusterDecision::Wait(Reason::MembersUnhealthy));
    }
}

// SD-06
#[test]
fn of_healthy_voters_one_that_shares_a_node_goes_before_one_that_shares_a_zone() {
    let s = cluster(
        3,
        vec![
            at(0, "a", Some("x")),
            at(1, "b", Some("y")),
            at(2, "b", Some("y")),
            at(3, "c", Some("z")),
            at(4, "d", Some("z")),
        ],
    );
    assert_eq!(victim(&s), "m2", "m3 and m4 are younger and share only a zone");
}

// SD-06
#[test]
fn of_healthy_voters_one_that_shares_a_zone_goes_before_one_that_shares_nothing() {
    let s = cluster(2, vec![at(0, "a", Some("x")), at(1, "b", Some("x")), at(2, "c", Some("y"))]);
    assert_eq!(victim(&s), "m1", "m2 is the youngest and alone in its zone");
}

// SD-06
#[test]
fn of_zones_that_are_shared_the_fullest_gives_one_up() {
    let zones = ["x", "x", "x", "y", "y"];
    let members = zones.iter().zip(0..).map(|(zone, n)| at(n, &format!("node{n}"), Some(zone))).collect();
    assert_eq!(victim(&cluster(4, members)), "m2");
}

// SD-06
#[test]
fn a_member_that_leaves_or_is_no_voter_takes_up_no_place() {
    let gone = MemberFacts { pod: at(9, "b", Some("y")).pod, ..newcomer(9) };
    let mut s = cluster(1, vec![at(0, "a", Some("x")), at(1, "b", Some("y")), at(2, "c", Some("z"))]);
    s.members.push(leaving(gone));
    // The one that leaves was never listed, so that it does not make the others wait.
    assert_eq!(victim(&s), "m2", "the youngest, and m1 has no neighbour that stays");
    let s = cluster(2, vec![at(0, "a", None), at(1, "a", None), at(2, "b", None)]);
    assert_eq!(victim(&s), "m1");
}

// SD-06
#[test]
fn an_unknown_node_or_zone_is_shared_with_nobody() {
    let nowhere =
        |n| MemberFacts { pod: Presence::Present(PodView { node: None, zone: None, ..pod(n) }), ..voter(n) };
    let s = cluster(3, vec![at(0, "a", None), at(1, "b", None), at(2, "b", None), nowhere(3), nowhere(4)]);
    assert_eq!(victim(&s), "m2", "m3 and m4 are younger");
}

// MQ-09
#[test]
fn the_leader_goes_only_when_nobody_else_is_left() {
    // m0 leads. It shares a node with nobody but m1.
    let s = cluster(1, vec![at(0, "a", None), at(1, "a", None)]);
    assert_eq!(victim(&s), "m1");
    let mut s = cluster(2, vec![at(0, "a", Some("x")), at(1, "b", Some("x")), at(2, "c", Some("x"))]);
    s.members[0].member.created = Time(99_000);
    assert_eq!(victim(&s), "m2", "the leader is younger than all");
}

// MQ-09
#[test]
fn of_equals_the_youngest_goes_and_then_the_first_by_name() {
    let mut s = cluster(2, vec![at(0, "a", None), at(1, "b", None), at(2, "c", None)]);
    assert_eq!(victim(&s), "m2");
    s.members[2].member.created = s.members[1].member.created;
    assert_eq!(victim(&s), "m1");
}
