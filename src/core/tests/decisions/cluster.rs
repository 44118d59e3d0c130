//! `cluster::decide`: the order of what a cluster needs, and what is never done.

use etcd_operator_core::{
    cluster::{ClusterAction, ClusterDecision, decide},
    ids::ClusterId,
    reason::Reason,
    time::Time,
    view::*,
};

use crate::fixtures::*;

fn creates(s: &ClusterSituation) -> bool {
    decide(s) == ClusterDecision::Act(ClusterAction::CreateMember { seed: false })
}

fn victim(s: &ClusterSituation) -> (String, Reason) {
    match decide(s) {
        ClusterDecision::Act(ClusterAction::DeleteMember { name, why, .. }) => (name.0, why),
        other => panic!("{other:?}"),
    }
}

fn waits(s: &ClusterSituation) -> Reason {
    match decide(s) {
        ClusterDecision::Wait(reason) => reason,
        other => panic!("{other:?}"),
    }
}

fn hands_off(s: &ClusterSituation) -> Reason {
    match decide(s) {
        ClusterDecision::HandsOff { reason, .. } => reason,
        other => panic!("{other:?}"),
    }
}

fn voters(n: u64) -> Vec<MemberFacts> {
    (0..n).map(voter).collect()
}

#[test]
fn a_cluster_as_the_spec_says_needs_nothing() {
    for n in [1, 3, 5] {
        assert_eq!(decide(&cluster(n as usize, voters(n))), ClusterDecision::Settled);
    }
}

#[test]
fn services_come_first_and_are_put_right() {
    let mut s = unformed(vec![]);
    for kind in [ServiceKind::Headless, ServiceKind::Client] {
        s.services.insert(kind, ServiceState::Absent);
        assert_eq!(decide(&s), ClusterDecision::Act(ClusterAction::CreateService(kind)));
        s.services.insert(kind, ServiceState::Drifted);
        assert_eq!(decide(&s), ClusterDecision::Act(ClusterAction::RepairService(kind)));
        s.services.insert(kind, ServiceState::Unknown);
        assert_eq!(waits(&s), Reason::NotKnownYet);
        s.services.insert(kind, ServiceState::Right);
    }
}

#[test]
fn a_foreign_headless_service_stops_the_first_member_and_a_foreign_client_service_nobody() {
    let mut s = unformed(vec![]);
    s.services.insert(ServiceKind::Headless, ServiceState::Foreign);
    assert_eq!(waits(&s), Reason::ForeignObject);
    let mut s = cluster(3, voters(3));
    s.services.insert(ServiceKind::Client, ServiceState::Foreign);
    assert_eq!(decide(&s), ClusterDecision::Settled);
}

#[test]
fn there_is_one_seed_and_nobody_else_until_it_has_formed_the_cluster() {
    assert_eq!(decide(&unformed(vec![])), ClusterDecision::Act(ClusterAction::CreateMember { seed: true }));
    assert_eq!(waits(&unformed(vec![newcomer(0)])), Reason::WaitingForSeed);
    assert_eq!(waits(&unformed(vec![leaving(newcomer(0))])), Reason::WaitingForSeed);
}

// AP-04, AP-06
#[test]
fn of_two_seeds_the_one_that_has_not_got_as_far_goes_and_meanwhile_neither_does_anything() {
    let seed = |n| {
        let mut m = newcomer(n);
        m.member.seed = true;
        m
    };
    let mut started = seed(2);
    started.member.recorded.pvc_uid = Some("pvc2".into());
    let s = unformed(vec![seed(1), started]);
    assert_eq!(victim(&s), ("m1".into(), Reason::AnotherMemberFirst));
    assert!(etcd_operator_core::cluster::hands_off(&s).is_some());
    let s = unformed(vec![seed(1), seed(2)]);
    assert_eq!(victim(&s).0, "m2", "the younger one");
    let s = unformed(vec![seed(1), leaving(seed(2))]);
    assert_eq!(waits(&s), Reason::WaitingForSeed);
}

// AP-06, LS-04
#[test]
fn a_seed_that_etcd_does_not_list_in_a_formed_cluster_is_dropped() {
    let mut late = newcomer(9);
    late.member.seed = true;
    let mut s = cluster(3, voters(3));
    s.members.push(late);
    assert_eq!(victim(&s), ("m9".into(), Reason::RemovedFromEtcd));
}

