//! Healing: who is replaced on what evidence, and who is not.

use etcd_operator_core::{
    cluster::{ClusterAction, ClusterDecision, decide},
    departure::{Departure, departure},
    etcd::{Look, MemberStatus},
    healing::MANY_RESTARTS,
    member::{MemberAction, MemberDecision, decide as decide_member},
    reason::Reason,
    report::{Verdict, report},
    view::*,
};

use crate::fixtures::*;

fn replaces(s: &ClusterSituation) -> Option<(String, Reason)> {
    match decide(s) {
        ClusterDecision::Act(ClusterAction::DeleteMember { name, why, .. }) => Some((name.0, why)),
        _ => None,
    }
}

fn crashes(n: u64, words: &str, restarts: u32) -> MemberFacts {
    let trouble = Some(PodTrouble::CrashLooping(words.into()));
    MemberFacts { pod: Presence::Present(PodView { trouble, restarts, started: false, ..pod(n) }), ..dead(n) }
}

fn with(lost: MemberFacts) -> ClusterSituation {
    cluster(3, vec![voter(0), voter(1), lost])
}

fn in_memory(mut m: MemberFacts) -> MemberFacts {
    m.member.memory = true;
    m.member.recorded.pvc_uid = None;
    m.pvc = Presence::Absent;
    m
}

#[test]
fn a_member_whose_volume_is_lost_is_replaced() {
    for (pvc, reason) in [
        (Presence::Absent, Reason::VolumeMissing),
        (Presence::Present(PvcView { uid: "x".into(), ..pvc(2) }), Reason::VolumeReplaced),
        (Presence::Present(PvcView { deleting: true, ..pvc(2) }), Reason::VolumeTerminating),
    ] {
        let s = with(MemberFacts { pvc, ..dead(2) });
        assert_eq!(replaces(&s), Some(("m2".into(), reason)));
    }
}

// A PVC that nobody has looked for is not gone.
#[test]
fn a_volume_that_nobody_has_looked_for_is_no_evidence() {
    assert_eq!(replaces(&with(MemberFacts { pvc: Presence::Unknown, ..dead(2) })), None);
}

#[test]
fn an_emptied_or_damaged_data_directory_is_replaced_at_its_first_words() {
    let empty = "cannot fetch cluster info from peer urls: could not retrieve cluster information";
    assert_eq!(replaces(&with(crashes(2, empty, 1))), Some(("m2".into(), Reason::DataDirectoryEmpty)));
    let damaged = "failed to read WAL, cannot be repaired: wal: crc mismatch";
    assert_eq!(replaces(&with(crashes(2, damaged, 1))), Some(("m2".into(), Reason::DataDamaged)));
}

// LS-04
#[test]
fn the_first_member_has_no_special_place() {
    let s = cluster(3, vec![crashes(0, "wal: crc mismatch", 1), voter(1), voter(2)]);
    assert_eq!(replaces(&s), Some(("m0".into(), Reason::DataDamaged)));
    let s = cluster(1, vec![crashes(0, "wal: crc mismatch", 1)]);
    assert_eq!(replaces(&s), None, "it is the whole cluster");
    let r = report(&s);
    assert_eq!((r.degraded.verdict, r.degraded.reason), (Verdict::True, Reason::DataDamaged));
    assert!(r.degraded.message.contains("restore a snapshot"), "{}", r.degraded.message);
}

#[test]
fn a_joiner_that_cannot_find_the_others_yet_has_lost_nothing() {
    let mut joiner = crashes(2, "cannot fetch cluster info from peer urls", 2);
    joiner.member.recorded.member_id = None;
    joiner.member.recorded.is_voter = false;
    assert_eq!(replaces(&with(joiner)), None);
}

// LS-05
#[test]
fn what_a_person_has_to_mend_is_never_healed() {
    let flag = "flag provided but not defined: -no-such-flag";
    for trouble in [
        PodTrouble::OutOfMemory,
        PodTrouble::CrashLooping(flag.into()),
        PodTrouble::ImagePull("no image".into()),
        PodTrouble::Unschedulable("no node".into()),
        PodTrouble::CannotStart("no secret".into()),
    ] {
        let mut lost = crashes(2, "", 20);
        if let Presence::Present(pod) = &mut lost.pod {
            pod.trouble = Some(trouble.clone());
        }
        assert_eq!(replaces(&with(lost)), None, "{trouble:?}");
    }
}

#[test]
fn a_process_that_ends_for_no_known_cause_is_replaced_after_many_times_only() {
    assert_eq!(replaces(&with(crashes(2, "its process ended", MANY_RESTARTS - 1))), None);
    let s = with(crashes(2, "its process ended", MANY_RESTARTS));
    assert_eq!(replaces(&s), Some(("m2".into(), Reason::PodCrashLooping)));
}

// LS-05
#[test]
fn nobody_is_replaced_without_a_quorum_of_the_others() {
    let s =
        cluster(3, vec![voter(0), crashes(1, "wal: crc mismatch", 9), crashes(2, "wal: crc mismatch", 9)]);
    assert_eq!(replaces(&s), None);
    let s = cluster(3, (0..3).map(|n| crashes(n, "its process ended", 9)).collect());
    assert_eq!(replaces(&s), None);
}

#[test]
fn two_lost_members_are_replaced_one_after_the_other() {
    let lost = |n| MemberFacts { pvc: Presence::Absent, ..dead(n) };
    let s = cluster(5, vec![voter(0), voter(1), voter(2), leaving(lost(3)), lost(4)]);
    assert_eq!(departure(&s, &"m3".into()), Departure::Go);
    assert_eq!(replaces(&s), None);
}

