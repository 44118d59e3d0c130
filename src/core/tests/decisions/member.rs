//! `member::decide`: each action and each reason to wait, in the order in which a member lives.

use std::time::Duration;

use etcd_operator_core::{
    departure::Departure,
    etcd::{Look, MemberStatus},
    ids::{ClusterId, MemberId},
    member::{MemberAction, MemberDecision, decide, instruction},
    membership::Change,
    reason::Reason,
    time::Time,
    view::*,
    volume::is_volume_doomed,
};

use crate::fixtures::*;

fn act(s: &MemberSituation) -> MemberAction {
    match decide(s) {
        MemberDecision::Act(action) => action,
        other => panic!("{other:?}"),
    }
}

fn waits(s: &MemberSituation) -> Reason {
    match decide(s) {
        MemberDecision::Wait { reason, .. } => reason,
        other => panic!("{other:?}"),
    }
}

/// A voter whose Pod is gone, on record as one that does not serve.
fn podless(n: u64) -> MemberFacts {
    let mut m = MemberFacts { pod: Presence::Absent, look: unknown(), ..voter(n) };
    m.member.recorded.ready = false;
    m
}

fn with(facts: MemberFacts, change: impl FnOnce(&mut MemberSituation)) -> MemberSituation {
    let mut s = situation(facts);
    change(&mut s);
    s
}

fn unformed(facts: MemberFacts, confirmed: bool) -> MemberSituation {
    with(facts, |s| {
        s.owner = Owner::Present { cluster_id: None, confirmed, hands_off: false };
        s.list = ListFact::Unknown { since: Time(0) };
    })
}

fn in_pod(mut facts: MemberFacts, change: impl FnOnce(&mut PodView)) -> MemberFacts {
    if let Presence::Present(pod) = &mut facts.pod {
        change(pod);
    }
    facts
}

#[test]
fn a_healthy_voter_needs_nothing() {
    assert_eq!(decide(&situation(voter(1))), MemberDecision::Settled);
}

// MQ-07, CL-06
#[test]
fn nothing_is_done_on_a_failed_read_of_the_owner() {
    for facts in [voter(1), newcomer(1), leaving(voter(1))] {
        let s = with(facts, |s| s.owner = Owner::Unknown);
        assert_eq!(waits(&s), Reason::NotKnownYet);
    }
}

// MQ-13
#[test]
fn members_of_a_cluster_that_is_gone_are_let_go_without_touching_etcd() {
    let gone = |facts| with(facts, |s| s.owner = Owner::Gone);
    let first = act(&gone(leaving(voter(1))));
    assert_eq!(first, MemberAction::DeletePod { pod_uid: "pod1".into(), why: Reason::ClusterGone });
    for pod in [Presence::Absent, Presence::Present(PodView { deleting: true, ..pod(1) })] {
        assert_eq!(act(&gone(MemberFacts { pod, ..leaving(voter(1)) })), MemberAction::Release);
    }
    assert_eq!(waits(&gone(voter(1))), Reason::ClusterGone);
}

#[test]
fn hands_off_means_that_only_the_record_is_kept() {
    let off = |facts| {
        with(facts, |s| {
            s.owner = Owner::Present { cluster_id: Some(CLUSTER), confirmed: false, hands_off: true };
        })
    };
    assert!(matches!(act(&off(dead(1))), MemberAction::Record(_)));
    assert!(matches!(decide(&off(newcomer(1))), MemberDecision::Wait { .. }));
    assert!(matches!(decide(&off(leaving(voter(1)))), MemberDecision::Wait { .. }));
}

#[test]
fn a_newcomer_gets_its_volume_the_volume_is_recorded_and_only_then_it_is_added() {
    let mut m = newcomer(3);
    assert_eq!(act(&situation(m.clone())), MemberAction::CreatePvc);
    m.pvc = Presence::Present(pvc(3));
    let MemberAction::Record(record) = act(&situation(m.clone())) else { panic!() };
    assert_eq!(record.pvc_uid, Some("pvc3".into()));
    m.member.recorded = record;
    assert_eq!(act(&situation(m.clone())), MemberAction::Ask(Change::Add { peer_url: url(3) }));
    // MQ-02: added, without a name.
    let listed = list(vec![listed(0), nameless(3)]);
    let s = with(m.clone(), |s| s.list = ListFact::Known { at: NOW, list: listed.clone() });
    let MemberAction::RecordJoin { initial_cluster } = act(&s) else { panic!() };
    assert_eq!(initial_cluster, format!("{},{}", alone(0), alone(3)));
    m.member.initial_cluster = initial_cluster.clone();
    let s = with(m, |s| s.list = ListFact::Known { at: NOW, list: listed });
    let MemberAction::CreatePod { instruction, pvc_uid } = act(&s) else { panic!() };
    assert_eq!(instruction, JoinInstruction::Existing { initial_cluster });
    assert_eq!(pvc_uid, Some("pvc3".into()));
}