// MQ-10, MQ-14
#[test]
fn a_formed_cluster_without_members_is_never_formed_again() {
    assert_eq!(waits(&cluster(3, vec![])), Reason::AllMembersLost);
}

// MQ-14
#[test]
fn when_every_member_is_to_leave_replacements_come_one_at_a_time() {
    let all: Vec<_> = voters(3).into_iter().map(leaving).collect();
    assert!(creates(&cluster(3, all.clone())));
    let mut s = cluster(3, all);
    s.members.push(newcomer(3));
    assert_eq!(waits(&s), Reason::MemberJoining);
}

#[test]
fn a_cluster_that_is_being_deleted_is_left_alone() {
    let mut s = cluster(3, voters(1));
    s.cluster.deleting = true;
    assert_eq!(waits(&s), Reason::ClusterGone);
}

#[test]
fn paused_or_refused_means_hands_off_before_anything_else() {
    let mut s = unformed(vec![]);
    s.services.insert(ServiceKind::Headless, ServiceState::Absent);
    s.cluster.refused = vec![RefusedField { field: "spec.tls".into(), why: "not yet".into(), not_yet: true }];
    assert_eq!(hands_off(&s), Reason::FieldNotSupportedYet);
    s.cluster.refused.push(RefusedField { field: "spec.x".into(), why: "never".into(), not_yet: false });
    assert_eq!(hands_off(&s), Reason::InvalidSpec);
    s.cluster.paused = true;
    assert!(matches!(decide(&s), ClusterDecision::HandsOff { .. }));
}

#[test]
fn another_cluster_id_or_member_id_stops_everything() {
    let mut s = cluster(3, voters(3));
    let mut foreign = list(vec![listed(0), listed(1), listed(2)]);
    foreign.cluster_id = ClusterId(8);
    s.list = ListFact::Known { at: NOW, list: foreign };
    assert_eq!(hands_off(&s), Reason::ForeignClusterID);
    let mut s = cluster(3, voters(3));
    s.members[1].look = serves(2);
    assert_eq!(hands_off(&s), Reason::MemberIdMismatch);
}

// LP-05
#[test]
fn a_member_that_nobody_accounts_for_is_confirmed_live_and_then_left_to_a_person() {
    let mut s = cluster(3, voters(3));
    let mut members: Vec<_> = (0..3).map(listed).collect();
    members.push(learner(9));
    s.list = ListFact::Known { at: NOW, list: list(members) };
    assert_eq!(decide(&s), ClusterDecision::Act(ClusterAction::ConfirmMembers));
    s.members_confirmed = Some(Time(NOW.0 - 1));
    assert_eq!(decide(&s), ClusterDecision::Act(ClusterAction::ConfirmMembers), "read before the list");
    s.members_confirmed = Some(NOW);
    assert_eq!(hands_off(&s), Reason::UnexplainedMember);
}

#[test]
fn growth_is_one_member_at_a_time_and_only_at_full_strength() {
    assert!(creates(&cluster(3, voters(1))));
    assert!(creates(&cluster(5, voters(3))));
    let mut joining = cluster(3, voters(1));
    joining.members.push(newcomer(1));
    assert_eq!(waits(&joining), Reason::MemberJoining);
    // LP-03: the counts match, and the last one is a learner.
    assert_eq!(waits(&cluster(3, vec![voter(0), voter(1), joined(2)])), Reason::MemberJoining);
    assert_eq!(waits(&cluster(3, vec![voter(0), dead(1)])), Reason::MembersUnhealthy);
    let mut blind = cluster(3, voters(1));
    blind.list = ListFact::Unknown { since: Time(0) };
    assert_eq!(waits(&blind), Reason::NotKnownYet);
}

// MQ-08
#[test]
fn a_dead_voter_is_gone_before_its_replacement_comes() {
    let s = cluster(3, vec![voter(0), voter(1), leaving(dead(2))]);
    assert_eq!(waits(&s), Reason::MembersUnhealthy);
    assert!(creates(&cluster(3, voters(2))));
}