// A lost member that still serves waits for its turn as well.
#[test]
fn a_second_member_that_still_serves_waits_for_the_first_ones_replacement() {
    let doomed = |n| MemberFacts { pvc: Presence::Present(PvcView { deleting: true, ..pvc(n) }), ..voter(n) };
    let s = cluster(3, vec![voter(0), leaving(doomed(1)), doomed(2)]);
    assert_eq!(replaces(&s), None);
}

// Found by the simulation: a healthy member on its way out and a lost one waited for each other.
#[test]
fn a_lost_member_goes_before_a_healthy_one_that_leaves() {
    let lost = MemberFacts { pvc: Presence::Absent, ..dead(1) };
    let s = cluster(1, vec![leaving(voter(0)), lost, voter(2)]);
    assert_eq!(departure(&s, &"m0".into()), Departure::Hold(Reason::VoterNotServing));
    assert_eq!(replaces(&s), Some(("m1".into(), Reason::VolumeMissing)));
}

// LS-06
#[test]
fn data_in_memory_is_gone_with_its_pod() {
    let gone = in_memory(MemberFacts { pod: Presence::Absent, look: unknown(), ..voter(2) });
    assert_eq!(replaces(&with(gone.clone())), Some(("m2".into(), Reason::MemoryLost)));
    let mut s = situation(gone);
    s.facts.member.recorded.ready = false;
    assert!(matches!(decide_member(&s), MemberDecision::Wait { reason: Reason::MemoryLost, .. }));
    let another = PodView { uid: "another".into(), ..pod(2) };
    let s = with(in_memory(MemberFacts { pod: Presence::Present(another), ..dead(2) }));
    assert_eq!(replaces(&s), Some(("m2".into(), Reason::MemoryLost)));
}

// LS-06
#[test]
fn a_container_that_starts_again_in_its_pod_still_has_its_memory() {
    let s =
        with(in_memory(MemberFacts { pod: Presence::Present(PodView { restarts: 3, ..pod(2) }), ..dead(2) }));
    assert_eq!(replaces(&s), None);
}

// LS-07
#[test]
fn memory_that_overflows_again_and_again_is_replaced_once_and_a_volume_is_not() {
    let killed = |restarts| {
        let mut m = crashes(2, "", restarts);
        if let Presence::Present(pod) = &mut m.pod {
            pod.trouble = Some(PodTrouble::OutOfMemory);
        }
        m
    };
    assert_eq!(
        replaces(&with(in_memory(killed(MANY_RESTARTS)))),
        Some(("m2".into(), Reason::PodOutOfMemory))
    );
    assert_eq!(replaces(&with(in_memory(killed(MANY_RESTARTS - 1)))), None);
    assert_eq!(replaces(&with(killed(20))), None);
}

#[test]
fn memory_lost_with_the_quorum_is_told_and_nobody_is_removed() {
    let gone = |n| in_memory(MemberFacts { pod: Presence::Absent, look: unknown(), ..voter(n) });
    let mut s = cluster(3, vec![in_memory(MemberFacts { look: answers(0), ..voter(0) }), gone(1), gone(2)]);
    s.list = ListFact::Unknown { since: NOW };
    assert_eq!(replaces(&s), None);
    let r = report(&s);
    assert_eq!((r.degraded.verdict, r.degraded.reason), (Verdict::True, Reason::MemoryLost));
    assert!(r.degraded.message.contains("no quorum"), "{}", r.degraded.message);
    assert_eq!(r.available.reason, Reason::QuorumLost);
}

#[test]
fn a_first_pod_in_memory_that_never_joined_is_made_again() {
    let mut m = in_memory(newcomer(2));
    m.member.initial_cluster = "m0=a,m2=b".into();
    m.member.recorded.pod_uid = Some("first".into());
    let mut s = situation(m);
    let mut members = vec![listed(0), listed(1), nameless(2)];
    s.list = ListFact::Known { at: NOW, list: list(members.clone()) };
    s.facts.member.initial_cluster = s.list.list().unwrap().initial_cluster(&"m2".into(), &url(2));
    assert!(matches!(decide_member(&s), MemberDecision::Act(MemberAction::CreatePod { pvc_uid: None, .. })));
    members[2] = learner(2);
    s.list = ListFact::Known { at: NOW, list: list(members) };
    assert!(matches!(decide_member(&s), MemberDecision::Wait { reason: Reason::MemoryLost, .. }));
}

// LS-11
#[test]
fn an_alarm_about_corruption_stops_the_set_and_removes_nobody() {
    let errors = vec!["memberID:0 alarm:CORRUPT ".to_owned()];
    let alarmed = |n| {
        let status = MemberStatus { errors: errors.clone(), ..status(n) };
        MemberFacts { look: Look::Answered { at: NOW, status, linearizable: true }, ..voter(n) }
    };
    let lost = MemberFacts { pvc: Presence::Absent, ..dead(2) };
    let s = cluster(5, vec![alarmed(0), alarmed(1), lost]);
    assert_eq!(decide(&s), ClusterDecision::Wait(Reason::CorruptAlarm));
    let r = report(&cluster(3, (0..3).map(alarmed).collect()));
    assert_eq!((r.degraded.verdict, r.degraded.reason), (Verdict::True, Reason::CorruptAlarm));
    let chosen = cluster(3, vec![alarmed(0), alarmed(1), leaving(alarmed(2))]);
    assert!(matches!(decide(&chosen), ClusterDecision::Act(ClusterAction::CreateMember { .. })));
}
