//! Recovery from lost quorum: what is asked for, what is refused, and the order in which it goes on (MQ-10).

use std::time::Duration;

use etcd_operator_core::{
    cluster::{ClusterAction, ClusterDecision, decide},
    etcd::{Look, MemberStatus},
    healing::is_replacement,
    member::{MemberAction, MemberDecision, decide as decide_member},
    reason::Reason,
    recovery::{ALONE, FENCING, LONGEST_REQUEST, Phase, Recovery, Role, role, step},
    report::{Verdict, report},
    time::Time,
    version::EtcdVersion,
    view::*,
};

use crate::fixtures::*;

/// It answers without a quorum, and has got so far.
fn has(n: u64, term: u64, index: u64) -> MemberFacts {
    let status = MemberStatus { leader: None, term, raft_index: index, ..status(n) };
    MemberFacts {
        look: Look::Answered { at: NOW, status, linearizable: false },
        pod: Presence::Present(PodView { ready: false, ..pod(n) }),
        ..voter(n)
    }
}

/// Its volume is gone, and no Pod is made.
fn lost(n: u64) -> MemberFacts {
    MemberFacts { look: unknown(), pod: Presence::Absent, pvc: Presence::Absent, ..voter(n) }
}

/// Two of three are lost for good, and a person names the one that is left.
fn asked(request: &str) -> ClusterSituation {
    let mut s = cluster(3, vec![has(0, 2, 5_000), lost(1), lost(2)]);
    s.list = ListFact::Unknown { since: NOW };
    s.cluster.recover_from = Some(request.into());
    s
}

fn under_way(phase: Phase) -> ClusterSituation {
    let mut s = asked("m0");
    s.cluster.recorded.recovery = Some(Recovery {
        request: "m0".into(),
        survivor: "m0".into(),
        phase,
        reached: Some((2, 5_000)),
        others: vec!["m1".into(), "m2".into()],
        begun: Time(NOW.0 - 60_000),
        ended: None,
    });
    s
}

fn recorded(s: &ClusterSituation) -> Option<Phase> {
    report(s).record.recovery.map(|r| r.phase)
}

fn refusal(s: &ClusterSituation) -> String {
    let said = report(s);
    assert_eq!(said.record.recovery, s.cluster.recorded.recovery, "it is not taken up");
    let warning = said.spec_warnings.expect("a refusal is told");
    assert_eq!((warning.verdict, warning.reason), (Verdict::True, Reason::RecoveryRefused));
    let refused = said.record.refused_recovery.clone().expect("a refusal is recorded");
    assert_eq!(Some(&refused.request), s.cluster.recover_from.as_ref());
    assert_eq!(warning.message, refused.why);
    refused.why
}

fn fenced(n: u64) -> MemberFacts {
    leaving(lost(n))
}

fn recovery_pod(n: u64) -> PodView {
    PodView { uid: "flag".into(), rewrites: true, voter_label: false, ready: false, ..pod(n) }
}

#[test]
fn a_named_voter_that_answers_is_taken_up_and_told() {
    let s = asked("m0");
    let said = report(&s);
    let r = said.record.recovery.clone().expect("it is taken up");
    assert_eq!((r.phase, r.reached, r.survivor.as_str()), (Phase::Fencing, Some((2, 5_000)), "m0"));
    assert_eq!(r.others, vec!["m1".into(), "m2".into()]);
    assert_eq!(said.record.refused_recovery, None);
    assert!(step(&s, &said.record).is_some_and(|(reason, _)| reason == Reason::Recovering));
    let mut later = s;
    later.cluster.recorded = said.record;
    assert_eq!(step(&later, &report(&later).record), None, "told once");
}

