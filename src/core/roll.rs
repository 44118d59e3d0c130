//! Decides how a changed spec reaches the members that exist: labels in place, volumes one at a time, all else by
//! restarting one Pod at a time. Does no I/O.
//!
//! What counts is spec against spec: an EtcdMember's against the target that the cluster works towards. Never a
//! Pod against what this build would render, so a new build of the operator rolls nothing (UP-08), and never what
//! was there when the cluster was taken over, which waits for the next edit of the spec.

use std::time::Duration;

use crate::{
    cluster::{ClusterAction, ClusterDecision, delete},
    ids::{MemberName, Uid},
    reason::Reason,
    version::EtcdVersion,
    view::{ClusterSituation, Drift, MemberFacts, PodView, Presence, Target},
};

/// What a member is made from, as far as a changed spec must reach it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Blueprint {
    /// The version of etcd; none if it cannot be read.
    pub version: Option<EtcdVersion>,
    /// Bytes of its volume; none if the quantity cannot be read.
    pub size: Option<u64>,
    /// Everything that only another Pod brings about, as one comparable text.
    pub pod: String,
    /// Labels and annotations, as one comparable text. They reach objects in place.
    pub metadata: String,
}

/// The leave to restart a member, written on its EtcdMember before anything is asked, and cleared when the member
/// is a voter again that serves. It is the intent, so a restart that nobody remembers is still made once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Permit {
    /// Why.
    pub reason: Reason,
    /// The Pod that is to go; none if there was none when the permit was written.
    pub pod_uid: Option<Uid>,
    /// `metadata.generation` of the EtcdMember with the spec that the permit brings about: a Pod made from an earlier
    /// one, by whoever had not seen it yet, goes as well. 0 where the spec stays the same.
    pub generation: u64,
}

impl Permit {
    /// Whether this Pod is the restarted one.
    pub fn is_done_by(&self, pod: &PodView) -> bool {
        self.pod_uid.as_ref() != Some(&pod.uid) && pod.made_from >= self.generation
    }

    /// As it stands in an annotation.
    pub fn to_text(&self) -> String {
        let pod_uid = self.pod_uid.as_ref().map_or("", Uid::as_str);
        format!("{}/{}/{pod_uid}", self.reason, self.generation)
    }

    /// A permit from its annotation; none if it was damaged, so that nothing rests on it.
    pub fn from_text(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '/');
        let (reason, generation, pod_uid) = (parts.next()?, parts.next()?, parts.next()?);
        let pod_uid = (!pod_uid.is_empty()).then(|| pod_uid.into());
        Some(Self { reason: Reason::named(reason)?, pod_uid, generation: generation.parse().ok()? })
    }
}

/// Which part of a member's spec is brought up to the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// Labels and annotations.
    Metadata,
    /// The size of its volume.
    Size,
    /// All the rest, which another Pod brings about.
    Pod,
}

fn update(m: &MemberFacts, part: Part, permit: Option<Permit>) -> ClusterDecision {
    let (name, uid): (MemberName, Uid) = (m.member.name.clone(), m.member.uid.clone());
    ClusterDecision::Act(ClusterAction::UpdateMember { name, uid, part, permit })
}

/// The target, if members that exist are to follow it.
fn followed(s: &ClusterSituation) -> Option<&Target> {
    s.cluster.recorded.target.as_ref().filter(|_| s.cluster.recorded.drift == Some(Drift::Rolled))
}

/// Written together with the spec, which makes it the member's next generation.
fn permit(m: &MemberFacts, reason: Reason, pod_uid: Option<Uid>) -> Permit {
    let generation = if reason == Reason::VolumeGrows { 0 } else { m.member.generation + 1 };
    Permit { reason, pod_uid, generation }
}

/// Why its Pod must be another one, if it must.
fn pod_drift(target: &Target, m: &MemberFacts) -> Option<Reason> {
    let (has, wants) = (&m.member.blueprint, &target.blueprint);
    if has.version != wants.version {
        return Some(Reason::VersionDiffers);
    }
    (has.pod != wants.pod).then_some(Reason::SpecChanged)
}

/// Whether its Pod was made before its spec last changed what only another Pod brings about: with OnDelete, or as the spec
/// changed. A Pod that does not tell what it was made from is not this operator's, or older than the note (UP-08).
fn is_behind(m: &MemberFacts) -> bool {
    // Never more than there can be, or no Pod would ever be new enough. What a permit ends already is not due again.
    let newest = m.member.pod_generation.min(m.member.generation);
    let permitted = |pod: &PodView| m.member.permit.as_ref().is_some_and(|permit| !permit.is_done_by(pod));
    m.pod.present().is_some_and(|pod| pod.ours && (1..newest).contains(&pod.made_from) && !permitted(pod))
}

