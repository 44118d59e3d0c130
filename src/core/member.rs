//! Decides what one member needs next: its volume, its Pod, its place in etcd, its label, its way
//! out. Does no I/O. One decision for each look; then the view is taken again.

use std::time::Duration;

use crate::{
    departure::Departure,
    etcd::Look,
    ids::{MemberId, Uid},
    membership::Change,
    reason::Reason,
    recovery,
    time::timeouts,
    view::{
        JoinInstruction, ListFact, MemberRecord, MemberSituation, MemberView, Owner, PodTrouble, PodView,
        Presence, PvcView,
    },
    volume::{memory, pod_that_waits_for_a_volume, volume},
};

/// What a member does next.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum MemberDecision {
    /// This one effect.
    Act(MemberAction),
    /// Nothing now, because of this. Look again after `again` even if nothing wakes us.
    Wait {
        /// What is waited for.
        reason: Reason,
        /// When to look again.
        again: Duration,
    },
    /// It is a voter that serves, with everything as it should be.
    Settled,
}

/// One effect of a member actor.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum MemberAction {
    /// Create its PVC. The API server refuses if the name is taken; that is then the next view.
    CreatePvc,
    /// Ask the guard. The answer comes as a message, and with it a new list.
    Ask(Change),
    /// Write `spec.initialCluster`: etcd has accepted the member, and this is what it starts with.
    RecordJoin {
        /// The value.
        initial_cluster: String,
    },
    /// Create its Pod, after a live GET of the PVC has shown the recorded UID.
    CreatePod {
        /// How etcd is told to start.
        instruction: JoinInstruction,
        /// The PVC that it must mount; none if its data is in memory.
        pvc_uid: Option<Uid>,
    },
    /// Create the Pod in which the survivor of a recovery runs once with `--force-new-cluster`, after live reads have
    /// shown that the recovery stands, that every other member is on its way out and that none has a Pod.
    CreateRecoveryPod {
        /// How etcd is told to start, which it ignores over data.
        instruction: JoinInstruction,
        /// The PVC that it must mount.
        pvc_uid: Uid,
    },
    /// Put the Pod's join instruction, role label or other labels right.
    PatchPod {
        /// The Pod that is meant.
        pod_uid: Uid,
        /// The instruction that it shall carry.
        instruction: JoinInstruction,
        /// Whether it shall carry `role=voter`.
        voter_label: bool,
    },
    /// Write its status record.
    Record(MemberRecord),
    /// Delete its Pod.
    DeletePod {
        /// The Pod that is meant.
        pod_uid: Uid,
        /// Why.
        why: Reason,
    },
    /// Put the labels of its PVC right, without which the watch does not show it.
    PatchPvc {
        /// The PVC that is meant.
        pvc_uid: Uid,
    },
    /// Ask for the end of its Pod through the Eviction API, where the disruption budget puts us and drains in one
    /// queue.
    EvictPod {
        /// The Pod that is meant.
        pod_uid: Uid,
        /// Why.
        why: Reason,
    },
    /// Clear the permit to restart it: it is a voter again that serves.
    ClearPermit,
    /// Ask for more room on its PVC.
    GrowPvc {
        /// The PVC that is meant.
        pvc_uid: Uid,
    },
    /// Delete its PVC. Only ever on the way out, after etcd has let go of the member.
    DeletePvc {
        /// The PVC that is meant.
        pvc_uid: Uid,
    },
    /// Read from the API server itself whether the cluster ID is recorded, before anything is
    /// thrown away on the ground that it is not.
    ConfirmOwner,
    /// Take the finalizer off.
    Release,
}

impl MemberAction {
    /// Its name, as metrics and tests count it.
    pub fn name(&self) -> &'static str {
        match self {
            MemberAction::CreatePvc => "CreatePvc",
            MemberAction::Ask(_) => "Ask",
            MemberAction::RecordJoin { .. } => "RecordJoin",
            MemberAction::CreatePod { .. } => "CreatePod",
            MemberAction::CreateRecoveryPod { .. } => "CreateRecoveryPod",
            MemberAction::PatchPod { .. } => "PatchPod",
            MemberAction::Record(_) => "Record",
            MemberAction::DeletePod { .. } => "DeletePod",
            MemberAction::PatchPvc { .. } => "PatchPvc",
            MemberAction::EvictPod { .. } => "EvictPod",
            MemberAction::ClearPermit => "ClearPermit",
            MemberAction::GrowPvc { .. } => "GrowPvc",
            MemberAction::DeletePvc { .. } => "DeletePvc",
            MemberAction::ConfirmOwner => "ConfirmOwner",
            MemberAction::Release => "Release",
        }
    }
}