// MQ-04
#[test]
fn a_joiners_list_follows_the_membership_until_its_first_answer() {
    let mut m = newcomer(3);
    m.pvc = Presence::Present(pvc(3));
    m.member.recorded.pvc_uid = Some("pvc3".into());
    m.member.initial_cluster = format!("{},{},{}", alone(0), alone(1), alone(3));
    m.pod = Presence::Present(PodView { voter_label: false, ..pod(3) });
    let moved = ListFact::Known { at: NOW, list: list(vec![listed(0), nameless(3)]) };
    let now = format!("{},{}", alone(0), alone(3));
    let s = with(m.clone(), |s| s.list = moved.clone());
    assert_eq!(act(&s), MemberAction::RecordJoin { initial_cluster: now.clone() });
    m.member.initial_cluster = now.clone();
    let s = with(m, |s| s.list = moved);
    let MemberAction::PatchPod { instruction, voter_label: false, .. } = act(&s) else { panic!() };
    assert_eq!(instruction.initial_cluster(), now);
}

#[test]
fn a_joiner_that_etcd_lists_no_more_waits() {
    let mut m = newcomer(3);
    m.pvc = Presence::Present(pvc(3));
    m.member.recorded.pvc_uid = Some("pvc3".into());
    m.member.initial_cluster = alone(3);
    assert_eq!(waits(&situation(m)), Reason::RemovedFromEtcd);
}

/// `instruction` for a seed or a joiner, answered or not, formed or not.
#[test]
fn new_is_only_for_the_seed_and_only_until_the_cluster_is_recorded() {
    let told = |n, answered: bool, initial: &str, formed| {
        let mut m = voter(n).member;
        m.recorded.member_id = answered.then_some(id(n));
        m.initial_cluster = initial.into();
        instruction(&m, formed)
    };
    let new = |n| Some(JoinInstruction::New { initial_cluster: alone(n) });
    let existing = |list: &str| Some(JoinInstruction::Existing { initial_cluster: list.into() });
    assert_eq!(told(0, false, "", false), new(0));
    assert_eq!(told(0, false, "", true), existing(&alone(0)));
    assert_eq!(told(0, true, "", false), existing(&alone(0)));
    assert_eq!(told(0, true, "", true), existing(&alone(0)));
    assert_eq!(told(1, false, "", true), None);
    assert_eq!(told(1, false, "list", true), existing("list"));
    assert_eq!(told(1, false, "list", false), existing("list"));
    assert_eq!(told(1, true, "list", true), existing(&alone(1)));
}

// LS-06, LS-08
#[test]
fn a_member_whose_volume_is_lost_or_another_is_never_started() {
    let lost = |pvc| situation(MemberFacts { pvc, ..podless(1) });
    assert_eq!(waits(&lost(Presence::Absent)), Reason::VolumeMissing);
    let other = PvcView { uid: "another".into(), ..pvc(1) };
    assert_eq!(waits(&lost(Presence::Present(other))), Reason::VolumeReplaced);
    let going = PvcView { deleting: true, ..pvc(1) };
    assert_eq!(waits(&lost(Presence::Present(going))), Reason::VolumeMissing);
    assert_eq!(waits(&lost(Presence::Unknown)), Reason::NotKnownYet);
}

#[test]
fn a_member_that_once_answered_never_gets_a_new_volume() {
    let mut m = MemberFacts { pvc: Presence::Absent, ..podless(1) };
    m.member.recorded.pvc_uid = None;
    assert_eq!(waits(&situation(m)), Reason::VolumeMissing);
}

// MQ-13
#[test]
fn a_volume_or_a_pod_of_somebody_else_is_left_alone() {
    let mut m = newcomer(1);
    m.pvc = Presence::Present(PvcView { ours: false, ..pvc(1) });
    assert_eq!(waits(&situation(m)), Reason::ForeignObject);
    assert_eq!(waits(&situation(in_pod(voter(1), |p| p.ours = false))), Reason::ForeignObject);
}

