//! A changed spec on its way to the members: in place, one volume and one Pod at a time, and never past a member
//! that does not come back. Versions that etcd cannot step to are not taken up.

use etcd_operator_core::{
    cluster::{ClusterAction, ClusterDecision, decide},
    member::{MemberAction, MemberDecision, decide as decide_member},
    membership::Change,
    reason::Reason,
    report::{Verdict, report},
    roll::{Blueprint, Part, Permit},
    time::Time,
    upgrade,
    version::EtcdVersion,
    view::*,
};

use crate::fixtures::*;

fn edited(mut s: ClusterSituation, edit: impl Fn(&mut Blueprint)) -> ClusterSituation {
    let mut wanted = blueprint();
    edit(&mut wanted);
    s.cluster.template = "u".into();
    s.cluster.blueprint = wanted.clone();
    let replicas = s.cluster.replicas;
    s.cluster.recorded.target = Some(Target { replicas, template: "u".into(), blueprint: wanted });
    s
}

fn resources(b: &mut Blueprint) {
    b.pod = "other resources".into();
}

fn updated(s: &ClusterSituation) -> Option<(String, Part, Option<Permit>)> {
    match decide(s) {
        ClusterDecision::Act(ClusterAction::UpdateMember { name, part, permit, .. }) => {
            Some((name.0, part, permit))
        }
        _ => None,
    }
}

fn permit(n: u64) -> Permit {
    Permit { reason: Reason::SpecChanged, pod_uid: Some(format!("pod{n}").into()), generation: 2 }
}

fn permitted(mut m: MemberFacts, n: u64) -> MemberFacts {
    m.member.permit = Some(permit(n));
    m
}

fn renewed(mut m: MemberFacts) -> MemberFacts {
    resources(&mut m.member.blueprint);
    m
}

fn three() -> Vec<MemberFacts> {
    (0..3).map(voter).collect()
}

#[test]
fn followers_are_restarted_first_and_the_leader_last() {
    let s = edited(cluster(3, three()), resources);
    assert_eq!(updated(&s), Some(("m1".into(), Part::Pod, Some(permit(1)))));
    let s = edited(cluster(3, vec![voter(0), renewed(voter(1)), renewed(voter(2))]), resources);
    assert_eq!(updated(&s), Some(("m0".into(), Part::Pod, Some(permit(0)))), "m0 leads");
}

#[test]
fn nobody_follows_while_a_permit_is_open_or_a_voter_does_not_serve() {
    let s = edited(cluster(3, vec![voter(0), renewed(permitted(voter(1), 1)), voter(2)]), resources);
    assert_eq!(decide(&s), ClusterDecision::Wait(Reason::RollingUpdate));
    let s = edited(cluster(3, vec![voter(0), renewed(dead(1)), voter(2)]), resources);
    assert_eq!(decide(&s), ClusterDecision::Wait(Reason::MembersUnhealthy));
}

// UP-05
#[test]
fn a_member_that_does_not_come_back_stops_the_roll_and_is_named() {
    let trouble = Some(PodTrouble::ImagePull("image etcd:v9 cannot be pulled".into()));
    let stuck =
        MemberFacts { pod: Presence::Present(PodView { uid: "new".into(), trouble, ..pod(1) }), ..dead(1) };
    let s = edited(cluster(3, vec![voter(0), renewed(permitted(stuck, 1)), voter(2)]), resources);
    assert_eq!(decide(&s), ClusterDecision::Wait(Reason::RollingUpdate));
    let r = report(&s);
    assert_eq!((r.progressing.verdict, r.progressing.reason), (Verdict::True, Reason::RollingUpdate));
    assert!(r.progressing.message.contains("cannot be pulled"), "{}", r.progressing.message);
    assert_eq!((r.degraded.verdict, r.degraded.reason), (Verdict::True, Reason::ImagePullFailed));
    // The correction reaches the broken one first, and nobody else.
    let corrected = edited(s, |b| b.pod = "corrected".into());
    let again = Permit { reason: Reason::SpecChanged, pod_uid: Some("new".into()), generation: 2 };
    assert_eq!(updated(&corrected), Some(("m1".into(), Part::Pod, Some(again))));
}

