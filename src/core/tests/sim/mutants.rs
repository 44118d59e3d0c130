//! Planted faults: the decisions with one thing wrong. Every call of a decision goes through here,
//! so that a run without a mutant uses exactly the real functions.

use etcd_operator_core::{
    cluster::{self, ClusterAction, ClusterDecision},
    departure::{self, Departure},
    disruption,
    etcd::{Look, quorum},
    ids::MemberName,
    member::{self, MemberAction, MemberDecision},
    membership::{self, Call, Change, Evidence, Verdict},
    reason::Reason,
    recovery::{self, Role},
    report::{self, Report},
    time::Time,
    view::{BudgetState, ClusterSituation, JoinInstruction, MemberSituation, Presence},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// One serving voter less is taken for a quorum.
    QuorumOffByOne,
    /// The guard judges on the list of its last turn.
    StaleList,
    /// A learner that is there does not stop another.
    SecondAdd,
    /// One answer is enough for a promotion.
    NoSecondLook,
    /// Nobody counts who remains.
    RemoveWithoutQuorum,
    /// The volume goes before etcd has let go of the member.
    PvcBeforeRemoval,
    /// The seed is told `new` for ever.
    NewForEver,
    /// Whatever PVC bears the name will do.
    AnyVolume,
    /// Doubt does not hold back other changes.
    DoubtIgnored,
    /// The success of a repeated change ends the doubt about its first sending.
    DoubtEndsWithSuccess,
    /// What a former life may have sent is not waited for.
    NoFormerLife,
    /// Whoever answers at the member's address is taken for the member.
    AnyoneAnswers,
    /// The seed is made again when all members are gone.
    SeedAgain,
    /// The last voter may be removed.
    LastVoterRemoved,
    /// Clients are led to the seed before the cluster ID is recorded.
    LabelTooEarly,
    /// A joiner's list is not refreshed when the membership moves.
    FrozenJoinList,
    /// Nobody promotes the last learner.
    NeverPromoted,
    /// The disruption budget counts the voters that are wanted, and not those that there are.
    FloorOfTheTarget,
    /// The judge's clock runs on while it looks, so that its list may be older than the doubt's end.
    ClockOfTheCall,
    /// A member is restarted whoever else is down.
    RestartAnyTime,
    /// A pause parks a member while others are there.
    ParkTooEarly,
    /// Nobody is fenced before the flag of a recovery is given.
    FlagBesideOthers,
    /// A member that was recovered keeps its flag.
    FlagForEver,
}

impl Mutant {
    pub(crate) const ALL: [Mutant; 23] = [
        Mutant::QuorumOffByOne,
        Mutant::StaleList,
        Mutant::SecondAdd,
        Mutant::NoSecondLook,
        Mutant::RemoveWithoutQuorum,
        Mutant::PvcBeforeRemoval,
        Mutant::NewForEver,
        Mutant::AnyVolume,
        Mutant::DoubtIgnored,
        Mutant::DoubtEndsWithSuccess,
        Mutant::NoFormerLife,
        Mutant::AnyoneAnswers,
        Mutant::SeedAgain,
        Mutant::LastVoterRemoved,
        Mutant::LabelTooEarly,
        Mutant::FrozenJoinList,
        Mutant::NeverPromoted,
        Mutant::FloorOfTheTarget,
        Mutant::ClockOfTheCall,
        Mutant::RestartAnyTime,
        Mutant::ParkTooEarly,
        Mutant::FlagBesideOthers,
        Mutant::FlagForEver,
    ];
}

/// The call that a change leads to if nothing stops it.
fn call_for(change: &Change, e: &Evidence<'_>) -> Option<Call> {
    let id = e.list.at(change.peer_url()).map(|m| m.id);
    match change {
        Change::Add { peer_url } => Some(Call::Add(peer_url.clone())),
        Change::Promote { .. } => id.map(Call::Promote),
        Change::Remove { .. } => id.map(Call::Remove),
        Change::Restart { .. } => id.map(Call::Restart),
    }
}