/// How soon to look again while something is about to happen that nothing tells us about.
const SOON: Duration = Duration::from_millis(300);
/// How soon to look again while waiting for what a watch will tell; the look is for lost messages.
const PATIENT: Duration = Duration::from_secs(15);

pub(crate) fn wait(reason: Reason) -> MemberDecision {
    MemberDecision::Wait { reason, again: PATIENT }
}

fn wait_soon(reason: Reason) -> MemberDecision {
    MemberDecision::Wait { reason, again: SOON }
}

/// How etcd must be told to start this member now; none if it may not start.
///
/// `new` is only ever for the seed, and only until the cluster ID is recorded. From the moment the
/// member has answered once it is told `existing` with itself alone, which etcd ignores over data
/// and which is fatal without: an emptied volume can then neither form a second cluster nor come
/// back under an ID whose log it has lost.
pub fn instruction(member: &MemberView, cluster_formed: bool) -> Option<JoinInstruction> {
    let alone = || format!("{}={}", member.name, member.peer_url);
    if member.recorded.member_id.is_some() {
        return Some(JoinInstruction::Existing { initial_cluster: alone() });
    }
    match (member.seed, cluster_formed) {
        (true, false) => Some(JoinInstruction::New { initial_cluster: alone() }),
        (true, true) => Some(JoinInstruction::Existing { initial_cluster: alone() }),
        (false, _) if member.initial_cluster.is_empty() => None,
        (false, _) => Some(JoinInstruction::Existing { initial_cluster: member.initial_cluster.clone() }),
    }
}

/// What the member does next.
pub fn decide(s: &MemberSituation) -> MemberDecision {
    match next(s) {
        MemberDecision::Wait { .. } | MemberDecision::Act(MemberAction::Ask(_)) if serves_no_more(s) => {
            let ready = MemberRecord { ready: false, ..s.facts.member.recorded.clone() };
            MemberDecision::Act(MemberAction::Record(ready))
        }
        decision => decision,
    }
}

/// It has no Pod, and its record still says that it serves. A Pod that is made at once makes this good by
/// itself; where none is made there is nothing to look at that would.
fn serves_no_more(s: &MemberSituation) -> bool {
    let owned = matches!(s.owner, Owner::Present { .. });
    owned && s.facts.member.recorded.ready && matches!(s.facts.pod, Presence::Absent)
}

fn next(s: &MemberSituation) -> MemberDecision {
    let leaving = !s.facts.member.stays();
    if let (Owner::Present { hands_off: false, .. }, Some(role)) = (&s.owner, s.recovery) {
        return recovery::member(s, role);
    }
    match &s.owner {
        Owner::Unknown => wait(Reason::NotKnownYet),
        Owner::Gone if leaving && s.facts.member.finalizer => let_go(s),
        Owner::Gone => wait(Reason::ClusterGone),
        Owner::Present { hands_off: true, .. } => {
            record(s, None).map_or_else(|| wait(Reason::ReconcilePaused), MemberDecision::Act)
        }
        Owner::Present { .. } if leaving && !s.facts.member.finalizer => wait(Reason::MemberLeaving),
        Owner::Present { .. } if leaving && s.departure == Departure::Go => leave(s),
        Owner::Present { cluster_id, .. } => live(s, cluster_id.is_some()),
    }
}

/// Without its cluster a member goes without a word to etcd. Its Pod goes first: somebody else's finalizer
/// may hold the EtcdMember for long, and the Pod would serve behind the client Service of a new cluster of
/// the same name.
fn let_go(s: &MemberSituation) -> MemberDecision {
    MemberDecision::Act(match &s.facts.pod {
        Presence::Present(pod) if pod.ours && !pod.deleting => {
            MemberAction::DeletePod { pod_uid: pod.uid.clone(), why: Reason::ClusterGone }
        }
        _ => MemberAction::Release,
    })
}

