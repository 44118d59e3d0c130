//! `report`: what the status says is true, and stays the same text while nothing changes.

use etcd_operator_core::{
    ids::ClusterId,
    reason::Reason,
    report::{Condition, Verdict, report},
    time::Time,
    view::*,
};

use crate::fixtures::*;

fn says(c: &Condition) -> (Verdict, Reason) {
    (c.verdict, c.reason)
}

#[test]
fn a_cluster_as_the_spec_says_is_available_reconciled_and_not_degraded() {
    let r = report(&cluster(3, vec![voter(0), voter(1), voter(2)]));
    assert_eq!(says(&r.available), (Verdict::True, Reason::QuorumHealthy));
    assert_eq!(says(&r.progressing), (Verdict::False, Reason::Reconciled));
    assert_eq!(says(&r.degraded), (Verdict::False, Reason::Reconciled));
    assert_eq!((r.ready_members, r.broken_members), (Some(3), 0));
}

// MT-02
#[test]
fn nothing_is_available_before_somebody_has_looked() {
    let unseen = |n| MemberFacts { look: unknown(), ..voter(n) };
    let r = report(&cluster(3, vec![unseen(0), unseen(1), unseen(2)]));
    assert_eq!(says(&r.available), (Verdict::Unknown, Reason::NotKnownYet));
    assert_eq!(r.ready_members, None, "not zero: nobody knows");
    let r = report(&unformed(vec![newcomer(0)]));
    assert_eq!(says(&r.available), (Verdict::False, Reason::WaitingForSeed));
}

#[test]
fn one_voter_down_leaves_a_quorum_and_is_named() {
    let r = report(&cluster(3, vec![voter(0), voter(1), dead(2)]));
    assert_eq!(says(&r.available), (Verdict::True, Reason::QuorumAvailable));
    assert_eq!(says(&r.degraded), (Verdict::True, Reason::MembersUnhealthy));
    assert!(r.degraded.message.contains("m2"), "{}", r.degraded.message);
    assert_eq!((r.ready_members, r.broken_members), (Some(2), 1));
}

// MQ-10
#[test]
fn lost_quorum_is_told_apart_from_silence() {
    let minority = MemberFacts { look: answers(0), ..voter(0) };
    let r = report(&cluster(3, vec![minority, dead(1), dead(2)]));
    assert_eq!(says(&r.available), (Verdict::False, Reason::QuorumLost));
    assert_eq!(says(&r.degraded), (Verdict::True, Reason::QuorumLost));
    let r = report(&cluster(3, vec![dead(0), dead(1), dead(2)]));
    assert_eq!(says(&r.available), (Verdict::False, Reason::ClusterUnreachable));
}

// MQ-14
#[test]
fn a_formed_cluster_without_members_says_that_all_is_lost() {
    let r = report(&cluster(3, vec![]));
    for c in [&r.available, &r.progressing] {
        assert_eq!(says(c), (Verdict::False, Reason::AllMembersLost));
    }
    assert_eq!(says(&r.degraded), (Verdict::True, Reason::AllMembersLost));
}

#[test]
fn the_cluster_id_is_recorded_once_and_only_from_the_seed_itself() {
    let mut seed = voter(0);
    seed.member.recorded.member_id = None;
    assert_eq!(report(&unformed(vec![seed.clone()])).record.cluster_id, Some(CLUSTER));
    let not_yet = [
        ("it is on its way out", leaving(seed.clone())),
        ("its Pod is gone", MemberFacts { pod: Presence::Absent, ..seed.clone() }),
        ("it does not lead", MemberFacts { look: answers(0), ..seed.clone() }),
        ("it is silent", MemberFacts { look: silent(), ..seed.clone() }),
    ];
    for (why, m) in not_yet {
        assert_eq!(report(&unformed(vec![m])).record.cluster_id, None, "{why}");
    }
    let mut unrecorded = seed.clone();
    unrecorded.member.recorded.pvc_uid = None;
    assert_eq!(report(&unformed(vec![unrecorded])).record.cluster_id, None, "its volume is not on record");
    let r = report(&cluster(1, vec![MemberFacts { look: silent(), ..voter(0) }]));
    assert_eq!(r.record.cluster_id, Some(CLUSTER), "it never changes again");
}