#[test]
fn a_pod_that_no_node_has_taken_does_not_wait_for_a_volume_that_is_not_there() {
    let pending = |pvc, node: Option<String>| {
        let m = in_pod(voter(1), |p| {
            p.ip = None;
            p.started = false;
            p.node = node;
        });
        situation(MemberFacts { pvc, look: unknown(), ..m })
    };
    let taken_back = act(&pending(Presence::Absent, None));
    assert_eq!(taken_back, MemberAction::DeletePod { pod_uid: "pod1".into(), why: Reason::VolumeMissing });
    let other = Presence::Present(PvcView { uid: "another".into(), ..pvc(1) });
    let taken_back = act(&pending(other, None));
    assert_eq!(taken_back, MemberAction::DeletePod { pod_uid: "pod1".into(), why: Reason::VolumeReplaced });
    assert_eq!(waits(&pending(Presence::Absent, Some("node".into()))), Reason::VolumeMissing);
}

#[test]
fn a_pod_that_is_gone_comes_back_on_the_recorded_volume() {
    let m = MemberFacts { pod: Presence::Absent, look: unknown(), ..voter(1) };
    let MemberAction::CreatePod { instruction, pvc_uid } = act(&situation(m)) else { panic!() };
    assert_eq!(instruction, JoinInstruction::Existing { initial_cluster: alone(1) });
    assert_eq!(pvc_uid, Some("pvc1".into()));
}

// LS-10
#[test]
fn there_is_no_second_pod_while_the_first_is_on_its_way_out() {
    assert_eq!(waits(&situation(in_pod(voter(1), |p| p.deleting = true))), Reason::PodTerminating);
    assert_eq!(waits(&situation(MemberFacts { pod: Presence::Unknown, ..voter(1) })), Reason::NotKnownYet);
}

#[test]
fn a_pod_that_has_ended_for_good_makes_room() {
    let s = situation(in_pod(voter(1), |p| p.ended = true));
    assert_eq!(act(&s), MemberAction::DeletePod { pod_uid: "pod1".into(), why: Reason::PodEnded });
}

#[test]
fn a_dormant_member_gets_no_pod() {
    let mut m = podless(1);
    m.member.dormant = true;
    assert!(matches!(decide(&situation(m)), MemberDecision::Wait { .. }));
}

// LS-05, AP-08
#[test]
fn a_pod_in_trouble_is_never_deleted_for_it() {
    let troubles = [
        PodTrouble::Unschedulable("no node".into()),
        PodTrouble::ImagePull("no image".into()),
        PodTrouble::CannotStart("no mount".into()),
        PodTrouble::CrashLooping("exit 1".into()),
        PodTrouble::OutOfMemory,
    ];
    for trouble in troubles {
        let m = in_pod(dead(1), |p| {
            p.ip = None;
            p.trouble = Some(trouble.clone());
        });
        let mut s = situation(m);
        s.facts.member.recorded.ready = false;
        assert_eq!(waits(&s), trouble.reason());
    }
}

#[test]
fn what_was_stripped_from_a_pod_is_put_back() {
    type Strip = fn(&mut PodView);
    let strips: [Strip; 4] = [
        |p| p.instruction = None,
        |p| p.voter_label = false,
        |p| p.labels_right = false,
        |p| p.instruction = Some(JoinInstruction::New { initial_cluster: alone(1) }),
    ];
    for strip in strips {
        let MemberAction::PatchPod { instruction, voter_label: true, .. } =
            act(&situation(in_pod(voter(1), strip)))
        else {
            panic!()
        };
        assert_eq!(instruction, JoinInstruction::Existing { initial_cluster: alone(1) });
    }
}

// MQ-10: promoted before its ID was on record, and its Pod is gone: the other voter alone has no quorum to list it.
#[test]
fn a_joiner_that_etcd_took_gets_its_pod_back_while_nobody_can_list_it() {
    let initial_cluster = format!("{},{}", alone(0), alone(1));
    for leaves in [false, true] {
        let mut m = if leaves { leaving(voter(1)) } else { voter(1) };
        m.member.recorded.member_id = None;
        m.member.initial_cluster = initial_cluster.clone();
        let lost = MemberFacts { pod: Presence::Absent, look: unknown(), ..m };
        let s = with(lost, |s| {
            s.list = ListFact::Unknown { since: Time(0) };
            s.departure = Departure::Hold(Reason::NotKnownYet);
        });
        let MemberAction::CreatePod { instruction, .. } = act(&s) else { panic!() };
        assert_eq!(instruction, JoinInstruction::Existing { initial_cluster: initial_cluster.clone() });
    }
}