/// Out of etcd first, then the Pod, then the volume, then the finalizer: in this order, so that a
/// volume is never released while etcd still counts on it.
fn leave(s: &MemberSituation) -> MemberDecision {
    let member = &s.facts.member;
    if let Owner::Present { cluster_id: None, confirmed: false, .. } = s.owner {
        return MemberDecision::Act(MemberAction::ConfirmOwner);
    }
    let formed = matches!(s.owner, Owner::Present { cluster_id: Some(_), .. });
    if formed && !s.removed {
        if let Some(action) = unlabel(s) {
            return MemberDecision::Act(action);
        }
        return MemberDecision::Act(MemberAction::Ask(Change::Remove {
            peer_url: member.peer_url.clone(),
            id: member.recorded.member_id,
        }));
    }
    match (&s.facts.pod, &s.facts.pvc) {
        (Presence::Unknown, _) | (_, Presence::Unknown) => wait(Reason::NotKnownYet),
        (Presence::Present(pod), _) if pod.ours && pod.deleting => wait(Reason::PodTerminating),
        (Presence::Present(pod), _) if pod.ours => MemberDecision::Act(MemberAction::DeletePod {
            pod_uid: pod.uid.clone(),
            why: Reason::MemberLeaving,
        }),
        (_, Presence::Present(pvc)) if pvc.ours && !pvc.deleting => {
            MemberDecision::Act(MemberAction::DeletePvc { pvc_uid: pvc.uid.clone() })
        }
        _ => MemberDecision::Act(MemberAction::Release),
    }
}

/// Who leaves stops counting for the disruption budget before etcd is asked to let go of it: the budget would
/// let another voter be evicted for a Pod that votes no more.
fn unlabel(s: &MemberSituation) -> Option<MemberAction> {
    let pod = s.facts.pod.present().filter(|pod| pod.ours && !pod.deleting && pod.voter_label)?;
    let instruction = instruction(&s.facts.member, true).or_else(|| pod.instruction.clone())?;
    Some(MemberAction::PatchPod { pod_uid: pod.uid.clone(), instruction, voter_label: false })
}

fn live(s: &MemberSituation, formed: bool) -> MemberDecision {
    let member = &s.facts.member;
    // What etcd says about this member is worth recording even while its volume or Pod is in trouble.
    if let Some(action) = record(s, s.facts.pod.present()) {
        return MemberDecision::Act(action);
    }
    let pvc = match volume(s) {
        Ok(pvc) => pvc,
        Err(decision) => return pod_that_waits_for_a_volume(s).unwrap_or(decision),
    };
    if let Some(pvc) = pvc.filter(|pvc| !pvc.labels_right) {
        return MemberDecision::Act(MemberAction::PatchPvc { pvc_uid: pvc.uid.clone() });
    }
    // Before any gate of health: a full volume may be what ails it.
    let grows = |pvc: &&PvcView| pvc.requested.is_some() && pvc.requested < member.blueprint.size;
    if let Some(pvc) = pvc.filter(grows).filter(|_| s.facts.cannot_grow.is_none()) {
        return MemberDecision::Act(MemberAction::GrowPvc { pvc_uid: pvc.uid.clone() });
    }
    if let Some(decision) = sleep(s) {
        return decision;
    }
    if let Some(decision) = memory(s) {
        return decision;
    }
    if let Some(decision) = join(s) {
        return decision;
    }
    let Some(instruction) = instruction(member, formed) else { return wait(Reason::NotKnownYet) };
    match &s.facts.pod {
        Presence::Unknown => wait(Reason::NotKnownYet),
        Presence::Absent if !member.stays() && not_asked_yet(s) => wait_soon(Reason::NotKnownYet),
        // A node that throws each Pod out again must not be flooded with them.
        Presence::Absent if s.now < s.facts.thrown_out.until => {
            MemberDecision::Wait { reason: Reason::PodEnded, again: s.facts.thrown_out.until.since(s.now) }
        }
        Presence::Absent => {
            let pvc_uid = pvc.map(|pvc| pvc.uid.clone());
            MemberDecision::Act(MemberAction::CreatePod { instruction, pvc_uid })
        }
        Presence::Present(pod) if !pod.ours => wait(Reason::ForeignObject),
        Presence::Present(pod) if pod.deleting => wait(Reason::PodTerminating),
        Presence::Present(pod) if pod.ended => {
            MemberDecision::Act(MemberAction::DeletePod { pod_uid: pod.uid.clone(), why: Reason::PodEnded })
        }
        // Its work is done, or it came too late to be wanted.
        Presence::Present(pod) if pod.rewrites => {
            MemberDecision::Act(MemberAction::DeletePod { pod_uid: pod.uid.clone(), why: Reason::Recovering })
        }
        Presence::Present(pod) => run(s, pod, instruction, formed),
    }
}

