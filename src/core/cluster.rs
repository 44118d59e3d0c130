//! Decides what a cluster needs next: its Services, its disruption budget, and the *set* of its members. Does no I/O,
//! never touches a Pod, never changes etcd's membership. What the status says is in [`crate::report`].

use std::time::Duration;

use crate::{
    departure::Departure,
    healing::repair,
    ids::{MemberName, Uid},
    pause::{pause, wake},
    reason::Reason,
    roll::{self, Part, Permit},
    view::{ClusterSituation, MemberFacts, ServiceKind, ServiceState},
};

/// What a cluster does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClusterDecision {
    /// This one effect.
    Act(ClusterAction),
    /// Nothing now, because of this.
    Wait(Reason),
    /// Nothing until a person acts: every effect on this cluster is off, its members' too.
    HandsOff {
        /// What stops us.
        reason: Reason,
        /// The facts, for the condition.
        facts: String,
    },
    /// As the spec says.
    Settled,
}

/// One effect of a cluster supervisor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClusterAction {
    /// Create a Service.
    CreateService(ServiceKind),
    /// Put an edited Service right.
    RepairService(ServiceKind),
    /// Create the PodDisruptionBudget, or put it right, with this floor.
    PutBudget {
        /// How many voters' Pods an eviction must leave.
        min_available: usize,
        /// It lets no Pod be evicted at all, which a person is told when it is created.
        blocks: bool,
    },
    /// Delete the PodDisruptionBudget, which would guard nobody.
    DeleteBudget,
    /// Create an EtcdMember under a new name, after a live LIST has shown that the same decision
    /// still stands.
    CreateMember {
        /// It forms the cluster.
        seed: bool,
    },
    /// Delete an EtcdMember, which starts its way out.
    DeleteMember {
        /// Its name.
        name: MemberName,
        /// Its UID.
        uid: Uid,
        /// Why.
        why: Reason,
    },
    /// Set `spec.dormant`: its Pod is to go, its EtcdMember and its volume stay.
    ParkMember {
        /// Its name.
        name: MemberName,
        /// Its UID.
        uid: Uid,
    },
    /// Clear `spec.dormant`: its Pod is to run again, on the volume that it had.
    WakeMember {
        /// Its name.
        name: MemberName,
        /// Its UID.
        uid: Uid,
    },
    /// Bring a part of an EtcdMember's spec up to the target, and with it write the permit to restart it.
    UpdateMember {
        /// Its name.
        name: MemberName,
        /// Its UID.
        uid: Uid,
        /// Which part.
        part: Part,
        /// The restart that brings it about; none where none is needed.
        permit: Option<Permit>,
    },
    /// Read the EtcdMembers from the API server itself: the store does not account for something.
    ConfirmMembers,
}

impl ClusterAction {
    /// Its name, as metrics and tests count it.
    pub fn name(&self) -> &'static str {
        match self {
            ClusterAction::CreateService(_) => "CreateService",
            ClusterAction::RepairService(_) => "RepairService",
            ClusterAction::PutBudget { .. } => "PutBudget",
            ClusterAction::DeleteBudget => "DeleteBudget",
            ClusterAction::CreateMember { .. } => "CreateMember",
            ClusterAction::DeleteMember { .. } => "DeleteMember",
            ClusterAction::ParkMember { .. } => "ParkMember",
            ClusterAction::WakeMember { .. } => "WakeMember",
            ClusterAction::UpdateMember { part: Part::Metadata, .. } => "UpdateMetadata",
            ClusterAction::UpdateMember { part: Part::Size, .. } => "GrowVolume",
            ClusterAction::UpdateMember { part: Part::Pod, permit: None, .. } => "UpdateMember",
            ClusterAction::UpdateMember { part: Part::Pod, permit: Some(_), .. } => "RollMember",
            ClusterAction::ConfirmMembers => "ConfirmMembers",
        }
    }
}

/// How often a settled cluster is looked at again without being told to.
pub const STEADY_LOOK: Duration = Duration::from_secs(30);

fn act(action: ClusterAction) -> ClusterDecision {
    ClusterDecision::Act(action)
}