/// [`membership::judge`].
pub(crate) fn judge(mutant: Option<Mutant>, change: &Change, e: &Evidence<'_>) -> Verdict {
    let real = membership::judge(change, e);
    let waits_for = |reason| matches!(&real, Verdict::Wait { reason: r, .. } if *r == reason);
    let allow = || call_for(change, e).map_or(real.clone(), Verdict::Allow);
    match mutant {
        Some(Mutant::QuorumOffByOne) if waits_for(Reason::AwaitingQuorum) => {
            let target = e.list.at(change.peer_url()).map(|m| m.id);
            let promote = matches!(change, Change::Promote { .. });
            let voters = e.list.voters().filter(|m| Some(m.id) != target).count() + usize::from(promote);
            let serving = e
                .list
                .voters()
                .filter(|m| Some(m.id) != target && e.looks.get(&m.id).is_some_and(Look::serves))
                .count()
                + usize::from(promote);
            if serving + 1 >= quorum(voters) { allow() } else { real }
        }
        Some(Mutant::SecondAdd) if waits_for(Reason::LearnerPresent) => allow(),
        Some(Mutant::NoSecondLook) if waits_for(Reason::LearnerNotAnswering) => {
            let once = e
                .list
                .at(change.peer_url())
                .is_some_and(|m| e.looks.get(&m.id).is_some_and(|l| l.status().is_some()));
            if once { allow() } else { real }
        }
        Some(Mutant::RemoveWithoutQuorum)
            if matches!(change, Change::Remove { .. })
                && (waits_for(Reason::AwaitingQuorum) || waits_for(Reason::VoterNotServing)) =>
        {
            allow()
        }
        Some(Mutant::RestartAnyTime)
            if matches!(change, Change::Restart { .. }) && waits_for(Reason::VoterNotServing) =>
        {
            allow()
        }
        Some(Mutant::DoubtIgnored) => membership::judge(change, &Evidence { doubt: None, ..e.clone() }),
        Some(Mutant::LastVoterRemoved) if real == Verdict::Refuse(Reason::LastVoter) => allow(),
        _ => real,
    }
}

/// [`member::decide`].
pub(crate) fn decide_member(mutant: Option<Mutant>, s: &MemberSituation) -> MemberDecision {
    match mutant {
        Some(Mutant::PvcBeforeRemoval) => {
            let mut s = s.clone();
            s.removed = true;
            member::decide(&s)
        }
        Some(Mutant::AnyVolume) => {
            let mut s = s.clone();
            if let (Presence::Present(pvc), Some(_)) = (&s.facts.pvc, &s.facts.member.recorded.pvc_uid) {
                s.facts.member.recorded.pvc_uid = Some(pvc.uid.clone());
            }
            member::decide(&s)
        }
        Some(Mutant::NewForEver) if s.facts.member.seed => {
            let member = &s.facts.member;
            let new =
                JoinInstruction::New { initial_cluster: format!("{}={}", member.name, member.peer_url) };
            let label = |pod: Option<&etcd_operator_core::view::PodView>| {
                pod.is_some_and(|p| p.instruction.as_ref() == Some(&new))
            };
            match member::decide(s) {
                MemberDecision::Act(MemberAction::CreatePod { pvc_uid, .. }) => {
                    MemberDecision::Act(MemberAction::CreatePod { instruction: new, pvc_uid })
                }
                MemberDecision::Act(MemberAction::PatchPod { pod_uid, voter_label, .. })
                    if !label(s.facts.pod.present())
                        || s.facts.pod.present().is_some_and(|p| p.voter_label != voter_label) =>
                {
                    MemberDecision::Act(MemberAction::PatchPod { pod_uid, instruction: new, voter_label })
                }
                other => other,
            }
        }
        Some(Mutant::LabelTooEarly) => match member::decide(s) {
            MemberDecision::Act(MemberAction::CreatePod { .. }) => member::decide(s),
            MemberDecision::Wait { reason: Reason::WaitingForSeed, .. }
                if s.facts.pod.present().is_some_and(|p| !p.voter_label) =>
            {
                let pod = s.facts.pod.present().expect("just seen");
                MemberDecision::Act(MemberAction::PatchPod {
                    pod_uid: pod.uid.clone(),
                    instruction: pod.instruction.clone().expect("it runs with one"),
                    voter_label: true,
                })
            }
            other => other,
        },
        Some(Mutant::FrozenJoinList) => match member::decide(s) {
            MemberDecision::Act(MemberAction::RecordJoin { .. })
                if !s.facts.member.initial_cluster.is_empty() =>
            {
                MemberDecision::Wait { reason: Reason::MemberNotStarted, again: membership::STEADY }
            }
            other => other,
        },
        Some(Mutant::NeverPromoted) => match member::decide(s) {
            MemberDecision::Act(MemberAction::Ask(Change::Promote { .. })) => MemberDecision::Settled,
            other => other,
        },
        _ => member::decide(s),
    }
}