#[test]
fn a_healthy_voter_is_replaced_before_it_goes() {
    assert!(creates(&cluster(3, vec![voter(0), voter(1), leaving(voter(2))])));
    let s = cluster(3, vec![voter(0), voter(1), leaving(voter(2)), voter(3)]);
    assert_eq!(waits(&s), Reason::MemberLeaving);
    let s = cluster(3, vec![voter(0), leaving(voter(1)), leaving(voter(2)), voter(3)]);
    assert_eq!(waits(&s), Reason::MemberLeaving, "one voter more than wanted, not two");
}

// MQ-09
#[test]
fn who_never_joined_goes_first_then_who_is_dead_then_who_does_not_lead_the_youngest_first() {
    let mut s = cluster(3, voters(3));
    s.members.push(newcomer(3));
    assert_eq!(victim(&s), ("m3".into(), Reason::ScalingDown));
    let s = cluster(3, vec![dead(0), voter(1), voter(2), voter(3)]);
    assert_eq!(victim(&s).0, "m0");
    let s = cluster(1, vec![voter(0), voter(1), voter(2)]);
    assert_eq!(victim(&s).0, "m2", "m0 leads");
    let s = cluster(1, vec![voter(0), voter(1)]);
    assert_eq!(victim(&s).0, "m1");
}

// MQ-09
#[test]
fn no_healthy_voter_goes_while_another_one_is_down_or_unknown() {
    let s = cluster(3, vec![voter(0), voter(1), voter(2), voter(3), leaving(dead(4))]);
    assert_eq!(waits(&s), Reason::MemberLeaving);
    let unseen = MemberFacts { look: unknown(), ..voter(2) };
    let s = cluster(2, vec![voter(0), unseen, voter(3)]);
    assert_eq!(waits(&s), Reason::MembersUnhealthy);
}

// MQ-05
#[test]
fn only_one_member_is_on_its_way_out_at_a_time() {
    let s = cluster(1, vec![voter(0), voter(1), leaving(voter(2))]);
    assert_eq!(waits(&s), Reason::MemberLeaving);
}

// MQ-10, LS-05
#[test]
fn without_a_quorum_nobody_is_deleted() {
    let mut stalled = joined(3);
    stalled.stalled = true;
    let s = cluster(3, vec![voter(0), dead(1), dead(2), stalled]);
    let decision = decide(&s);
    assert!(!matches!(decision, ClusterDecision::Act(ClusterAction::DeleteMember { why, .. })
        if why == Reason::LearnerStalled));
    assert_eq!(waits(&cluster(3, vec![dead(0), dead(1), dead(2)])), Reason::MembersUnhealthy);
}

// LP-04
#[test]
fn a_learner_that_stands_still_makes_room_even_if_somebody_waits_for_it() {
    let mut stalled = joined(2);
    stalled.stalled = true;
    let s = cluster(3, vec![voter(0), voter(1), stalled.clone()]);
    assert_eq!(victim(&s), ("m2".into(), Reason::LearnerStalled));
    let s = cluster(1, vec![leaving(voter(0)), stalled]);
    assert_eq!(victim(&s), ("m2".into(), Reason::LearnerStalled));
}

#[test]
fn a_member_that_etcd_removed_makes_room() {
    let mut s = cluster(3, voters(3));
    s.list = ListFact::Known { at: NOW, list: list(vec![listed(0), listed(1)]) };
    assert_eq!(victim(&s), ("m2".into(), Reason::RemovedFromEtcd));
}

#[test]
fn before_the_target_is_recorded_nothing_is_created() {
    let mut s = unformed(vec![]);
    s.cluster.recorded.target = None;
    assert_eq!(waits(&s), Reason::InProgress);
}

// AP-08: a member is deleted and the size lowered while nobody looks; both are seen in the same moment.
#[test]
fn nobody_is_made_for_a_number_that_the_spec_no_longer_asks_for() {
    let mut s = cluster(3, vec![voter(0), voter(1), leaving(voter(2))]);
    s.cluster.replicas = 1;
    assert_eq!(decide(&s), ClusterDecision::Wait(Reason::InProgress));
    s.cluster.replicas = 3;
    assert_eq!(decide(&s), ClusterDecision::Act(ClusterAction::CreateMember { seed: false }));
}