#[test]
fn an_answer_of_another_cluster_at_the_seeds_address_is_told_and_never_recorded() {
    let mut seed = voter(0);
    seed.member.recorded.member_id = None;
    seed.member.founds = ClusterId(CLUSTER.0 + 1);
    let r = report(&unformed(vec![seed]));
    assert_eq!(r.record.cluster_id, None);
    for condition in [&r.available, &r.progressing] {
        assert_eq!(says(condition), (Verdict::False, Reason::ForeignClusterID));
    }
    assert_eq!(says(&r.degraded), (Verdict::True, Reason::ForeignClusterID));
    assert!(r.degraded.message.contains(&CLUSTER.to_string()), "{}", r.degraded.message);
}

#[test]
fn the_target_follows_the_spec_and_starts_a_new_deadline() {
    let mut s = cluster(3, vec![voter(0), voter(1), voter(2)]);
    s.cluster.replicas = 5;
    let r = report(&s);
    assert_eq!(r.record.target.map(|t| t.replicas), Some(5));
    assert_eq!(r.record.progress_deadline, Some(Time(NOW.0 + 600_000)));
    assert_eq!(r.progressing.verdict, Verdict::True);
}

// VC-07
#[test]
fn past_the_deadline_progress_is_no_longer_claimed_and_a_settled_cluster_has_none() {
    let mut s = cluster(3, vec![voter(0), voter(1), joined(2)]);
    s.cluster.recorded.progress_deadline = Some(Time(NOW.0 + 1));
    assert_eq!(report(&s).progressing.verdict, Verdict::True);
    s.now = Time(NOW.0 + 1);
    assert_eq!(says(&report(&s).progressing), (Verdict::False, Reason::DeadlineExceeded));
    let mut done = cluster(3, vec![voter(0), voter(1), voter(2)]);
    done.cluster.recorded.progress_deadline = Some(Time(NOW.0 - 1));
    let r = report(&done);
    assert_eq!(says(&r.progressing), (Verdict::False, Reason::Reconciled));
    assert_eq!(r.record.progress_deadline, None);
}

#[test]
fn a_seed_that_is_late_has_failed_to_form_the_cluster_in_its_pods_own_words() {
    let mut seed = newcomer(0);
    seed.pod = Presence::Present(PodView {
        ip: None,
        trouble: Some(PodTrouble::Unschedulable("0/3 nodes are available".into())),
        ..pod(0)
    });
    let mut s = unformed(vec![seed]);
    s.cluster.recorded.progress_deadline = Some(NOW);
    let r = report(&s);
    for c in [&r.available, &r.progressing] {
        assert_eq!(says(c), (Verdict::False, Reason::BootstrapFailed));
        assert!(c.message.contains("0/3 nodes"), "{}", c.message);
    }
    assert_eq!(says(&r.degraded), (Verdict::True, Reason::PodUnschedulable));
}

#[test]
fn a_lost_or_replaced_volume_is_named_with_what_to_do() {
    for (pvc, reason) in [
        (Presence::Absent, Reason::VolumeMissing),
        (Presence::Present(PvcView { uid: "x".into(), ..pvc(2) }), Reason::VolumeReplaced),
        (Presence::Present(PvcView { ours: false, ..pvc(2) }), Reason::ForeignObject),
        (Presence::Present(PvcView { deleting: true, ..pvc(2) }), Reason::VolumeTerminating),
    ] {
        let lost = MemberFacts { pvc, ..dead(2) };
        let r = report(&cluster(3, vec![voter(0), voter(1), lost]));
        assert_eq!(says(&r.degraded), (Verdict::True, reason));
        assert!(r.degraded.message.contains("data-m2"), "{}", r.degraded.message);
        let told = if reason == Reason::ForeignObject { "delete" } else { "the member is replaced" };
        assert!(r.degraded.message.contains(told), "{}", r.degraded.message);
    }
}

// A deleted PVC stays while its Pod runs: now is the time to say it, not when the data is gone.
#[test]
fn a_deleted_volume_is_told_while_its_member_still_serves() {
    let doomed = MemberFacts { pvc: Presence::Present(PvcView { deleting: true, ..pvc(2) }), ..voter(2) };
    let r = report(&cluster(3, vec![voter(0), voter(1), doomed.clone()]));
    assert_eq!(says(&r.degraded), (Verdict::True, Reason::VolumeTerminating));
    assert_eq!(says(&r.available), (Verdict::True, Reason::QuorumHealthy));
    let r = report(&cluster(2, vec![voter(0), voter(1), leaving(doomed)]));
    assert_ne!(
        r.degraded.reason,
        Reason::VolumeTerminating,
        "of a member on its way out it is as it should be"
    );
}