/// What the cluster does next.
pub fn decide(s: &ClusterSituation) -> ClusterDecision {
    if s.cluster.deleting {
        return ClusterDecision::Wait(Reason::ClusterGone);
    }
    if let Some(stop) = hands_off(s) {
        return match (&stop, rival_seed(s)) {
            (ClusterDecision::HandsOff { reason: Reason::AnotherMemberFirst, .. }, Some(rival)) => {
                delete(rival, Reason::AnotherMemberFirst)
            }
            _ => stop,
        };
    }
    if let Some(decision) = crate::recovery::decide(s) {
        return decision;
    }
    if let Some(decision) = services(s).or_else(|| crate::disruption::decide(s)) {
        return decision;
    }
    let Some(wanted) = s.wanted() else { return ClusterDecision::Wait(Reason::InProgress) };
    if s.cluster.recorded.cluster_id.is_none() { bootstrap(s, wanted) } else { keep(s, wanted) }
}

/// What only a person can judge. The order is that of the harm done by going on.
pub fn hands_off(s: &ClusterSituation) -> Option<ClusterDecision> {
    let stop = |reason, facts: String| Some(ClusterDecision::HandsOff { reason, facts });
    if s.cluster.paused {
        return stop(Reason::ReconcilePaused, "paused by annotation; remove it to go on".into());
    }
    if !s.cluster.refused.is_empty() {
        let all = s.cluster.refused.iter().map(|r| format!("{}: {}", r.field, r.why)).collect::<Vec<_>>();
        let not_yet = s.cluster.refused.iter().all(|r| r.not_yet);
        return stop(
            if not_yet { Reason::FieldNotSupportedYet } else { Reason::InvalidSpec },
            all.join("; "),
        );
    }
    if let Some(rival) = rival_seed(s) {
        return stop(
            Reason::AnotherMemberFirst,
            format!("there are two first members; {} is removed before the other goes on", rival.member.name),
        );
    }
    let Some(recorded) = s.cluster.recorded.cluster_id else { return stranger_at_seed(s) };
    if let Some(list) = s.list.list()
        && list.cluster_id != recorded
    {
        return stop(
            Reason::ForeignClusterID,
            format!("its voters report cluster ID {}, recorded is {recorded}", list.cluster_id),
        );
    }
    for m in &s.members {
        // A removed member's address that was added again, by hand or by a call that landed late: another member,
        // under whose name nothing of ours may be done.
        if let (Some(listed), Some(id)) = (s.list.at(&m.member.peer_url), m.member.recorded.member_id)
            && listed.id != id
        {
            return stop(
                Reason::MemberIdMismatch,
                format!(
                    "etcd lists {} at the peer URL of member {}, whose ID is {id}; remove it with etcdctl member remove {}",
                    listed.id, m.member.name, listed.id
                ),
            );
        }
        let Some(status) = m.look.status() else { continue };
        if status.cluster_id != recorded {
            return stop(
                Reason::ForeignClusterID,
                format!(
                    "member {} reports cluster ID {}, recorded is {recorded}",
                    m.member.name, status.cluster_id
                ),
            );
        }
        if let Some(id) = m.member.recorded.member_id
            && id != status.member_id
        {
            return stop(
                Reason::MemberIdMismatch,
                format!("member {} reports member ID {}, recorded is {id}", m.member.name, status.member_id),
            );
        }
    }
    if let Some(stranger) = stranger(s)
        && confirmed(s)
    {
        return stop(Reason::UnexplainedMember, stranger);
    }
    None
}

/// Before the cluster is formed: the seed's address answers as another cluster than the one that the seed can
/// form. Addresses are used again, and what is recorded as the cluster ID is never questioned afterwards.
fn stranger_at_seed(s: &ClusterSituation) -> Option<ClusterDecision> {
    let seed = s.members.iter().find(|m| m.member.seed && m.member.stays())?;
    let answered = seed.look.status()?.cluster_id;
    let facts = || {
        format!(
            "the address of {} answers as cluster {answered}, and the cluster that it forms is {}; nothing is recorded",
            seed.member.name, seed.member.founds
        )
    };
    (answered != seed.member.founds)
        .then(|| ClusterDecision::HandsOff { reason: Reason::ForeignClusterID, facts: facts() })
}

/// Before the cluster is formed: a second seed. A create of a former life of the operator can land
/// after its successor has found nothing and made a seed of its own. Each would form a cluster, so
/// neither does anything until one of them is on its way out: the one that has not got as far.
fn rival_seed(s: &ClusterSituation) -> Option<&MemberFacts> {
    if s.cluster.recorded.cluster_id.is_some() {
        return None;
    }
    let seeds = || s.members.iter().filter(|m| m.member.seed && m.member.stays());
    let rank =
        |m: &&MemberFacts| (m.member.recorded.pvc_uid.is_none(), m.member.created, m.member.name.clone());
    if seeds().count() < 2 { None } else { seeds().max_by_key(rank) }
}