// LS-03
#[test]
fn a_pod_whose_forerunners_never_ran_etcd_waits_for_its_moment_and_is_made_then() {
    let lost = |until| {
        let thrown_out = ThrownOut { pods: 4, until };
        situation(MemberFacts { thrown_out, ..podless(1) })
    };
    let early = decide(&lost(NOW + Duration::from_secs(8)));
    let eight = Duration::from_secs(8);
    assert_eq!(early, MemberDecision::Wait { reason: Reason::PodEnded, again: eight });
    assert!(matches!(act(&lost(NOW)), MemberAction::CreatePod { .. }));
}

#[test]
fn a_volume_is_doomed_that_is_gone_or_going_or_another_one_and_nobody_is_for_what_is_not_known() {
    let recorded = voter(1).member.recorded;
    let is = |pvc: &Presence<PvcView>| is_volume_doomed(pvc, &recorded);
    assert!(!is(&Presence::Present(pvc(1))));
    assert!(!is(&Presence::Unknown));
    assert!(is(&Presence::Absent));
    for lost in [
        PvcView { deleting: true, ..pvc(1) },
        PvcView { ours: false, ..pvc(1) },
        PvcView { uid: "another".into(), ..pvc(1) },
    ] {
        assert!(is(&Presence::Present(lost.clone())), "{lost:?}");
    }
    assert!(!is_volume_doomed(&Presence::Absent, &newcomer(1).member.recorded), "it has no volume yet");
}

#[test]
fn labels_stripped_from_a_volume_are_put_back_and_a_foreign_volume_is_left_alone() {
    let strip = |ours| {
        let mut m = voter(1);
        m.pvc = Presence::Present(PvcView { labels_right: false, ours, ..pvc(1) });
        situation(m)
    };
    assert_eq!(act(&strip(true)), MemberAction::PatchPvc { pvc_uid: "pvc1".into() });
    assert_eq!(waits(&strip(false)), Reason::ForeignObject);
}

// LP-07
#[test]
fn a_learner_is_kept_from_clients_and_asks_to_be_promoted() {
    let labelled = in_pod(joined(2), |p| p.voter_label = true);
    assert!(matches!(act(&situation(labelled)), MemberAction::PatchPod { voter_label: false, .. }));
    assert_eq!(act(&situation(joined(2))), MemberAction::Ask(Change::Promote { peer_url: url(2) }));
}

#[test]
fn the_label_stays_as_it_is_while_a_voter_does_not_answer() {
    let mut m = dead(1);
    m.member.recorded.ready = false;
    assert_eq!(waits(&situation(m)), Reason::MembersUnhealthy);
}

#[test]
fn clients_are_led_to_the_seed_only_when_the_cluster_is_recorded() {
    let mut seed = in_pod(voter(0), |p| {
        p.voter_label = false;
        p.instruction = Some(JoinInstruction::New { initial_cluster: alone(0) });
    });
    seed.member.recorded.member_id = None;
    seed.member.recorded.is_voter = false;
    seed.member.recorded.ready = false;
    assert_eq!(waits(&unformed(seed.clone(), false)), Reason::WaitingForSeed);
    let labelled = in_pod(seed, |p| p.voter_label = true);
    let action = act(&unformed(labelled, false));
    assert!(matches!(action, MemberAction::PatchPod { voter_label: false, .. }), "{action:?}");
}

// MT-02: its volume is gone, or the API server refuses its Pod, so none comes that could be looked at.
#[test]
fn a_member_without_a_pod_is_not_called_ready() {
    let bare = |m| MemberFacts { pod: Presence::Absent, pvc: Presence::Absent, look: unknown(), ..m };
    let leaves = Departure::Go;
    for s in [situation(bare(voter(1))), with(bare(leaving(voter(1))), |s| s.departure = leaves)] {
        let MemberAction::Record(record) = act(&s) else { panic!("{:?}", decide(&s)) };
        assert!(!record.ready);
        let mut told = s;
        told.facts.member.recorded = record;
        assert!(!matches!(decide(&told), MemberDecision::Act(MemberAction::Record(_))), "it is told once");
    }
    let unseen = MemberFacts { pod: Presence::Unknown, look: unknown(), ..voter(1) };
    assert_eq!(waits(&situation(unseen)), Reason::NotKnownYet, "of whom nothing is known nothing is told");
}

