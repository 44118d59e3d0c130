//! Decides which member is to be replaced, by evidence and not by waiting. Does no I/O.
//!
//! Evidence is what leaves no other reading: the data is gone, is another member's, cannot be read, or etcd has
//! removed the member. What a person has to mend (memory, images, nodes, flags) is reported and never "healed":
//! the next member would fare the same, and one by one all of them would go (LS-05). A node that is gone is such a thing
//! unless a person has said otherwise ([`crate::lost_node`]).

use crate::{
    cluster::{ClusterDecision, delete, may_leave},
    departure::Departure,
    etcd::quorum,
    last_words::{self, Cause},
    lost_node::is_lost,
    reason::Reason,
    view::{ClusterSituation, MemberFacts, PodTrouble, Presence},
    volume::{is_memory_lost, is_volume_doomed},
};

/// So often must a process end, without known cause and without having come up in between, before its member is
/// replaced. The kubelet's pauses make that about a minute and a half (10, 20, 40 s).
pub const MANY_RESTARTS: u32 = 5;

/// A member that can never become or stay a voter makes room. One at a time, and only while a quorum of the
/// others serves. No member is special, the one that formed the cluster neither (LS-04).
pub(crate) fn repair(s: &ClusterSituation, staying: &[&MemberFacts]) -> Option<ClusterDecision> {
    let list = s.list.list()?;
    // Who is held until a replacement votes does not stand in the way of a dead one: the replacement may be the one
    // that has to go.
    let leaving = || s.members.iter().filter(|m| !m.member.stays());
    let going = leaving().any(|m| may_leave(s, &m.member.name) == Departure::Go);
    if going || s.serving() < quorum(list.voters().count()) {
        return None;
    }
    let held = leaving().any(|m| s.is_listed(m));
    let lost = staying.iter().find_map(|m| Some((m, lost(s, m)?)).filter(|(m, _)| !held || !m.look.serves()));
    lost.map(|(m, why)| delete(m, why))
}

/// Whether a deletion for this reason replaces a lost member, as against one that the spec asks for.
pub fn is_replacement(why: Reason) -> bool {
    !matches!(
        why,
        Reason::ScalingDown
            | Reason::AnotherMemberFirst
            | Reason::SpecChanged
            | Reason::VersionDiffers
            | Reason::Recovering
    )
}

/// Why a member is lost, if it is.
pub fn lost(s: &ClusterSituation, m: &MemberFacts) -> Option<Reason> {
    let list = s.list.list()?;
    let unlisted = list.at(&m.member.peer_url).is_none();
    // A seed is listed from the formation on; only a joiner has a time before it is.
    if unlisted && (m.member.seed || !m.member.initial_cluster.is_empty()) {
        return Some(Reason::RemovedFromEtcd);
    }
    if m.stalled {
        return Some(Reason::LearnerStalled);
    }
    let going = m.pod.present().is_some_and(|pod| pod.deleting);
    if is_memory_lost(&m.member, &m.pod, &s.list) || (m.member.memory && going && m.look.is_silent()) {
        return Some(Reason::MemoryLost);
    }
    if !m.member.memory && is_volume_doomed(&m.pvc, &m.member.recorded) {
        return Some(match &m.pvc {
            Presence::Present(pvc) if Some(&pvc.uid) == m.member.recorded.pvc_uid.as_ref() => {
                Reason::VolumeTerminating
            }
            Presence::Present(_) => Reason::VolumeReplaced,
            Presence::Unknown | Presence::Absent => Reason::VolumeMissing,
        });
    }
    dead_end(m).or_else(|| is_lost(s, m).then_some(Reason::NodeLost))
}

/// What its process says as it ends, if that means that it will never run again.
pub(crate) fn dead_end(m: &MemberFacts) -> Option<Reason> {
    let pod = m.pod.present().filter(|pod| pod.ours && !pod.deleting)?;
    if m.look.serves() {
        return None;
    }
    match pod.trouble.as_ref()? {
        PodTrouble::CrashLooping(words) => match last_words::cause(words) {
            // Before its first answer it may not have found the others yet, or have come with an old list.
            Cause::EmptyDataDirectory => {
                m.member.recorded.member_id.is_some().then_some(Reason::DataDirectoryEmpty)
            }
            Cause::Damaged => Some(Reason::DataDamaged),
            Cause::Unknown => (pod.restarts >= MANY_RESTARTS).then_some(Reason::PodCrashLooping),
            Cause::Inconsistent | Cause::Configuration => None,
        },
        // Its memory file system outlives the container and fills the memory again at each start (LS-07).
        PodTrouble::OutOfMemory => {
            (m.member.memory && pod.restarts >= MANY_RESTARTS).then_some(Reason::PodOutOfMemory)
        }
        PodTrouble::Unschedulable(_) | PodTrouble::ImagePull(_) | PodTrouble::CannotStart(_) => None,
    }
}