/// A member of etcd's list that no EtcdMember accounts for.
fn stranger(s: &ClusterSituation) -> Option<String> {
    let list = s.list.list()?;
    let unknown = list.members.iter().find(|l| !s.members.iter().any(|m| l.is_at(&m.member.peer_url)))?;
    let urls: Vec<&str> = unknown.peer_urls.iter().map(|u| u.as_str()).collect();
    Some(format!(
        "etcd lists {} {} (name {:?}) at {}, which no EtcdMember accounts for; remove it with etcdctl member remove if nobody needs it",
        if unknown.is_learner { "learner" } else { "voter" },
        unknown.id,
        unknown.name,
        urls.join(" "),
    ))
}

/// Whether the EtcdMembers were read live after the list that they are compared with.
fn confirmed(s: &ClusterSituation) -> bool {
    match (&s.list, s.members_confirmed) {
        (crate::view::ListFact::Known { at, .. }, Some(read)) => read >= *at,
        _ => false,
    }
}

fn services(s: &ClusterSituation) -> Option<ClusterDecision> {
    for kind in [ServiceKind::Headless, ServiceKind::Client] {
        match s.services.get(&kind).copied().unwrap_or(ServiceState::Unknown) {
            ServiceState::Unknown => return Some(ClusterDecision::Wait(Reason::NotKnownYet)),
            ServiceState::Absent => return Some(act(ClusterAction::CreateService(kind))),
            ServiceState::Drifted => return Some(act(ClusterAction::RepairService(kind))),
            // A foreign headless Service would give our members no names or wrong ones. A foreign client
            // Service harms nobody who is running; it is reported, and the members go on.
            ServiceState::Foreign if kind == ServiceKind::Headless && s.members.is_empty() => {
                return Some(ClusterDecision::Wait(Reason::ForeignObject));
            }
            ServiceState::Foreign | ServiceState::Right => {}
        }
    }
    None
}

fn bootstrap(s: &ClusterSituation, wanted: usize) -> ClusterDecision {
    if s.members.is_empty() && wanted == 0 {
        return ClusterDecision::Settled;
    }
    if s.members.is_empty() {
        return act(ClusterAction::CreateMember { seed: true });
    }
    // Only a cluster that has formed is ever parked: somebody has done this by hand.
    if let Some(decision) = wake(s) {
        return decision;
    }
    // The spec was corrected, and the seed was made from what it said before and does not run.
    if let Some(seed) = outdated_seed(s).filter(|m| m.is_dead()) {
        return delete(seed, Reason::SpecChanged);
    }
    // A seed whose deletion was asked for leaves first: two seeds could form two clusters.
    ClusterDecision::Wait(Reason::WaitingForSeed)
}

/// The seed of a cluster that has not formed, if the spec has changed since it was made. Until it is on its
/// way out the target stays the old one (see [`crate::report`]), so that this is seen again after a restart.
pub(crate) fn outdated_seed(s: &ClusterSituation) -> Option<&MemberFacts> {
    let target = s.cluster.recorded.target.as_ref()?;
    let changed = s.cluster.recorded.cluster_id.is_none() && target.template != s.cluster.template;
    s.members.iter().find(|m| changed && m.member.stays() && m.member.recorded.member_id.is_none())
}