// UP-08
#[test]
fn what_was_there_when_the_cluster_was_taken_over_is_told_and_waits_for_an_edit() {
    let mut s = edited(cluster(3, three()), resources);
    s.cluster.recorded.drift = None;
    assert_eq!(report(&s).record.drift, Some(Drift::Accepted));
    s.cluster.recorded.drift = Some(Drift::Accepted);
    assert_eq!(decide(&s), ClusterDecision::Settled);
    assert!(report(&s).progressing.message.contains("m0 m1 m2"), "{}", report(&s).progressing.message);
    s.cluster.template = "w".into();
    s.cluster.blueprint.pod = "edited".into();
    assert_eq!(report(&s).record.drift, Some(Drift::Rolled));
    let mut fresh = unformed(vec![]);
    fresh.cluster.recorded.drift = None;
    fresh.cluster.recorded.target = None;
    assert_eq!(report(&fresh).record.drift, Some(Drift::Rolled));
}

#[test]
fn with_on_delete_the_spec_waits_for_the_next_pod() {
    let mut s = edited(cluster(3, three()), resources);
    s.cluster.rolls = false;
    assert_eq!(updated(&s), Some(("m0".into(), Part::Pod, None)));
}

/// Its spec was brought up to generation 4 with OnDelete, and nobody has deleted the Pod, made from generation `from`.
fn behind(n: u64, from: u64) -> MemberFacts {
    let mut m = voter(n);
    (m.member.generation, m.member.pod_generation) = (5, 4);
    MemberFacts { pod: Presence::Present(PodView { made_from: from, ..pod(n) }), ..m }
}

// UP-08
#[test]
fn when_restarts_are_allowed_again_the_pods_that_waited_are_restarted_one_by_one_and_no_others() {
    let mut s = cluster(3, vec![behind(0, 3), behind(1, 4), behind(2, 1)]);
    s.cluster.rolls = false;
    assert_eq!(decide(&s), ClusterDecision::Settled);
    s.cluster.rolls = true;
    let permit = Permit { generation: 6, ..permit(2) };
    assert_eq!(updated(&s), Some(("m2".into(), Part::Pod, Some(permit))));
    s.members[2] = behind(2, 5);
    assert_eq!(updated(&s).map(|u| u.0), Some("m0".into()), "it leads");
    s.members[0] = behind(0, 4);
    assert_eq!(decide(&s), ClusterDecision::Settled);
}

// UP-08
#[test]
fn a_pod_that_does_not_tell_what_it_was_made_from_is_never_restarted_for_it() {
    assert_eq!(decide(&cluster(3, vec![voter(0), voter(1), behind(2, 0)])), ClusterDecision::Settled);
    let mut taken_over = cluster(3, vec![voter(0), voter(1), behind(2, 1)]);
    taken_over.cluster.recorded.drift = Some(Drift::Accepted);
    assert_eq!(decide(&taken_over), ClusterDecision::Settled);
    // Notes that are damaged: no Pod could ever be new enough.
    let mut beyond = behind(2, 5);
    beyond.member.pod_generation = 99;
    assert_eq!(decide(&cluster(3, vec![voter(0), voter(1), beyond])), ClusterDecision::Settled);
}

#[test]
fn a_member_that_does_not_run_takes_up_what_waited_for_its_next_pod_before_all_else() {
    let mut stuck = behind(2, 1);
    stuck.look = silent();
    let mut s = cluster(3, vec![voter(0), voter(1), stuck]);
    assert_eq!(updated(&s).map(|u| u.0), Some("m2".into()));
    s.members[2].member.permit = Some(Permit { generation: 5, ..permit(2) });
    assert_eq!(updated(&s), None, "its restart is on its way already");
    s.members[2].member.permit = None;
    s.cluster.rolls = false;
    assert_eq!(updated(&s), None);
}

// Found by the simulation: the Pod was on its way, made from the old spec, and the restart cost the quorum.
#[test]
fn a_member_in_memory_whose_pod_is_on_its_way_gets_no_permit_that_would_take_its_data() {
    let in_memory = |mut m: MemberFacts| {
        m.member.memory = true;
        m.pvc = Presence::Absent;
        m
    };
    let mut coming = in_memory(newcomer(2));
    coming.member.initial_cluster = alone(2);
    let s = edited(
        cluster(3, vec![renewed(in_memory(voter(0))), renewed(in_memory(voter(1))), coming]),
        resources,
    );
    assert_eq!(updated(&s), Some(("m2".into(), Part::Pod, None)));
    let came = renewed(in_memory(behind(2, 1)));
    let s =
        edited(cluster(3, vec![renewed(in_memory(voter(0))), renewed(in_memory(voter(1))), came]), resources);
    assert!(
        matches!(decide(&s), ClusterDecision::Act(ClusterAction::DeleteMember { .. })),
        "replaced, its successor first: {:?}",
        decide(&s)
    );
}

#[test]
fn labels_reach_everybody_in_place() {
    let s = edited(cluster(3, vec![voter(0), dead(1), voter(2)]), |b| b.metadata = "labels".into());
    assert_eq!(updated(&s), Some(("m0".into(), Part::Metadata, None)));
}

