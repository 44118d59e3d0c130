//! `departure`: who may leave, and in which order.

use etcd_operator_core::{
    departure::{Departure, departure},
    reason::Reason,
    time::Time,
    view::*,
};

use crate::fixtures::*;

fn may_leave(s: &ClusterSituation, n: u64) -> Departure {
    departure(s, &format!("m{n}").as_str().into())
}

fn hold(reason: Reason) -> Departure {
    Departure::Hold(reason)
}

#[test]
fn who_is_to_stay_or_not_there_is_held() {
    let s = cluster(3, vec![voter(0), voter(1), voter(2)]);
    assert_eq!(may_leave(&s, 1), hold(Reason::NotKnownYet));
    assert_eq!(may_leave(&s, 9), hold(Reason::NotKnownYet));
}

#[test]
fn before_the_cluster_is_formed_anybody_may_leave() {
    assert_eq!(may_leave(&unformed(vec![leaving(voter(0))]), 0), Departure::Go);
}

#[test]
fn without_a_list_nobody_leaves() {
    for m in [leaving(voter(2)), leaving(dead(2)), leaving(newcomer(2))] {
        let mut s = cluster(3, vec![voter(0), voter(1), m]);
        s.list = ListFact::Unknown { since: Time(0) };
        assert_eq!(may_leave(&s, 2), hold(Reason::NotKnownYet));
    }
}

#[test]
fn who_is_not_listed_and_who_is_a_learner_may_leave() {
    let mut s = cluster(3, vec![voter(0), voter(1), voter(2)]);
    s.members.push(leaving(newcomer(3)));
    assert_eq!(may_leave(&s, 3), Departure::Go);
    let s = cluster(3, vec![voter(0), voter(1), leaving(joined(2))]);
    assert_eq!(may_leave(&s, 2), Departure::Go);
}

#[test]
fn a_healthy_voter_waits_until_there_is_one_more_than_wanted() {
    let s = cluster(3, vec![voter(0), voter(1), leaving(voter(2))]);
    assert_eq!(may_leave(&s, 2), hold(Reason::ReplacementFirst));
    let s = cluster(3, vec![voter(0), voter(1), leaving(voter(2)), voter(3)]);
    assert_eq!(may_leave(&s, 2), Departure::Go);
    let s = cluster(2, vec![voter(0), voter(1), leaving(voter(2))]);
    assert_eq!(may_leave(&s, 2), Departure::Go, "a shrink");
}

// MQ-08
#[test]
fn a_dead_voter_goes_at_once_if_the_others_hold_a_quorum_and_lives_on_if_not() {
    let s = cluster(3, vec![voter(0), voter(1), leaving(dead(2))]);
    assert_eq!(may_leave(&s, 2), Departure::Go);
    let s = cluster(3, vec![voter(0), dead(1), leaving(dead(2))]);
    assert_eq!(may_leave(&s, 2), hold(Reason::AwaitingQuorum));
    let s = cluster(1, vec![leaving(dead(0))]);
    assert_eq!(may_leave(&s, 0), hold(Reason::AwaitingQuorum), "the last voter");
}

#[test]
fn a_voter_that_nobody_has_looked_at_is_not_dead() {
    let s = cluster(3, vec![voter(0), voter(1), leaving(MemberFacts { look: unknown(), ..voter(2) })]);
    assert_eq!(may_leave(&s, 2), hold(Reason::NotKnownYet));
}

// MQ-05
#[test]
fn one_leaves_at_a_time_learners_before_the_dead_before_the_living() {
    let s = cluster(1, vec![voter(0), leaving(voter(1)), leaving(dead(2)), leaving(joined(3))]);
    assert_eq!(may_leave(&s, 3), Departure::Go);
    assert_eq!(may_leave(&s, 2), hold(Reason::AnotherMemberFirst));
    let s = cluster(1, vec![voter(0), voter(4), leaving(voter(1)), leaving(dead(2))]);
    assert_eq!(may_leave(&s, 2), Departure::Go);
    assert_eq!(may_leave(&s, 1), hold(Reason::AnotherMemberFirst));
}

// MQ-14
#[test]
fn when_all_are_to_leave_each_waits_for_a_replacement() {
    let s = cluster(3, (0..3).map(|n| leaving(voter(n))).collect());
    assert_eq!(may_leave(&s, 0), hold(Reason::ReplacementFirst));
    assert_eq!(may_leave(&s, 1), hold(Reason::AnotherMemberFirst));
    assert_eq!(may_leave(&s, 2), hold(Reason::AnotherMemberFirst));
}