// MT-02
#[test]
fn a_member_is_ready_only_on_its_own_word_and_only_as_long_as_it_serves() {
    let mut m = voter(1);
    m.member.recorded.ready = false;
    let MemberAction::Record(record) = act(&situation(m)) else { panic!() };
    assert!(record.ready);
    for look in [silent(), answers(1)] {
        let MemberAction::Record(record) = act(&situation(MemberFacts { look, ..voter(1) })) else {
            panic!()
        };
        assert!(!record.ready);
    }
}

#[test]
fn an_answer_of_another_cluster_or_member_is_no_news_about_this_one() {
    let strangers = [
        MemberStatus { cluster_id: ClusterId(8), ..status(1) },
        MemberStatus { member_id: MemberId(9), ..status(1) },
    ];
    for status in strangers {
        let look = Look::Answered { at: NOW, status, linearizable: true };
        let mut m = newcomer(1);
        m.look = look.clone();
        m.pod = Presence::Present(pod(1));
        let unchanged = !matches!(decide(&situation(m)), MemberDecision::Act(MemberAction::Record(r))
            if r.member_id.is_some());
        assert!(unchanged, "{look:?}");
    }
}

#[test]
fn a_new_pod_uid_alone_is_not_worth_a_write() {
    let m = in_pod(voter(1), |p| p.uid = "pod9".into());
    let mut s = situation(m);
    s.facts.look = unknown();
    s.facts.member.recorded.ready = false;
    assert!(!matches!(decide(&s), MemberDecision::Act(MemberAction::Record(_))));
}

#[test]
fn a_voter_that_answers_without_a_quorum_waits_for_one() {
    let mut m = MemberFacts { look: answers(1), ..voter(1) };
    m.member.recorded.ready = false;
    assert_eq!(waits(&situation(m)), Reason::AwaitingQuorum);
}

// LS-09, MQ-07
#[test]
fn on_the_way_out_etcd_comes_first_then_the_pod_then_the_volume_then_the_finalizer() {
    let out = |removed, pod: Presence<PodView>, pvc: Presence<PvcView>| {
        with(MemberFacts { pod, pvc, ..leaving(podless(2)) }, |s| s.removed = removed)
    };
    let (there, kept) =
        (Presence::Present(PodView { voter_label: false, ..pod(2) }), Presence::Present(pvc(2)));
    let ask = MemberAction::Ask(Change::Remove { peer_url: url(2), id: Some(id(2)) });
    assert_eq!(act(&out(false, there.clone(), kept.clone())), ask);
    assert_eq!(act(&out(false, Presence::Absent, Presence::Absent)), ask, "even with nothing left");
    let delete_pod = MemberAction::DeletePod { pod_uid: "pod2".into(), why: Reason::MemberLeaving };
    assert_eq!(act(&out(true, there, kept.clone())), delete_pod);
    let delete_pvc = MemberAction::DeletePvc { pvc_uid: "pvc2".into() };
    assert_eq!(act(&out(true, Presence::Absent, kept.clone())), delete_pvc);
    assert_eq!(act(&out(true, Presence::Absent, Presence::Absent)), MemberAction::Release);
    let terminating = Presence::Present(PodView { deleting: true, ..pod(2) });
    assert_eq!(waits(&out(true, terminating, kept.clone())), Reason::PodTerminating);
    assert_eq!(waits(&out(true, Presence::Unknown, kept)), Reason::NotKnownYet);
}

// CL-08
#[test]
fn a_finalizer_that_is_off_is_not_taken_off_again() {
    let mut m = leaving(voter(2));
    m.member.finalizer = false;
    assert_eq!(waits(&situation(m)), Reason::MemberLeaving);
}

// MQ-14
#[test]
fn a_member_whose_departure_is_held_lives_on() {
    let s = with(MemberFacts { pod: Presence::Absent, ..leaving(voter(2)) }, |s| {
        s.departure = Departure::Hold(Reason::ReplacementFirst);
    });
    assert!(matches!(act(&s), MemberAction::CreatePod { .. }));
}

#[test]
fn a_learner_that_is_to_leave_does_not_ask_to_be_promoted() {
    let s = with(leaving(joined(2)), |s| s.departure = Departure::Hold(Reason::AnotherMemberFirst));
    assert!(matches!(decide(&s), MemberDecision::Wait { .. }));
}

#[test]
fn before_the_cluster_is_formed_nothing_is_thrown_away_on_the_word_of_a_store() {
    assert_eq!(act(&unformed(leaving(voter(0)), false)), MemberAction::ConfirmOwner);
    let confirmed = act(&unformed(leaving(voter(0)), true));
    assert!(matches!(confirmed, MemberAction::DeletePod { .. }));
}