// A Pod that goes takes memory with it.
#[test]
fn a_member_in_memory_is_replaced_and_not_restarted() {
    let members = three().into_iter().map(|mut m| {
        m.member.memory = true;
        m.pvc = Presence::Absent;
        m
    });
    let s = edited(cluster(3, members.collect()), resources);
    assert!(
        matches!(decide(&s), ClusterDecision::Act(ClusterAction::DeleteMember { .. })),
        "{:?}",
        decide(&s)
    );
}

#[test]
fn members_that_are_there_take_up_the_spec_before_one_is_added_and_a_replacement_does_not_wait() {
    let s = edited(cluster(5, three()), resources);
    assert_eq!(updated(&s).map(|u| u.1), Some(Part::Pod));
    let s = edited(cluster(3, vec![voter(0), voter(1), leaving(voter(2))]), resources);
    assert_eq!(decide(&s), ClusterDecision::Act(ClusterAction::CreateMember { seed: false }));
}

fn restart(m: MemberFacts, granted: bool) -> MemberDecision {
    let mut s = situation(m);
    s.facts.member.recorded.ready = s.facts.look.serves();
    s.granted = granted;
    decide_member(&s)
}

#[test]
fn a_permitted_restart_is_asked_for_granted_and_then_an_eviction() {
    let m = permitted(voter(1), 1);
    let ask = Change::Restart { peer_url: url(1), pod_uid: "pod1".into() };
    assert_eq!(restart(m.clone(), false), MemberDecision::Act(MemberAction::Ask(ask)));
    let evict = MemberAction::EvictPod { pod_uid: "pod1".into(), why: Reason::SpecChanged };
    assert_eq!(restart(m, true), MemberDecision::Act(evict));
    let delete = MemberAction::DeletePod { pod_uid: "pod1".into(), why: Reason::SpecChanged };
    assert_eq!(restart(permitted(dead(1), 1), false), MemberDecision::Act(delete));
}

#[test]
fn a_permit_is_cleared_when_another_pod_serves_and_not_before() {
    let with_pod = |m: MemberFacts, made_from| MemberFacts {
        pod: Presence::Present(PodView { made_from, ..pod(1) }),
        ..permitted(m, 9)
    };
    assert_eq!(restart(with_pod(voter(1), 2), false), MemberDecision::Act(MemberAction::ClearPermit));
    assert!(matches!(restart(with_pod(dead(1), 2), false), MemberDecision::Wait { .. }));
}

// A Pod that an eviction took meanwhile is made again from what the store shows, which may be the old spec.
#[test]
fn another_pod_that_was_made_from_the_old_spec_goes_as_well() {
    let old = restart(permitted(voter(1), 9), false);
    assert!(matches!(old, MemberDecision::Act(MemberAction::Ask(Change::Restart { .. }))), "{old:?}");
}

#[test]
fn a_member_without_a_pod_takes_up_the_spec_with_a_permit_for_whatever_pod_comes() {
    let gone = MemberFacts { pod: Presence::Absent, look: unknown(), ..voter(1) };
    let s = edited(cluster(3, vec![voter(0), gone, voter(2)]), resources);
    let permit = Permit { reason: Reason::SpecChanged, pod_uid: None, generation: 2 };
    assert_eq!(Permit::from_text(&permit.to_text()), Some(permit.clone()));
    assert_eq!(updated(&s), Some(("m1".into(), Part::Pod, Some(permit))));
}

#[test]
fn a_damaged_permit_is_no_permit() {
    let good = permit(1);
    assert_eq!(Permit::from_text(&good.to_text()), Some(good));
    for bad in ["", "/", "SpecChanged", "SpecChanged/2", "SpecChanged/x/uid", "Nonsense/2/uid", "/2/uid"] {
        assert_eq!(Permit::from_text(bad), None, "{bad:?}");
    }
}

// VC-04
#[test]
fn volumes_grow_one_after_the_other_whatever_their_members_health() {
    let larger = |b: &mut Blueprint| b.size = Some(2 * GIB);
    let s = edited(cluster(3, vec![dead(0), voter(1), voter(2)]), larger);
    assert_eq!(updated(&s), Some(("m0".into(), Part::Size, None)));
    let mut growing = voter(0);
    growing.member.blueprint.size = Some(2 * GIB);
    let grow = MemberAction::GrowPvc { pvc_uid: "pvc0".into() };
    assert_eq!(decide_member(&situation(growing.clone())), MemberDecision::Act(grow));
    growing.pvc = Presence::Present(PvcView { requested: Some(2 * GIB), ..pvc(0) });
    let s = edited(cluster(3, vec![growing.clone(), voter(1), voter(2)]), larger);
    assert_eq!(updated(&s), None, "the first has not grown yet");
    growing.pvc = Presence::Present(PvcView { requested: Some(2 * GIB), capacity: Some(2 * GIB), ..pvc(0) });
    let s = edited(cluster(3, vec![growing, voter(1), voter(2)]), larger);
    assert_eq!(updated(&s), Some(("m1".into(), Part::Size, None)));
}

