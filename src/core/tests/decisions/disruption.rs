//! `disruption`: the floor of the budget, its order with labels and removals, and what a person is told of it.

use etcd_operator_core::{
    cluster::{ClusterAction, ClusterDecision, decide},
    disruption::covers_label,
    member::{self, MemberAction, MemberDecision},
    membership::Change,
    reason::Reason,
    report::{Verdict, report},
    time::Time,
    view::*,
};

use crate::fixtures::*;

fn voters(n: u64) -> Vec<MemberFacts> {
    (0..n).map(voter).collect()
}

fn present(min_available: usize) -> BudgetState {
    BudgetState::Present { min_available, right: true }
}

fn with(budget: BudgetState, s: ClusterSituation) -> ClusterSituation {
    ClusterSituation { budget, ..s }
}

/// The floor that is put; none if nothing is done about the budget.
fn puts(s: &ClusterSituation) -> Option<usize> {
    match decide(s) {
        ClusterDecision::Act(ClusterAction::PutBudget { min_available, .. }) => Some(min_available),
        _ => None,
    }
}

fn unlisted(s: ClusterSituation) -> ClusterSituation {
    ClusterSituation { list: ListFact::Unknown { since: Time(0) }, ..s }
}

#[test]
fn the_floor_is_a_quorum_of_the_voters_or_of_those_wanted_whichever_are_more() {
    for (n, wanted, floor) in
        [(1, 1, 1), (2, 2, 2), (3, 3, 2), (1, 3, 2), (2, 5, 3), (4, 3, 3), (5, 3, 3), (5, 5, 3)]
    {
        let s = with(BudgetState::Absent, cluster(wanted, voters(n)));
        assert_eq!(puts(&s), Some(floor), "{n} voters, {wanted} wanted");
        assert_eq!(puts(&with(present(floor), s)), None, "{n} voters, {wanted} wanted");
    }
}

#[test]
fn there_is_no_budget_before_the_cluster_is_recorded_and_none_while_nobody_knows_of_a_voter() {
    let mut s = unformed(vec![voter(0)]);
    assert_eq!(puts(&s), None);
    s.budget = present(2);
    assert!(!matches!(decide(&s), ClusterDecision::Act(ClusterAction::DeleteBudget)));
    let mut silent = voters(3);
    for m in &mut silent {
        m.member.recorded.is_voter = false;
        m.look = unknown();
    }
    assert_eq!(puts(&with(BudgetState::Absent, unlisted(cluster(3, silent)))), None);
}

#[test]
fn a_budget_that_guards_nobody_is_deleted_and_only_then() {
    let asleep = |n| {
        let mut m = voter(n);
        m.member.dormant = true;
        m
    };
    let deletes = |s: &ClusterSituation| decide(s) == ClusterDecision::Act(ClusterAction::DeleteBudget);
    assert!(deletes(&with(present(2), cluster(0, (0..3).map(asleep).collect()))));
    assert!(!deletes(&with(present(2), cluster(3, (0..3).map(asleep).collect()))), "set by hand");
    assert!(deletes(&with(present(2), unlisted(cluster(0, (0..3).map(asleep).collect())))));
    assert!(deletes(&with(present(2), cluster(3, vec![]))));
    assert!(!deletes(&with(present(2), unlisted(cluster(3, vec![])))), "nobody may have looked");
    let lost = report(&with(present(2), cluster(3, vec![]))).progressing;
    assert_eq!(lost.reason, Reason::AllMembersLost);
    for other in [BudgetState::Absent, BudgetState::Foreign, BudgetState::Unknown] {
        assert!(!deletes(&with(other, cluster(3, vec![]))), "{other:?}");
    }
    let one_up = cluster(3, vec![asleep(0), asleep(1), voter(2)]);
    assert!(!deletes(&with(present(2), one_up)));
}

// SD-04
#[test]
fn an_edited_budget_is_put_right_and_somebody_elses_is_left_alone_and_reported() {
    let edited = BudgetState::Present { min_available: 0, right: false };
    assert_eq!(puts(&with(edited, cluster(3, voters(3)))), Some(2));
    let edited = BudgetState::Present { min_available: 2, right: false };
    assert_eq!(puts(&with(edited, cluster(3, voters(3)))), Some(2));
    let foreign = with(BudgetState::Foreign, cluster(3, voters(3)));
    assert_eq!(decide(&foreign), ClusterDecision::Settled);
    let degraded = report(&foreign).degraded;
    assert_eq!((degraded.verdict, degraded.reason), (Verdict::True, Reason::ForeignObject));
    assert!(degraded.message.contains("PodDisruptionBudget c "), "{}", degraded.message);
}

#[test]
fn a_floor_that_was_edited_down_while_nobody_knows_the_voters_is_raised_again() {
    let s = with(present(1), unlisted(cluster(3, voters(3))));
    assert_eq!(puts(&s), Some(2));
}

#[test]
fn what_is_not_known_never_lowers_a_floor() {
    assert_eq!(puts(&with(present(3), cluster(3, voters(3)))), Some(2), "known and at rest");
    assert_eq!(puts(&with(present(3), unlisted(cluster(3, voters(3))))), None);
    let edited = BudgetState::Present { min_available: 3, right: false };
    assert_eq!(puts(&with(edited, unlisted(cluster(3, voters(3))))), Some(3), "the rest is put right");
    let unknown = with(BudgetState::Unknown, cluster(3, voters(3)));
    assert_eq!(decide(&unknown), ClusterDecision::Wait(Reason::NotKnownYet));
}