/// A member on its way out that lost its Pod is started again only when it is needed: etcd lists it, or
/// a whole turn of the guard has shown that nobody can say. Right after a start nobody has asked, and
/// the Pod may be gone because etcd has let go of the member already.
fn not_asked_yet(s: &MemberSituation) -> bool {
    matches!(s.list, ListFact::Unknown { since } if s.now.since(since) < timeouts::GUARD_TURN)
}

/// A dormant member has no Pod. Its volume is there: a Pod is not taken from under a volume that waits for it to end.
fn sleep(s: &MemberSituation) -> Option<MemberDecision> {
    let there = matches!(s.facts.pod, Presence::Present(_));
    if !s.facts.member.dormant || (there && !s.parks) {
        return None;
    }
    Some(match &s.facts.pod {
        Presence::Unknown => wait(Reason::NotKnownYet),
        Presence::Present(pod) if pod.ours && !pod.deleting => {
            MemberDecision::Act(MemberAction::DeletePod { pod_uid: pod.uid.clone(), why: Reason::Paused })
        }
        Presence::Present(pod) if pod.ours => wait(Reason::PodTerminating),
        Presence::Absent | Presence::Present(_) => wait(Reason::Paused),
    })
}

/// A joiner's place in etcd's list, and the list that it will start with.
fn join(s: &MemberSituation) -> Option<MemberDecision> {
    let member = &s.facts.member;
    if member.seed || member.recorded.member_id.is_some() {
        return None;
    }
    let listed = s.list.at(&member.peer_url);
    match (&s.list, listed) {
        (ListFact::Known { list, .. }, Some(_)) => {
            let wanted = list.initial_cluster(&member.name, &member.peer_url);
            if member.initial_cluster == wanted {
                return None;
            }
            // Membership moved before its first boot: the old list would end its process at each start.
            Some(MemberDecision::Act(MemberAction::RecordJoin { initial_cluster: wanted }))
        }
        // Nobody can say, and etcd took it once: it starts with the list that it was given then, which is ignored
        // over data. It may be the voter without which nobody can say anything ever again.
        (ListFact::Unknown { .. }, _) if !member.initial_cluster.is_empty() => None,
        // Deleted before it joined: there is nothing to add.
        _ if !member.stays() => Some(wait(Reason::MemberLeaving)),
        _ if member.initial_cluster.is_empty() => {
            Some(MemberDecision::Act(MemberAction::Ask(Change::Add { peer_url: member.peer_url.clone() })))
        }
        _ => Some(wait(Reason::RemovedFromEtcd)),
    }
}

fn run(s: &MemberSituation, pod: &PodView, instruction: JoinInstruction, formed: bool) -> MemberDecision {
    let voter_label = voter_label(s, pod, formed);
    if pod.instruction.as_ref() != Some(&instruction) || pod.voter_label != voter_label || !pod.labels_right {
        return MemberDecision::Act(MemberAction::PatchPod {
            pod_uid: pod.uid.clone(),
            instruction,
            voter_label,
        });
    }
    if let Some(decision) = restart(s, pod) {
        return decision;
    }
    if pod.ip.is_none() {
        // The watch tells when that changes.
        return wait(pod.trouble.as_ref().map_or(Reason::MemberNotStarted, PodTrouble::reason));
    }
    if !formed {
        return wait_soon(Reason::WaitingForSeed);
    }
    match &s.facts.look {
        Look::Answered { status, .. } if status.is_learner && s.facts.member.stays() => {
            MemberDecision::Act(MemberAction::Ask(Change::Promote {
                peer_url: s.facts.member.peer_url.clone(),
            }))
        }
        // The label comes as soon as the budget covers it, which the watch tells.
        look if look.serves() && !pod.voter_label => wait(Reason::InProgress),
        look if look.serves() => MemberDecision::Settled,
        Look::Answered { .. } => wait_soon(Reason::AwaitingQuorum),
        // Before its first answer nothing tells us that it listens, short of the start-up probe's second.
        Look::Silent { .. } | Look::Unknown { .. } if s.facts.member.recorded.member_id.is_none() => {
            wait_soon(Reason::MemberNotStarted)
        }
        Look::Silent { .. } | Look::Unknown { .. } => {
            MemberDecision::Wait { reason: Reason::MembersUnhealthy, again: Duration::from_secs(2) }
        }
    }
}