#[test]
fn a_request_while_a_quorum_stands_is_refused_and_does_not_act_when_it_is_lost_later() {
    let mut s = cluster(3, vec![voter(0), voter(1), dead(2)]);
    s.cluster.recover_from = Some("m0".into());
    assert!(refusal(&s).contains("hold a quorum"));
    let record = report(&s).record;
    let mut later = asked("m0");
    later.cluster.recorded = record;
    assert!(refusal(&later).contains("hold a quorum"));
    later.cluster.recover_from = Some("m0 now".into());
    assert_eq!(recorded(&later), Some(Phase::Fencing), "in other words it is another request");
}

#[test]
fn a_refusal_is_forgotten_with_its_request() {
    let mut s = asked("m7");
    assert!(refusal(&s).contains("no member m7; the voters are: m0 m1 m2"));
    s.cluster.recorded = report(&s).record;
    s.cluster.recover_from = None;
    assert_eq!(report(&s).record.refused_recovery, None);
    assert_eq!(report(&s).spec_warnings, None);
}

#[test]
fn a_member_behind_another_that_answers_is_refused_unless_it_is_forced() {
    for (mine, theirs) in [((2, 5_000), (2, 5_001)), ((2, 5_000), (3, 10))] {
        let mut s = asked("m0");
        s.members[0] = has(0, mine.0, mine.1);
        s.members[1] = has(1, theirs.0, theirs.1);
        let why = refusal(&s);
        assert!(why.contains(&format!("term {}, index {}", theirs.0, theirs.1)), "{why}");
        assert!(why.contains("name m1"), "{why}");
        s.cluster.recover_from = Some("m0 force".into());
        assert_eq!(recorded(&s), Some(Phase::Fencing));
        s.cluster.recover_from = Some("m1".into());
        assert_eq!(recorded(&s), Some(Phase::Fencing));
    }
    let mut even = asked("m0");
    even.members[1] = has(1, 2, 5_000);
    assert_eq!(recorded(&even), Some(Phase::Fencing), "as much is enough");
}

#[test]
fn a_member_that_does_not_answer_is_refused_unless_it_is_forced() {
    let mut s = asked("m0");
    s.members[0] = dead(0);
    s.members[0].pod = Presence::Present(PodView { ready: false, ..pod(0) });
    assert!(refusal(&s).contains("m0 does not answer"));
    s.cluster.recover_from = Some("m0 force".into());
    assert_eq!(recorded(&s), Some(Phase::Fencing));
}

// The operator may be cut off from members that serve.
#[test]
fn a_pod_that_its_node_sees_serve_is_a_reason_to_refuse() {
    let mut s = asked("m0");
    s.members[1] = dead(1);
    assert!(refusal(&s).contains("Pod m1 is Ready"));
}

#[test]
fn a_version_whose_flag_keeps_learners_is_refused_even_if_it_is_forced() {
    for (version, safe) in [
        ((3, 5, 24), false),
        ((3, 5, 25), true),
        ((3, 6, 5), false),
        ((3, 6, 6), true),
        ((3, 7, 0), true),
        ((3, 4, 40), false),
    ] {
        let mut s = asked("m0 force");
        s.members[0].member.blueprint.version = Some(EtcdVersion::new(version.0, version.1, version.2));
        assert_eq!(recorded(&s).is_some(), safe, "{version:?}");
        if !safe {
            assert!(refusal(&s).contains("3.5.25 and 3.6.6"));
        }
    }
    let mut s = asked("m0 force");
    s.members[0].member.blueprint.version = None;
    refusal(&s);
}

#[test]
fn nobody_goes_on_with_data_that_is_lost_or_was_never_whole() {
    type Change = fn(&mut MemberFacts);
    let change: [(&str, Change); 6] = [
        ("is lost", |m| m.pvc = Presence::Absent),
        ("is lost", |m| m.pvc = Presence::Present(PvcView { uid: "another".into(), ..pvc(0) })),
        ("is lost", |m| {
            let words = "can't read the WAL: crc mismatch".into();
            let trouble = Some(PodTrouble::CrashLooping(words));
            m.look = silent();
            m.pod = Presence::Present(PodView { trouble, ready: false, ..pod(0) });
        }),
        ("memory", |m| m.member.memory = true),
        ("is paused", |m| m.member.dormant = true),
        ("is no voter", |m| {
            m.member.recorded.is_voter = false;
            m.look = learns(0);
        }),
    ];
    for (words, change) in change {
        let mut s = asked("m0 force");
        change(&mut s.members[0]);
        let why = refusal(&s);
        assert!(why.contains(words), "{why}");
    }
}