/// [`cluster::decide`].
pub(crate) fn decide_cluster(mutant: Option<Mutant>, s: &ClusterSituation) -> ClusterDecision {
    match cluster::decide(s) {
        ClusterDecision::Act(ClusterAction::DeleteMember { name, uid, why: Reason::ScalingDown })
            if mutant == Some(Mutant::ParkTooEarly) && s.wanted() == Some(0) =>
        {
            ClusterDecision::Act(ClusterAction::ParkMember { name, uid })
        }
        ClusterDecision::Wait(Reason::AllMembersLost) if mutant == Some(Mutant::SeedAgain) => {
            ClusterDecision::Act(ClusterAction::CreateMember { seed: true })
        }
        ClusterDecision::Act(ClusterAction::PutBudget { min_available, blocks })
            if mutant == Some(Mutant::FloorOfTheTarget) =>
        {
            let floor = quorum(s.wanted().unwrap_or(1));
            let there = BudgetState::Present { min_available: floor, right: true };
            if s.budget == there {
                let counted = BudgetState::Present { min_available, right: true };
                return cluster::decide(&ClusterSituation { budget: counted, ..s.clone() });
            }
            ClusterDecision::Act(ClusterAction::PutBudget { min_available: floor, blocks })
        }
        real => real,
    }
}

/// [`disruption::covers_label`].
pub(crate) fn covers_label(mutant: Option<Mutant>, s: &ClusterSituation, m: &MemberName) -> bool {
    mutant == Some(Mutant::FloorOfTheTarget) || disruption::covers_label(s, m)
}

/// [`report::report`].
pub(crate) fn report(mutant: Option<Mutant>, s: &ClusterSituation) -> Report {
    if mutant == Some(Mutant::FlagBesideOthers) { report::report(&others_gone(s)) } else { report::report(s) }
}

/// [`recovery::role`].
pub(crate) fn role(mutant: Option<Mutant>, s: &ClusterSituation, m: &MemberName) -> Option<Role> {
    if mutant == Some(Mutant::FlagBesideOthers) {
        return recovery::role(&others_gone(s), m).filter(|role| *role != Role::Fenced);
    }
    recovery::role(s, m)
}

/// Nobody has a Pod but the survivor of the recovery, which began long ago.
fn others_gone(s: &ClusterSituation) -> ClusterSituation {
    let mut s = s.clone();
    if let Some(r) = &mut s.cluster.recorded.recovery {
        r.begun = Time(0);
        for m in s.members.iter_mut().filter(|m| m.member.name != r.survivor) {
            m.pod = Presence::Absent;
        }
    }
    s
}

/// [`departure::departure`].
pub(crate) fn may_leave(s: &ClusterSituation, m: &MemberName) -> Departure {
    departure::departure(s, m)
}