// VC-04, MT-03
#[test]
fn a_volume_that_may_not_grow_is_told_until_it_is_large_enough_whoever_made_it_so() {
    let mut m = voter(1);
    m.member.blueprint.size = Some(2 * GIB);
    m.cannot_grow = Some("its class cannot".into());
    let told = |m: &MemberFacts| report(&cluster(2, vec![voter(0), m.clone()])).degraded;
    assert_eq!((told(&m).verdict, told(&m).reason), (Verdict::True, Reason::VolumeCannotGrow));
    m.pvc = Presence::Present(PvcView { requested: Some(2 * GIB), ..pvc(1) });
    assert_eq!(told(&m).verdict, Verdict::False);
}

#[test]
fn a_volume_whose_file_system_waits_for_a_pod_gets_one() {
    let since = |ms| {
        let waits = PvcView { resize_pending: Some(Time(ms)), ..pvc(2) };
        let mut s =
            cluster(3, vec![voter(0), voter(1), MemberFacts { pvc: Presence::Present(waits), ..voter(2) }]);
        s.now = Time(500_000);
        s
    };
    assert_eq!(updated(&since(400_000)), None, "it may grow under the running Pod");
    let mut restarted = since(300_000);
    restarted.members[2].pod = Presence::Present(PodView { created: Time(300_001), ..pod(2) });
    assert_eq!(updated(&restarted), None, "its Pod is another one by now");
    let s = since(300_000);
    let permit = Permit { reason: Reason::VolumeGrows, pod_uid: Some("pod2".into()), generation: 0 };
    assert_eq!(updated(&s), Some(("m2".into(), Part::Pod, Some(permit))));
}

fn step(running: &[&str], wanted: &str) -> Option<String> {
    let version = |text: &str| text.parse::<EtcdVersion>().unwrap();
    let members = running.iter().enumerate().map(|(n, text)| {
        let mut m = voter(n as u64);
        m.member.recorded.version = Some(version(text));
        m
    });
    let mut s = cluster(3, members.collect());
    s.cluster.blueprint.version = Some(version(wanted));
    let target = s.cluster.recorded.target.as_mut().unwrap();
    target.blueprint.version = Some(version(running[0]));
    s.cluster.template = "u".into();
    let (reason, words) = upgrade::refused(&s)?;
    assert_eq!(reason, Reason::VersionStepRefused);
    let r = report(&s);
    assert_eq!(r.record.target, s.cluster.recorded.target, "it is not taken up");
    assert_eq!((r.progressing.verdict, r.progressing.reason), (Verdict::False, reason));
    assert!(!matches!(decide(&s), ClusterDecision::HandsOff { .. }), "the cluster goes on as it is");
    Some(words)
}

// UP-03
#[test]
fn versions_move_between_patches_and_up_one_minor() {
    for (running, wanted) in [
        (["3.6.15"; 3], "3.6.20"),
        (["3.6.15"; 3], "3.6.1"),
        (["3.6.15"; 3], "3.7.0"),
        (["3.5.26"; 3], "3.6.16"),
        (["3.6.16", "3.5.26", "3.5.26"], "3.5.30"),
    ] {
        assert_eq!(step(&running, wanted), None, "{running:?} to {wanted}");
    }
    for (running, wanted, told) in [
        (["3.5.30"; 3], "3.7.0", "one minor at a time"),
        (["3.6.15"; 3], "3.5.30", "cannot go back"),
        (["3.7.0", "3.7.0", "3.5.30"], "3.7.1", "one minor at a time"),
        (["3.7.1"; 3], "3.6.16", "cannot go back"),
    ] {
        let words = step(&running, wanted).unwrap_or_else(|| panic!("{running:?} to {wanted} is taken up"));
        assert!(words.contains(told), "{words}");
    }
}

// UP-04
#[test]
fn every_member_must_run_a_patch_of_3_5_that_is_safe_before_3_6() {
    let words = step(&["3.5.26", "3.5.26", "3.5.19"], "3.6.16").expect("it is taken up");
    assert!(words.contains("m2") && words.contains("3.5.19") && words.contains("3.5.26"), "{words}");
}