fn keep(s: &ClusterSituation, wanted: usize) -> ClusterDecision {
    if s.members.is_empty() {
        // The volumes are gone with them. Forming a new cluster under this name would hide that.
        return ClusterDecision::Wait(Reason::AllMembersLost);
    }
    if stranger(s).is_some() && !confirmed(s) {
        return act(ClusterAction::ConfirmMembers);
    }
    // A dormant member takes up the spec before it wakes.
    if let Some(decision) = roll::in_place(s).or_else(|| pause(s, wanted)).or_else(|| roll::broken(s)) {
        return decision;
    }
    let staying: Vec<&MemberFacts> = s.members.iter().filter(|m| m.member.stays()).collect();
    let leaving = s.members.iter().any(|m| !m.member.stays() && s.is_listed(m));
    // The members' data differ: whoever is removed or added now may be the one that was right. Unless a person has said
    // who is to go.
    let corrupt = s.has_alarm("CORRUPT");
    if corrupt && !leaving {
        return ClusterDecision::Wait(Reason::CorruptAlarm);
    }
    if !corrupt && let Some(decision) = repair(s, &staying) {
        return decision;
    }
    // A pause keeps one member, and makes none in the place of one that was deleted meanwhile.
    if wanted == 0 && staying.len() <= 1 {
        return ClusterDecision::Wait(Reason::MemberLeaving);
    }
    if staying.len() > wanted.max(1) {
        return if leaving { ClusterDecision::Wait(Reason::MemberLeaving) } else { shrink(s, &staying) };
    }
    let voters = s.members.iter().filter(|m| s.is_voter(m)).count();
    let joining = staying.iter().any(|m| !s.is_voter(m));
    if joining {
        return ClusterDecision::Wait(Reason::MemberJoining);
    }
    if staying.len() < wanted {
        // A replacement for a healthy member comes before it goes, one at a time, so there may be
        // one voter more than wanted but not two; a dead one goes first, etcd insists on it.
        if voters > wanted {
            return ClusterDecision::Wait(Reason::MemberLeaving);
        }
        // The spec asks for another number by now, which the next status records: nobody is made for the old one.
        if wanted != s.cluster.replicas {
            return ClusterDecision::Wait(Reason::InProgress);
        }
        if s.list.list().is_none() {
            return ClusterDecision::Wait(Reason::NotKnownYet);
        }
        if s.serving() < voters {
            return ClusterDecision::Wait(unhealthy(s));
        }
        // Who comes is made from the new spec; whoever is there takes it up first. A replacement does not wait.
        let rolls = if leaving { None } else { roll::roll(s) };
        return rolls.unwrap_or(act(ClusterAction::CreateMember { seed: false }));
    }
    // Also one that the list does not have: an addition may be on its way to it, and what it leaves behind is
    // not what the spec asks for. Its finalizer goes when all that is certain.
    if leaving || s.members.iter().any(|m| !m.member.stays() && m.member.finalizer) {
        return ClusterDecision::Wait(Reason::MemberLeaving);
    }
    if s.serving() < wanted {
        return ClusterDecision::Wait(unhealthy(s));
    }
    if let Some(decision) = roll::roll(s) {
        return decision;
    }
    // A voter that clients are not led to yet is not all that the spec asks for.
    if staying.iter().any(|m| is_hidden(m)) {
        ClusterDecision::Wait(Reason::InProgress)
    } else {
        ClusterDecision::Settled
    }
}

/// Why not everybody serves: a restart of ours, or something that was not asked for.
fn unhealthy(s: &ClusterSituation) -> Reason {
    if s.restarting().is_some() { Reason::RollingUpdate } else { Reason::MembersUnhealthy }
}

fn is_hidden(m: &MemberFacts) -> bool {
    m.pod.present().is_some_and(|pod| !pod.voter_label)
}

/// A voter serves and its label, which leads clients to it, is about to be set by its own actor. A status that
/// is written now is written again a moment later.
pub fn is_about_to_show(s: &ClusterSituation) -> bool {
    let shows = |m: &MemberFacts| s.is_voter(m) && m.look.serves() && m.member.stays() && is_hidden(m);
    s.cluster.recorded.cluster_id.is_some() && s.members.iter().any(shows)
}

pub(crate) fn delete(m: &MemberFacts, why: Reason) -> ClusterDecision {
    act(ClusterAction::DeleteMember { name: m.member.name.clone(), uid: m.member.uid.clone(), why })
}

/// One member fewer; see [`crate::shrink`] for which.
fn shrink(s: &ClusterSituation, staying: &[&MemberFacts]) -> ClusterDecision {
    match crate::shrink::first_to_go(s, staying) {
        // Taking a healthy voter while another is down would lower what the cluster can bear.
        Some(victim) if s.is_voter(victim) && !victim.is_dead() && !all_others_serve(s, victim) => {
            ClusterDecision::Wait(Reason::MembersUnhealthy)
        }
        Some(victim) => delete(victim, Reason::ScalingDown),
        None => ClusterDecision::Settled,
    }
}

fn all_others_serve(s: &ClusterSituation, victim: &MemberFacts) -> bool {
    s.members.iter().filter(|m| s.is_voter(m) && m.member.name != victim.member.name).all(|m| m.look.serves())
}

/// Whether the member may leave: see [`crate::departure`]. Here so that callers find the set's
/// decisions in one place.
pub fn may_leave(s: &ClusterSituation, name: &MemberName) -> Departure {
    crate::departure::departure(s, name)
}