// MQ-06: scaled up and down again within a moment, while the addition is still on its way to etcd.
#[test]
fn a_cluster_is_not_called_reconciled_while_a_member_that_is_not_listed_yet_is_on_its_way_out() {
    let mut s = cluster(3, vec![voter(0), voter(1), voter(2), leaving(newcomer(3))]);
    s.list = ListFact::Known { at: NOW, list: list(vec![listed(0), listed(1), listed(2)]) };
    assert_eq!(says(&report(&s).progressing), (Verdict::True, Reason::MemberLeaving));
    s.members[3].member.finalizer = false;
    assert_eq!(says(&report(&s).progressing), (Verdict::False, Reason::Reconciled), "somebody else holds it");
}

// MQ-14
#[test]
fn the_deletion_of_every_voter_is_told_until_a_replacement_votes() {
    let all = |more: Vec<MemberFacts>| {
        let old = (0..3).map(|n| leaving(voter(n)));
        report(&cluster(3, old.chain(more).collect())).degraded
    };
    assert_eq!(says(&all(vec![])), (Verdict::True, Reason::LastMemberKept));
    assert_eq!(says(&all(vec![joined(3)])), (Verdict::True, Reason::LastMemberKept));
    assert_ne!(all(vec![voter(3)]).reason, Reason::LastMemberKept, "one voter is to stay");
    let two = vec![voter(0), leaving(voter(1)), leaving(voter(2))];
    assert_ne!(report(&cluster(3, two)).degraded.reason, Reason::LastMemberKept);
    let down = (0..3).map(|n| leaving(dead(n))).collect();
    assert_eq!(says(&report(&cluster(3, down)).degraded), (Verdict::True, Reason::LastMemberKept));
    // Deleted in the foreground: Kubernetes has taken the volumes along.
    let lost = |pvc| MemberFacts { pvc, ..leaving(dead(1)) };
    let doomed = Presence::Present(PvcView { deleting: true, ..pvc(1) });
    for pvc in [Presence::Absent, doomed] {
        let told = report(&cluster(2, vec![leaving(voter(0)), lost(pvc)])).degraded;
        assert_eq!(says(&told), (Verdict::True, Reason::LastMemberKept));
        assert!(told.message.contains("data-m1") && !told.message.contains("data-m0"), "{}", told.message);
    }
}

#[test]
fn a_refused_object_is_told_in_the_api_servers_words_beside_what_the_members_do() {
    let refused = Some("exceeded quota: pods=3".to_owned());
    let r =
        report(&cluster(3, vec![voter(0), voter(1), MemberFacts { refused: refused.clone(), ..dead(2) }]));
    assert_eq!(says(&r.degraded), (Verdict::True, Reason::ObjectRefused));
    assert!(
        r.degraded.message.contains("m2") && r.degraded.message.contains("quota"),
        "{}",
        r.degraded.message
    );
    assert_eq!(says(&r.available), (Verdict::True, Reason::QuorumAvailable));
    let all = (0..3).map(|n| MemberFacts { refused: refused.clone(), ..dead(n) }).collect();
    let r = report(&cluster(3, all));
    assert_eq!(says(&r.available), (Verdict::False, Reason::ClusterUnreachable));
    assert_eq!((r.ready_members, r.broken_members), (Some(0), 3));
    let mut s = cluster(3, vec![voter(0), voter(1), voter(2)]);
    s.refused = refused;
    assert_eq!(says(&report(&s).degraded), (Verdict::True, Reason::ObjectRefused));
}

#[test]
fn a_pause_is_neither_progress_nor_trouble() {
    let mut s = cluster(3, vec![voter(0), voter(1), voter(2)]);
    s.cluster.paused = true;
    let r = report(&s);
    assert_eq!(r.progressing.verdict, Verdict::False);
    assert_eq!(r.degraded.verdict, Verdict::False);
    assert_eq!(says(&r.available), (Verdict::True, Reason::QuorumHealthy));
    assert_eq!(r.record, s.cluster.recorded, "nothing new is taken up");
}

