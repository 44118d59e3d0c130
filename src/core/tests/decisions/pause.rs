//! Pause and resume: one member stays, dormant, with its volume; nothing is made over what was lost.

use etcd_operator_core::{
    cluster::{ClusterAction, ClusterDecision, decide},
    departure::{Departure, departure},
    member::{MemberAction, MemberDecision, decide as decide_member},
    pause::is_paused,
    reason::Reason,
    report::{Verdict, report},
    view::*,
};

use crate::fixtures::*;

fn parked(n: u64) -> MemberFacts {
    let mut m = voter(n);
    m.member.dormant = true;
    m.member.recorded.ready = false;
    MemberFacts { pod: Presence::Absent, look: unknown(), ..m }
}

fn paused() -> ClusterSituation {
    let mut s = cluster(0, vec![parked(1)]);
    s.list = ListFact::Unknown { since: NOW };
    s.budget = BudgetState::Absent;
    s
}

#[test]
fn the_last_member_is_parked_and_never_deleted() {
    let s = cluster(0, vec![voter(1)]);
    let park = ClusterAction::ParkMember { name: "m1".into(), uid: "uid1".into() };
    assert_eq!(decide(&s), ClusterDecision::Act(park));
    assert_eq!(decide(&paused()), ClusterDecision::Settled);
}

#[test]
fn a_pause_first_shrinks_to_one_member() {
    let s = cluster(0, vec![voter(0), voter(1), voter(2)]);
    assert!(matches!(decide(&s), ClusterDecision::Act(ClusterAction::DeleteMember { .. })));
    let s = cluster(0, vec![voter(0), leaving(voter(1))]);
    assert_eq!(departure(&s, &"m1".into()), Departure::Go);
    assert_eq!(decide(&s), ClusterDecision::Wait(Reason::MemberLeaving));
}

#[test]
fn nobody_is_parked_while_etcd_lists_another() {
    let mut s = cluster(0, vec![voter(1)]);
    s.list = ListFact::Known { at: NOW, list: list(vec![listed(1), learner(2)]) };
    s.members_confirmed = None;
    assert!(!matches!(decide(&s), ClusterDecision::Act(ClusterAction::ParkMember { .. })));
}

// SZ-04
#[test]
fn a_last_member_that_somebody_deleted_is_kept_through_the_pause() {
    let s = cluster(0, vec![leaving(voter(1))]);
    assert!(matches!(decide(&s), ClusterDecision::Act(ClusterAction::ParkMember { .. })));
    let mut s = paused();
    s.members = vec![leaving(parked(1))];
    assert_eq!(decide(&s), ClusterDecision::Settled);
    assert!(matches!(departure(&s, &"m1".into()), Departure::Hold(_)));
}

// SZ-02
#[test]
fn a_paused_cluster_wakes_with_the_member_that_it_has() {
    let mut s = paused();
    s.cluster.replicas = 3;
    s.cluster.recorded.target = cluster(3, vec![]).cluster.recorded.target;
    s.budget = BudgetState::Present { min_available: 2, right: true };
    let wake = ClusterAction::WakeMember { name: "m1".into(), uid: "uid1".into() };
    assert_eq!(decide(&s), ClusterDecision::Act(wake));
}

#[test]
fn a_cluster_created_at_zero_makes_nothing_and_says_so() {
    let mut s = unformed(vec![]);
    s.cluster.replicas = 0;
    s.cluster.recorded.target = cluster(0, vec![]).cluster.recorded.target;
    assert_eq!(decide(&s), ClusterDecision::Settled);
    let r = report(&s);
    assert_eq!((r.available.verdict, r.available.reason), (Verdict::False, Reason::Paused));
    assert!(r.available.message.contains("no data"), "{}", r.available.message);
}

// SZ-03, SZ-05
#[test]
fn a_paused_cluster_is_unavailable_healthy_and_names_the_volume_that_has_its_data() {
    let s = paused();
    assert!(is_paused(&s));
    let r = report(&s);
    assert_eq!((r.available.verdict, r.available.reason), (Verdict::False, Reason::Paused));
    assert_eq!((r.progressing.verdict, r.progressing.reason), (Verdict::False, Reason::Paused));
    assert_eq!((r.degraded.verdict, r.degraded.reason), (Verdict::False, Reason::Paused));
    assert_eq!((r.record.progress_deadline, r.broken_members), (None, 0));
    assert!(r.available.message.contains("data-m1"), "{}", r.available.message);
}

// SZ-05
#[test]
fn a_pause_of_data_in_memory_promises_no_volume() {
    let mut s = paused();
    s.members[0].member.memory = true;
    let words = report(&s).available.message;
    assert!(words.contains("gone") && !words.contains("data-m1"), "{words}");
}

#[test]
fn a_volume_lost_during_the_pause_is_told_and_nothing_starts_over_it() {
    let mut s = paused();
    s.members[0].pvc = Presence::Absent;
    let r = report(&s);
    assert_eq!((r.degraded.verdict, r.degraded.reason), (Verdict::True, Reason::VolumeMissing));
    assert!(r.degraded.message.contains("restore a snapshot"), "{}", r.degraded.message);
    let mut woken = situation(parked(1));
    woken.facts.member.dormant = false;
    woken.facts.pvc = Presence::Absent;
    woken.list = ListFact::Unknown { since: NOW };
    assert!(matches!(decide_member(&woken), MemberDecision::Wait { reason: Reason::VolumeMissing, .. }));
}

#[test]
fn a_member_is_not_parked_on_a_volume_that_goes_with_its_pod() {
    let mut s = cluster(0, vec![voter(1)]);
    s.members[0].pvc = Presence::Present(PvcView { deleting: true, ..pvc(1) });
    assert_eq!(decide(&s), ClusterDecision::Wait(Reason::VolumeMissing));
    let mut asleep = situation(voter(1));
    asleep.parks = true;
    asleep.facts.member.dormant = true;
    asleep.facts.pvc = Presence::Present(PvcView { deleting: true, ..pvc(1) });
    assert!(matches!(decide_member(&asleep), MemberDecision::Wait { reason: Reason::VolumeMissing, .. }));
}

#[test]
fn a_dormant_members_pod_goes_and_none_is_made() {
    let mut s = situation(voter(1));
    s.facts.member.dormant = true;
    assert_eq!(decide_member(&s), MemberDecision::Settled, "set by hand while the cluster is wanted");
    s.parks = true;
    let delete = MemberAction::DeletePod { pod_uid: "pod1".into(), why: Reason::Paused };
    assert_eq!(decide_member(&s), MemberDecision::Act(delete));
    let mut s = situation(parked(1));
    s.parks = true;
    assert!(matches!(decide_member(&s), MemberDecision::Wait { reason: Reason::Paused, .. }));
}

#[test]
fn a_late_member_of_a_paused_cluster_is_let_go_with_etcds_word() {
    let mut s = paused();
    s.members.push(newcomer(2));
    assert!(matches!(decide(&s), ClusterDecision::Act(ClusterAction::WakeMember { .. })));
}