#[test]
fn the_only_member_and_a_cluster_that_never_formed_have_nothing_to_recover_from() {
    let mut s = cluster(1, vec![dead(0)]);
    s.cluster.recover_from = Some("m0 force".into());
    assert!(refusal(&s).contains("only member"));
    let mut s = unformed(vec![voter(0)]);
    s.cluster.recover_from = Some("m0".into());
    assert!(refusal(&s).contains("has not formed"));
}

#[test]
fn what_is_no_request_is_refused() {
    for text in ["", "  ", "force", &"m0 ".repeat(LONGEST_REQUEST)] {
        let why = refusal(&asked(text));
        assert!(why.contains("recover-from"), "{why}");
        assert!(why.len() < 400, "{why}");
    }
}

#[test]
fn nothing_is_judged_before_every_voter_has_been_looked_at() {
    let mut s = asked("m0");
    s.members[1] = MemberFacts { look: unknown(), ..has(1, 2, 5_000) };
    let said = report(&s);
    assert_eq!((said.record.recovery, said.record.refused_recovery), (None, None));
}

#[test]
fn a_pause_by_annotation_stops_a_recovery_too() {
    let mut s = under_way(Phase::Rewriting);
    s.cluster.paused = true;
    assert!(matches!(decide(&s), ClusterDecision::HandsOff { reason: Reason::ReconcilePaused, .. }));
    assert_eq!(report(&s).record, s.cluster.recorded);
}

#[test]
fn the_others_lose_their_pods_and_keep_their_volumes() {
    let s = under_way(Phase::Fencing);
    assert_eq!(decide(&s), ClusterDecision::Wait(Reason::Recovering));
    assert_eq!((role(&s, &"m0".into()), role(&s, &"m1".into())), (None, Some(Role::Fenced)));
    let mut m =
        situation(MemberFacts { pod: Presence::Present(pod(1)), look: silent(), ..leaving(voter(1)) });
    m.recovery = Some(Role::Fenced);
    m.facts.member.recorded.ready = false;
    let delete = MemberAction::DeletePod { pod_uid: "pod1".into(), why: Reason::Recovering };
    assert_eq!(decide_member(&m), MemberDecision::Act(delete));
    for pod in [Presence::Absent, Presence::Present(PodView { deleting: true, ..pod(1) }), Presence::Unknown]
    {
        m.facts.pod = pod;
        assert!(matches!(decide_member(&m), MemberDecision::Wait { .. }), "{:?}", m.facts.pod);
    }
}

#[test]
fn it_is_taken_back_with_its_request_or_when_the_quorum_returns_but_only_before_the_flag() {
    let mut s = under_way(Phase::Fencing);
    s.members[1] = has(1, 2, 5_000);
    s.cluster.recover_from = None;
    assert_eq!(recorded(&s), Some(Phase::Cancelled));
    let mut s = under_way(Phase::Fencing);
    s.members = vec![voter(0), voter(1), lost(2)];
    assert_eq!(recorded(&s), Some(Phase::Cancelled));
    for phase in [Phase::Rewriting, Phase::Returning] {
        let mut s = under_way(phase);
        s.cluster.recover_from = None;
        assert_eq!(recorded(&s), Some(phase));
    }
    let mut s = under_way(Phase::Cancelled);
    assert_eq!(recorded(&s), Some(Phase::Cancelled), "the same words never act again");
    assert_eq!(role(&s, &"m1".into()), None);
    s.cluster.recover_from = Some("m0 again".into());
    assert_eq!(recorded(&s), Some(Phase::Fencing));
}