#[test]
fn a_foreign_service_and_a_fault_of_the_operator_are_told() {
    let mut s = cluster(3, vec![voter(0), voter(1), voter(2)]);
    s.services.insert(ServiceKind::Client, ServiceState::Foreign);
    let r = report(&s);
    assert_eq!(says(&r.degraded), (Verdict::True, Reason::ForeignObject));
    assert!(r.degraded.message.contains("c-client"), "{}", r.degraded.message);
    s.fault = Some("the guard keeps ending".into());
    assert_eq!(says(&report(&s).degraded), (Verdict::True, Reason::OperatorFault));
}

// MT-03
#[test]
fn an_unchanged_situation_yields_an_unchanged_text() {
    let worlds = [
        cluster(3, vec![voter(0), voter(1), voter(2)]),
        cluster(3, vec![dead(0), dead(1), dead(2)]),
        cluster(3, vec![voter(0), voter(1), joined(2)]),
        unformed(vec![newcomer(0)]),
    ];
    for s in worlds {
        let mut later = s.clone();
        later.now = Time(NOW.0 + 300_000);
        for (n, m) in later.members.iter_mut().enumerate() {
            if let Presence::Present(pod) = &mut m.pod {
                pod.ip = pod.ip.map(|_| [10, 9, 9, n as u8].into());
            }
            m.look = match m.look.clone() {
                etcd_operator_core::etcd::Look::Answered { mut status, linearizable, .. } => {
                    status.applied_index += 77;
                    status.raft_index += 77;
                    status.term += 1;
                    etcd_operator_core::etcd::Look::Answered { at: later.now, status, linearizable }
                }
                etcd_operator_core::etcd::Look::Silent { .. } => {
                    etcd_operator_core::etcd::Look::Silent { at: later.now }
                }
                other => other,
            };
        }
        assert_eq!(report(&s), report(&later));
    }
}

// LS-03
#[test]
fn pods_that_never_ran_etcd_are_told_by_number_once_they_are_no_accident() {
    let with = |pods| {
        let thrown_out = ThrownOut { pods, until: NOW };
        let lost = MemberFacts { pod: Presence::Absent, look: unknown(), thrown_out, ..voter(2) };
        report(&cluster(3, vec![voter(0), voter(1), lost])).degraded
    };
    assert_ne!(with(3).reason, Reason::PodEnded);
    let told = with(4);
    assert_eq!((told.verdict, told.reason), (Verdict::True, Reason::PodEnded));
    assert!(told.message.contains("4 Pods"), "{}", told.message);
}

// MT-03: a new life of the operator has nothing to say about a settled cluster before it has looked.
#[test]
fn before_the_first_look_a_settled_cluster_is_neither_reconciled_nor_not() {
    let unlooked = |n| MemberFacts { look: unknown(), ..voter(n) };
    let mut s = cluster(3, vec![unlooked(0), unlooked(1), unlooked(2)]);
    s.cluster.recorded.progress_deadline = None;
    let r = report(&s);
    assert_eq!((r.available.verdict, r.progressing.verdict), (Verdict::Unknown, Verdict::Unknown));
    assert_eq!((r.ready_members, r.degraded.verdict), (None, Verdict::Unknown));
    s.members = vec![voter(0), voter(1), MemberFacts { look: silent(), ..voter(2) }];
    assert_eq!(says(&report(&s).progressing), (Verdict::False, Reason::Reconciled));
}

// LS-07
#[test]
fn what_the_spec_asks_for_and_may_do_harm_is_told_and_makes_nothing_degraded() {
    let mut s = cluster(3, vec![voter(0), voter(1), voter(2)]);
    let calm = report(&s);
    assert_eq!(calm.spec_warnings, None);
    let warning = |words: &str| SpecWarning { reason: Reason::MemoryLimitTooSmall, words: words.to_owned() };
    s.cluster.warnings = vec![warning("a"), warning("b")];
    let mut warned = report(&s);
    let told = warned.spec_warnings.take().unwrap();
    assert_eq!((says(&told), told.message.as_str()), ((Verdict::True, Reason::MemoryLimitTooSmall), "a; b"));
    assert_eq!(warned, calm);
    assert_eq!(
        etcd_operator_core::cluster::decide(&s),
        etcd_operator_core::cluster::ClusterDecision::Settled
    );
    // Also where nothing is done for another reason.
    s.cluster.refused = vec![RefusedField { field: "spec.x".into(), why: "no".into(), not_yet: true }];
    assert!(report(&s).spec_warnings.is_some());
}