#[test]
fn a_floor_is_not_lowered_while_a_member_is_on_its_way_in_or_out() {
    for on_its_way in [joined(3), newcomer(3), leaving(newcomer(3))] {
        let mut s = with(present(3), cluster(3, [voters(3), vec![on_its_way]].concat()));
        s.list = ListFact::Known { at: NOW, list: list(vec![listed(0), listed(1), listed(2)]) };
        assert_eq!(puts(&s), None);
    }
}

// SD-03
#[test]
fn a_voter_is_labelled_only_when_the_floor_counts_it() {
    let mut s = cluster(3, [voters(3), vec![joined(3)]].concat());
    s.members[3].look = serves(3);
    // The list may be older than the promotion.
    for promoted in [listed(3), learner(3)] {
        s.list = ListFact::Known { at: NOW, list: list(vec![listed(0), listed(1), listed(2), promoted]) };
        let name = s.members[3].member.name.clone();
        assert!(!covers_label(&with(present(2), s.clone()), &name));
        assert_eq!(puts(&with(present(2), s.clone())), Some(3), "and the floor rises for it");
        assert!(covers_label(&with(present(3), s.clone()), &name));
        let edited = BudgetState::Present { min_available: 3, right: false };
        assert!(!covers_label(&with(edited, s.clone()), &name));
        assert!(covers_label(&with(BudgetState::Foreign, s.clone()), &name));
        for none in [BudgetState::Absent, BudgetState::Unknown] {
            assert!(!covers_label(&with(none, s.clone()), &name), "three are labelled");
        }
    }
    let seed = with(BudgetState::Absent, cluster(3, voters(1)));
    assert!(covers_label(&seed, &seed.members[0].member.name), "clients have the first at once");
}

// SD-03
#[test]
fn a_label_waits_for_the_floor_and_none_is_taken_off_for_it() {
    let uncovered = |facts| MemberSituation { budget_covers_label: false, ..situation(facts) };
    assert_eq!(member::decide(&uncovered(voter(1))), MemberDecision::Settled, "it has it");
    let mut hidden = voter(1);
    hidden.pod = Presence::Present(PodView { voter_label: false, ..pod(1) });
    assert!(matches!(
        member::decide(&uncovered(hidden.clone())),
        MemberDecision::Wait { reason: Reason::InProgress, .. }
    ));
    assert!(matches!(
        member::decide(&situation(hidden)),
        MemberDecision::Act(MemberAction::PatchPod { voter_label: true, .. })
    ));
}

// SD-03
#[test]
fn who_leaves_loses_its_label_before_etcd_is_asked_and_has_it_back_if_it_stays_after_all() {
    let labelled = situation(leaving(voter(1)));
    let MemberDecision::Act(MemberAction::PatchPod { voter_label: false, .. }) = member::decide(&labelled)
    else {
        panic!("{:?}", member::decide(&labelled))
    };
    let mut bare = leaving(voter(1));
    bare.pod = Presence::Present(PodView { voter_label: false, ..pod(1) });
    let asks = |m: MemberFacts| {
        matches!(member::decide(&situation(m)), MemberDecision::Act(MemberAction::Ask(Change::Remove { .. })))
    };
    assert!(asks(bare.clone()));
    for pod in [
        Presence::Absent,
        Presence::Present(PodView { ours: false, ..pod(1) }),
        Presence::Present(PodView { deleting: true, ..pod(1) }),
    ] {
        let mut m = MemberFacts { pod: pod.clone(), ..leaving(voter(1)) };
        m.member.recorded.ready = false;
        assert!(asks(m), "{pod:?}");
    }
    let held = MemberSituation {
        departure: etcd_operator_core::departure::Departure::Hold(Reason::ReplacementFirst),
        ..situation(bare)
    };
    assert!(matches!(
        member::decide(&held),
        MemberDecision::Act(MemberAction::PatchPod { voter_label: true, .. })
    ));
}

// SD-05
#[test]
fn one_or_two_voters_say_that_a_drain_waits_and_three_that_one_can_go() {
    for (n, wanted, allowed) in
        [(1, 1, false), (2, 2, false), (2, 1, false), (1, 2, false), (3, 3, true), (1, 3, true), (3, 1, true)]
    {
        let said = report(&cluster(wanted, voters(n))).disruptions.expect("there is a cluster");
        let expected = if allowed {
            (Verdict::True, Reason::BudgetLeavesQuorum)
        } else {
            (Verdict::False, Reason::BudgetBlocksDrain)
        };
        assert_eq!((said.verdict, said.reason), expected, "{n} voters, {wanted} wanted");
    }
    let one = with(BudgetState::Absent, cluster(1, voters(1)));
    let ClusterDecision::Act(ClusterAction::PutBudget { blocks, .. }) = decide(&one) else { panic!() };
    assert!(blocks);
    let three = with(BudgetState::Absent, cluster(3, voters(2)));
    let ClusterDecision::Act(ClusterAction::PutBudget { blocks, .. }) = decide(&three) else { panic!() };
    assert!(!blocks);
}

#[test]
fn the_condition_comes_with_the_cluster_id_and_stays_as_it_is_when_a_voter_falls_ill() {
    let mut seed = voter(0);
    seed.member.recorded.member_id = None;
    let s = unformed(vec![seed]);
    let first = report(&s);
    assert!(first.record.cluster_id.is_some() && first.disruptions.is_some());
    assert_eq!(report(&unformed(vec![newcomer(0)])).disruptions, None);
    let well = report(&cluster(3, voters(3))).disruptions;
    assert_eq!(report(&cluster(3, vec![voter(0), voter(1), dead(2)])).disruptions, well);
}

#[test]
fn a_budget_that_is_being_put_right_changes_no_word_of_a_settled_cluster() {
    let s = with(present(3), cluster(3, voters(3)));
    assert!(puts(&s).is_some());
    assert_eq!(report(&s).progressing.verdict, Verdict::Unknown, "what was said stays");
}