/// Why the Pod must be another one than the present, if it must.
fn renewal(target: &Target, m: &MemberFacts) -> Option<Reason> {
    pod_drift(target, m).or_else(|| is_behind(m).then_some(Reason::SpecChanged))
}

/// What reaches members in place, whatever their health: labels at once, volumes one at a time.
pub(crate) fn in_place(s: &ClusterSituation) -> Option<ClusterDecision> {
    let target = followed(s)?;
    let staying = || s.members.iter().filter(|m| m.member.stays());
    if let Some(m) = staying().find(|m| m.member.blueprint.metadata != target.blueprint.metadata) {
        return Some(update(m, Part::Metadata, None));
    }
    let smaller = |m: &&MemberFacts| !m.member.memory && m.member.blueprint.size < target.blueprint.size;
    for m in staying() {
        let Some(reason) = pod_drift(target, m) else { continue };
        // With OnDelete whatever Pod comes next is made from it.
        if !s.cluster.rolls {
            return Some(update(m, Part::Pod, None));
        }
        // A Pod that is to come takes it up, a dormant member's as well. One may be on its way that was made from the
        // old spec, so a permit is written all the same; but a restart would cost a member its data in memory, so such a
        // one is replaced when its Pod has come.
        if matches!(m.pod, Presence::Absent) {
            let permit = (!m.member.memory).then(|| permit(m, reason, None));
            return Some(update(m, Part::Pod, permit));
        }
    }
    if staying().any(is_growing) {
        return None;
    }
    staying().find(smaller).map(|m| update(m, Part::Size, None))
}

/// Whether its volume is on its way to the size that its spec says.
fn is_growing(m: &MemberFacts) -> bool {
    let wants = m.member.blueprint.size;
    m.pvc.present().is_some_and(|pvc| pvc.ours && pvc.capacity.is_some() && pvc.capacity < wants)
        && !m.member.memory
}

/// A member that does not run and was made from another spec: the correction reaches it before anything else, for it
/// may be what the mistake has broken (UP-05).
pub(crate) fn broken(s: &ClusterSituation) -> Option<ClusterDecision> {
    let target = followed(s).filter(|_| s.cluster.rolls)?;
    s.members.iter().filter(|m| m.member.stays() && m.is_dead()).find_map(|m| renew(m, renewal(target, m)?))
}

/// Another Pod from the new spec; none while there is no Pod of ours that could go. Data in memory would go with the
/// Pod, so such a member is replaced: its successor is a voter before it leaves.
fn renew(m: &MemberFacts, reason: Reason) -> Option<ClusterDecision> {
    let pod = m.pod.present().filter(|p| p.ours && !p.deleting)?;
    if m.member.memory {
        return Some(delete(m, reason));
    }
    Some(update(m, Part::Pod, Some(permit(m, reason, Some(pod.uid.clone())))))
}

/// The next restart, once everybody serves. Followers first, the leader last: each restart of a leader costs an
/// election.
pub(crate) fn roll(s: &ClusterSituation) -> Option<ClusterDecision> {
    if s.restarting().is_some() {
        return Some(ClusterDecision::Wait(Reason::RollingUpdate));
    }
    let target = followed(s).filter(|_| s.cluster.rolls)?;
    let leader = s.leader();
    let due = |m: &&MemberFacts| renewal(target, m).is_some() || wants_restart(s, m);
    let next =
        s.members.iter().filter(|m| m.member.stays()).filter(due).min_by_key(|m| {
            (m.member.recorded.member_id == leader, m.member.created, m.member.name.clone())
        })?;
    renew(next, renewal(target, next).unwrap_or(Reason::VolumeGrows))
}

/// Drivers that grow a file system under a running Pod say for a moment that it is pending. After this long it needs
/// another Pod; the kubelet looks at its volumes every few seconds.
const ONLINE: Duration = Duration::from_secs(120);

/// Its volume has grown, and its file system waits for another Pod than the present one.
fn wants_restart(s: &ClusterSituation, m: &MemberFacts) -> bool {
    let since = m.pvc.present().filter(|pvc| pvc.ours).and_then(|pvc| pvc.resize_pending);
    since.is_some_and(|since| {
        s.now.since(since) >= ONLINE && m.pod.present().is_some_and(|pod| pod.created < since)
    })
}

/// Members that run, and were made from another spec than the cluster's, whether that is to reach them or not.
pub(crate) fn outdated(s: &ClusterSituation) -> Vec<&MemberFacts> {
    let Some(target) = &s.cluster.recorded.target else { return Vec::new() };
    s.members.iter().filter(|m| m.member.stays() && pod_drift(target, m).is_some()).collect()
}