#[test]
fn the_request_is_used_up_once_the_pods_are_gone_and_nothing_sent_before_can_land() {
    let mut s = under_way(Phase::Fencing);
    assert_eq!(recorded(&s), Some(Phase::Rewriting));
    s.members[1] = MemberFacts { pod: Presence::Present(PodView { deleting: true, ..pod(1) }), ..dead(1) };
    assert_eq!(recorded(&s), Some(Phase::Fencing));
    let said = report(&s);
    for condition in [&said.available, &said.progressing, &said.degraded] {
        assert_eq!(condition.reason, Reason::Recovering);
        assert!(condition.message.contains("until these Pods are gone: m1."), "{}", condition.message);
    }
    s.members[1] = MemberFacts { pod: Presence::Unknown, ..dead(1) };
    assert_eq!(recorded(&s), Some(Phase::Fencing));
    let mut early = under_way(Phase::Fencing);
    early.now = Time(NOW.0 - 60_001) + FENCING;
    assert_eq!(recorded(&early), Some(Phase::Fencing));
}

#[test]
fn the_others_are_on_their_way_out_before_the_flag_is_given() {
    let mut s = under_way(Phase::Rewriting);
    let why = Reason::Recovering;
    let delete = |n: u64| ClusterAction::DeleteMember {
        name: format!("m{n}").into(),
        uid: format!("uid{n}").into(),
        why,
    };
    assert_eq!(decide(&s), ClusterDecision::Act(delete(1)));
    assert_eq!(role(&s, &"m0".into()), None);
    s.members[1] = fenced(1);
    assert_eq!(decide(&s), ClusterDecision::Act(delete(2)));
    s.members[2] = fenced(2);
    assert_eq!(decide(&s), ClusterDecision::Wait(Reason::Recovering));
    assert_eq!(role(&s, &"m0".into()), Some(Role::Rewrites));
    s.members[2].pod = Presence::Present(pod(2));
    assert_eq!(role(&s, &"m0".into()), None, "a Pod that came late goes first");
    assert!(!is_replacement(why), "no limit on replacements holds a recovery back");
}

#[test]
fn the_survivor_gives_up_its_pod_runs_once_with_the_flag_and_then_as_always() {
    let mut m = situation(has(0, 2, 5_000));
    m.facts.member.recorded.ready = false;
    m.recovery = Some(Role::Rewrites);
    let delete = |uid: &str| {
        MemberDecision::Act(MemberAction::DeletePod { pod_uid: uid.into(), why: Reason::Recovering })
    };
    assert_eq!(decide_member(&m), delete("pod0"));
    m.facts.pod = Presence::Absent;
    m.facts.look = unknown();
    let create = MemberAction::CreateRecoveryPod {
        instruction: JoinInstruction::Existing { initial_cluster: alone(0) },
        pvc_uid: "pvc0".into(),
    };
    assert_eq!(decide_member(&m), MemberDecision::Act(create));
    m.facts.pod = Presence::Present(recovery_pod(0));
    m.facts.look = silent();
    assert!(matches!(decide_member(&m), MemberDecision::Wait { reason: Reason::Recovering, .. }));
    m.recovery = None;
    assert_eq!(decide_member(&m), delete("flag"), "its work is done");
    m.facts.pod = Presence::Absent;
    m.facts.look = unknown();
    assert!(matches!(decide_member(&m), MemberDecision::Act(MemberAction::CreatePod { .. })));
}