/// What a permit asks for: the end of the Pod that it names, and its own end once another Pod serves.
fn restart(s: &MemberSituation, pod: &PodView) -> Option<MemberDecision> {
    let member = &s.facts.member;
    let permit = member.permit.as_ref()?;
    if permit.is_done_by(pod) {
        return s.facts.look.serves().then_some(MemberDecision::Act(MemberAction::ClearPermit));
    }
    let pod_uid = pod.uid.clone();
    let why = permit.reason;
    // Nobody loses anything by the end of a process that does not run.
    if s.facts.is_dead() {
        return Some(MemberDecision::Act(MemberAction::DeletePod { pod_uid, why }));
    }
    if !s.granted {
        return Some(MemberDecision::Act(MemberAction::Ask(Change::Restart {
            peer_url: member.peer_url.clone(),
            pod_uid,
        })));
    }
    // A budget for one or two voters allows no eviction at all.
    let voters = s.list.list().map_or(0, |list| list.voters().count());
    let action = if voters > 2 {
        MemberAction::EvictPod { pod_uid, why }
    } else {
        MemberAction::DeletePod { pod_uid, why }
    };
    Some(MemberDecision::Act(action))
}

/// `role=voter` follows what the member itself says of its role, once the cluster ID is recorded:
/// before that nobody's write may be acknowledged, since we could not recognise the cluster again.
/// While it does not answer the label stays as it is, and it is not given before the disruption budget covers it.
fn voter_label(s: &MemberSituation, pod: &PodView, formed: bool) -> bool {
    match &s.facts.look {
        Look::Answered { status, .. } => {
            let votes = !status.is_learner && s.facts.member.recorded.member_id == Some(status.member_id);
            formed && votes && (pod.voter_label || s.budget_covers_label)
        }
        Look::Silent { .. } | Look::Unknown { .. } => formed && pod.voter_label,
    }
}

/// What the last look adds to the member's status record.
pub(crate) fn record(s: &MemberSituation, pod: Option<&PodView>) -> Option<MemberAction> {
    let old = &s.facts.member.recorded;
    let Owner::Present { cluster_id, .. } = s.owner else { return None };
    let mut new = old.clone();
    let keeps = s.facts.member.memory && old.member_id.is_some() && old.pod_uid.is_some();
    if let Some(pod) = pod.filter(|p| p.ours && !keeps) {
        new.pod_uid = Some(pod.uid.clone());
    }
    match &s.facts.look {
        // An answer from another cluster or another member is no news about this one.
        Look::Answered { status, .. }
            if Some(status.cluster_id) == cluster_id && is_me(old.member_id, status.member_id, s) =>
        {
            new.member_id = Some(status.member_id);
            new.is_voter = !status.is_learner;
            new.ready = s.facts.look.serves();
            new.version = status.version.or(old.version);
        }
        Look::Answered { .. } | Look::Silent { .. } => new.ready = false,
        Look::Unknown { .. } => {}
    }
    if new == *old {
        return None;
    }
    // The Pod's UID alone is not worth a write: it comes along with the next one.
    let only_pod = MemberRecord { pod_uid: old.pod_uid.clone(), ..new.clone() } == *old;
    if only_pod && !new.ready { None } else { Some(MemberAction::Record(new)) }
}

/// A first answer counts only if etcd's list has that ID at this member's peer URL, or, for the
/// seed, as the cluster's first member; afterwards the ID never changes.
fn is_me(recorded: Option<MemberId>, answered: MemberId, s: &MemberSituation) -> bool {
    match recorded {
        Some(id) => id == answered,
        None => s.list.at(&s.facts.member.peer_url).map_or(s.facts.member.seed, |m| m.id == answered),
    }
}
