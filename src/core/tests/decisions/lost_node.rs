//! Members whose node is gone: reported for ever, and replaced only after the time that a person has set.

use std::time::Duration;

use etcd_operator_core::{
    cluster::{ClusterAction, ClusterDecision, decide},
    healing::is_replacement,
    lost_node::is_stranded,
    reason::Reason,
    report::{Verdict, report},
    time::Time,
    view::*,
};

use crate::fixtures::*;

const AFTER: Duration = Duration::from_secs(60);
/// The words of Kubernetes 1.36, and of 1.34 and before.
const NOWHERE: [&str; 2] = [
    "0/2 nodes are available: 2 node(s) didn't match PersistentVolume's node affinity",
    "0/2 nodes are available: 2 node(s) had volume node affinity conflict.",
];

/// Stranded for as long as the fixtures' clock shows.
fn stranded(m: MemberFacts) -> MemberFacts {
    MemberFacts { stranded: Some(Time(0)), ..m }
}

/// No node takes its Pod, in these words.
fn unplaced(n: u64, words: &str) -> MemberFacts {
    let trouble = Some(PodTrouble::Unschedulable(words.into()));
    let pod = PodView { trouble, node: None, ip: None, started: false, ready: false, ..pod(n) };
    MemberFacts { pod: Presence::Present(pod), look: unknown(), ..voter(n) }
}

/// Its Pod was to end, and it does not answer.
fn not_ending(n: u64) -> MemberFacts {
    MemberFacts { pod: Presence::Present(PodView { deleting: true, ..pod(n) }), ..dead(n) }
}

fn waiting(replicas: usize, members: Vec<MemberFacts>) -> ClusterSituation {
    ClusterSituation { lost_node_after: Some(AFTER), ..cluster(replicas, members) }
}

fn replaced(s: &ClusterSituation) -> Option<(String, Reason)> {
    match decide(s) {
        ClusterDecision::Act(ClusterAction::DeleteMember { name, why, .. }) => Some((name.0, why)),
        _ => None,
    }
}

// LS-10
#[test]
fn without_a_time_set_by_a_person_a_member_on_a_lost_node_is_told_and_never_replaced() {
    for m in [unplaced(2, NOWHERE[0]), not_ending(2)] {
        let mut s = cluster(3, vec![voter(0), voter(1), stranded(m)]);
        s.now = Time(u64::MAX);
        assert_eq!(replaced(&s), None);
        assert_eq!(report(&s).degraded.verdict, Verdict::True);
    }
}

#[test]
fn after_that_time_it_is_replaced_and_not_before() {
    for m in [unplaced(2, NOWHERE[0]), unplaced(2, NOWHERE[1]), not_ending(2)] {
        let mut s = waiting(3, vec![voter(0), voter(1), stranded(m)]);
        s.now = Time(59_999);
        assert_eq!(replaced(&s), None);
        s.now = Time(60_000);
        assert_eq!(replaced(&s), Some(("m2".into(), Reason::NodeLost)));
        let r = report(&s);
        assert_eq!((r.degraded.verdict, r.degraded.reason), (Verdict::True, Reason::NodeLost));
    }
    assert!(is_replacement(Reason::NodeLost), "it is under the limit of the whole fleet");
}

// What was seen in a former life of the operator is not known in this one.
#[test]
fn a_member_that_has_not_been_watched_for_that_long_is_left_alone() {
    assert_eq!(replaced(&waiting(3, vec![voter(0), voter(1), unplaced(2, NOWHERE[0])])), None);
}

#[test]
fn a_node_that_came_back_a_moment_ago_is_not_gone() {
    for m in [voter(2), unplaced(2, "0/3 nodes are available: 3 Insufficient cpu")] {
        assert_eq!(replaced(&waiting(3, vec![voter(0), voter(1), stranded(m)])), None);
    }
}

#[test]
fn only_words_that_leave_no_node_with_the_volume_count() {
    let says = |words: &str| is_stranded(&unplaced(2, words));
    for words in NOWHERE {
        assert!(says(words), "{words}");
    }
    // Of the control plane, or down.
    assert!(says(
        "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 node(s) didn't match PersistentVolume's node affinity"
    ));
    assert!(says(
        "0/3 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/unreachable: }, 2 node(s) had volume node affinity conflict"
    ));
    for words in [
        "",
        "no reason given",
        "0/3 nodes are available: ",
        "0/3 nodes are available: 3 node(s) had untolerated taint(s)",
        // It is there and full, cordoned, or excluded by the spec.
        "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't match PersistentVolume's node affinity",
        "0/3 nodes are available: 1 node(s) were unschedulable, 2 node(s) didn't match PersistentVolume's node affinity",
        "0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 2 node(s) had volume node affinity conflict",
        // Cut short.
        "0/3 nodes are available: 2 node(s) didn't match PersistentVolume's node affinity, 1 Insuf",
        "pod has unbound immediate PersistentVolumeClaims",
        "0/3 nodes are available: 3 node(s) didn't find available persistent volumes to bind",
    ] {
        assert!(!says(words), "{words}");
    }
}

#[test]
fn a_pod_that_ends_and_still_answers_holds_nobody() {
    let ending = MemberFacts { look: serves(2), ..not_ending(2) };
    assert!(!is_stranded(&ending));
    assert!(!is_stranded(&MemberFacts { look: unknown(), ..not_ending(2) }), "nobody has looked");
    let unplaced = PodView { node: None, ip: None, deleting: true, ..pod(2) };
    assert!(!is_stranded(&MemberFacts { pod: Presence::Present(unplaced), ..dead(2) }), "no node holds it");
    assert!(!is_stranded(&MemberFacts { pod: Presence::Unknown, ..dead(2) }));
    assert!(!is_stranded(&dead(2)), "silence alone is no evidence");
}

#[test]
fn nobody_is_replaced_for_a_lost_node_without_a_quorum_of_the_others() {
    let lost = |n| stranded(unplaced(n, NOWHERE[0]));
    let s = waiting(3, vec![voter(0), lost(1), lost(2)]);
    assert_eq!(replaced(&s), None);
    let r = report(&s);
    assert_eq!((r.degraded.verdict, r.degraded.reason), (Verdict::True, Reason::NodeLost));
    assert!(r.degraded.message.contains("nobody is replaced"), "{}", r.degraded.message);
    assert_eq!(replaced(&waiting(1, vec![lost(0)])), None, "it is the whole cluster");
}

#[test]
fn two_members_on_lost_nodes_are_replaced_one_after_the_other() {
    let lost = |n| stranded(unplaced(n, NOWHERE[0]));
    let s = waiting(5, vec![voter(0), voter(1), voter(2), lost(3), lost(4)]);
    assert_eq!(replaced(&s), Some(("m3".into(), Reason::NodeLost)));
    let s = waiting(5, vec![voter(0), voter(1), voter(2), leaving(lost(3)), lost(4)]);
    assert_eq!(replaced(&s), None);
}