#[test]
fn a_recovery_pod_that_ended_is_made_again_after_a_pause_and_only_on_the_recorded_volume() {
    let mut m = situation(dead(0));
    m.facts.member.recorded.ready = false;
    m.recovery = Some(Role::Rewrites);
    m.facts.pod = Presence::Present(PodView { ended: true, ..recovery_pod(0) });
    assert!(matches!(decide_member(&m), MemberDecision::Act(MemberAction::DeletePod { .. })));
    m.facts.pod = Presence::Absent;
    m.facts.look = unknown();
    m.facts.thrown_out = ThrownOut { pods: 1, until: NOW + Duration::from_secs(1) };
    assert!(matches!(decide_member(&m), MemberDecision::Wait { reason: Reason::PodEnded, .. }));
    m.facts.thrown_out = ThrownOut::default();
    m.facts.pvc = Presence::Present(PvcView { uid: "another".into(), ..pvc(0) });
    assert!(matches!(decide_member(&m), MemberDecision::Wait { reason: Reason::VolumeReplaced, .. }));
}

#[test]
fn the_flag_has_done_its_work_once_its_pod_is_ready_and_no_other_pod_is_taken_for_it() {
    let mut s = under_way(Phase::Rewriting);
    s.members[1] = fenced(1);
    s.members[2] = fenced(2);
    s.members[0].look = silent();
    s.members[0].pod = Presence::Present(PodView { ready: true, ..recovery_pod(0) });
    assert_eq!(recorded(&s), Some(Phase::Returning));
    s.members[0].pod = Presence::Present(recovery_pod(0));
    assert_eq!(recorded(&s), Some(Phase::Rewriting));
    assert_eq!(role(&s, &"m0".into()), Some(Role::Rewrites));
    s.members[0].pod = Presence::Present(PodView { ready: true, ..pod(0) });
    assert_eq!(recorded(&s), Some(Phase::Rewriting));
}

#[test]
fn it_is_over_when_etcd_lists_the_survivor_alone_and_the_cluster_then_grows() {
    let mut s = under_way(Phase::Returning);
    s.members = vec![voter(0), fenced(1), fenced(2)];
    assert_eq!(recorded(&s), Some(Phase::Returning), "nobody has listed yet");
    assert_eq!(role(&s, &"m1".into()), Some(Role::Fenced));
    s.list = ListFact::Known { at: NOW, list: list(vec![listed(0), listed(1)]) };
    assert_eq!(recorded(&s), Some(Phase::Returning));
    s.list = ListFact::Known { at: NOW, list: list(vec![listed(0)]) };
    let said = report(&s);
    assert_eq!(
        said.record.recovery.as_ref().map(|r| (r.phase, r.ended)),
        Some((Phase::Recovered, Some(NOW)))
    );
    let (reason, words) = step(&s, &said.record).expect("it is told");
    assert_eq!(reason, Reason::Recovered);
    assert!(words.contains("member m0, term 2, index 5000") && words.contains("m1 m2"), "{words}");
    s.cluster.recorded = said.record;
    s.budget = BudgetState::Present { min_available: 2, right: true };
    assert!(!matches!(decide(&s), ClusterDecision::Act(ClusterAction::CreateMember { .. })));
    // Then, and also when the clock was set back.
    for now in [NOW + ALONE, Time(NOW.0 - 1)] {
        s.now = now;
        assert_eq!(decide(&s), ClusterDecision::Act(ClusterAction::CreateMember { seed: false }));
    }
    assert_eq!(role(&s, &"m1".into()), None, "they leave as anybody that etcd does not list");
}

#[test]
fn another_survivor_can_be_named_while_the_first_one_does_not_come_up() {
    let mut s = under_way(Phase::Rewriting);
    s.members[0] = dead(0);
    s.members[1] = MemberFacts { pvc: Presence::Present(pvc(1)), ..fenced(1) };
    s.members[2] = fenced(2);
    s.cluster.recover_from = Some("m1".into());
    assert!(report(&s).record.refused_recovery.is_some(), "it does not answer, so it must be forced");
    s.cluster.recover_from = Some("m1 force".into());
    let r = report(&s).record.recovery.expect("it is taken up");
    assert_eq!((r.survivor.as_str(), r.phase, r.begun), ("m1", Phase::Fencing, NOW));
    s.cluster.recorded.recovery = Some(r);
    assert_eq!(role(&s, &"m0".into()), Some(Role::Fenced));
}
