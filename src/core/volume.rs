//! Decides what a member's data rests on, and whether that is still there: the recorded volume and no other, or the
//! memory of the one Pod that has it. Does no I/O.

use crate::{
    etcd::ListedMember,
    member::{MemberAction, MemberDecision, wait},
    reason::Reason,
    view::{ListFact, MemberRecord, MemberSituation, MemberView, Owner, PodView, Presence, PvcView},
};

/// Whether the volume that holds a member's data is gone, on its way out, or another one.
pub fn is_volume_doomed(pvc: &Presence<PvcView>, recorded: &MemberRecord) -> bool {
    match (pvc, &recorded.pvc_uid) {
        (Presence::Present(pvc), Some(uid)) => !pvc.ours || pvc.deleting || pvc.uid != *uid,
        (Presence::Absent, Some(_)) => true,
        (Presence::Unknown, _) | (_, None) => false,
    }
}

/// Whether the data of a member that keeps it in memory is gone with its Pod, or belongs to a Pod that is not the
/// present one. A Pod that ended before its process had joined had no data.
pub fn is_memory_lost(member: &MemberView, pod: &Presence<PodView>, list: &ListFact) -> bool {
    let recorded = &member.recorded;
    let joined = list.at(&member.peer_url).is_some_and(ListedMember::started);
    if !member.memory || !(recorded.member_id.is_some() || joined) {
        return false;
    }
    match pod {
        Presence::Unknown => false,
        Presence::Absent => true,
        Presence::Present(pod) => {
            pod.ended || recorded.pod_uid.as_ref().is_some_and(|uid| !pod.ours || pod.uid != *uid)
        }
    }
}

/// Whether the process in this Pod can be the member. A Pod of a member in memory that came after the recorded one, sent
/// by a former life of the operator, holds nothing; if it is the seed's, it forms a cluster with the very same IDs, and
/// whoever asked it would go on with nothing.
pub fn may_hold_data(member: &MemberView, pod: &PodView) -> bool {
    !member.memory || member.recorded.pod_uid.as_ref().is_none_or(|uid| *uid == pod.uid)
}

/// A member with its data in memory gets no second Pod once it may have promised anything, and its Pod is put on
/// record as soon as it is seen.
pub(crate) fn memory(s: &MemberSituation) -> Option<MemberDecision> {
    let member = &s.facts.member;
    if !member.memory {
        return None;
    }
    if is_memory_lost(member, &s.facts.pod, &s.list) {
        return Some(wait(Reason::MemoryLost));
    }
    match &s.facts.pod {
        Presence::Present(pod) if pod.ours && member.recorded.pod_uid.as_ref() != Some(&pod.uid) => {
            let record = MemberRecord { pod_uid: Some(pod.uid.clone()), ..member.recorded.clone() };
            Some(MemberDecision::Act(MemberAction::Record(record)))
        }
        // Its first Pod is gone. It may have joined, or formed the cluster, since anybody looked.
        Presence::Absent if member.recorded.pod_uid.is_some() => match (&s.owner, &s.list) {
            (Owner::Present { cluster_id: None, confirmed: false, .. }, _) => {
                Some(MemberDecision::Act(MemberAction::ConfirmOwner))
            }
            (Owner::Present { cluster_id: Some(_), .. }, ListFact::Unknown { .. }) => {
                Some(wait(Reason::NotKnownYet))
            }
            (Owner::Present { cluster_id: Some(_), .. }, _) if member.seed => Some(wait(Reason::MemoryLost)),
            _ => None,
        },
        _ => None,
    }
}

/// The volume that the member may start on: the recorded one and no other, recorded before use. None for a member
/// that keeps its data in memory.
pub(crate) fn volume(s: &MemberSituation) -> Result<Option<&PvcView>, MemberDecision> {
    let recorded = &s.facts.member.recorded;
    if s.facts.member.memory {
        return Ok(None);
    }
    match (&s.facts.pvc, &recorded.pvc_uid) {
        (Presence::Unknown, _) => Err(wait(Reason::NotKnownYet)),
        (Presence::Present(pvc), _) if !pvc.ours => Err(wait(Reason::ForeignObject)),
        (Presence::Present(pvc), Some(uid)) if pvc.uid != *uid => Err(wait(Reason::VolumeReplaced)),
        (Presence::Present(pvc), _) if pvc.deleting => Err(wait(Reason::VolumeMissing)),
        (Presence::Present(pvc), Some(_)) => Ok(Some(pvc)),
        (Presence::Present(pvc), None) => Err(MemberDecision::Act(MemberAction::Record(MemberRecord {
            pvc_uid: Some(pvc.uid.clone()),
            ..recorded.clone()
        }))),
        // A member that has ever had data never gets an empty volume under the same identity.
        (Presence::Absent, Some(_)) => Err(wait(Reason::VolumeMissing)),
        (Presence::Absent, None) if recorded.member_id.is_some() => Err(wait(Reason::VolumeMissing)),
        (Presence::Absent, None) => Err(MemberDecision::Act(MemberAction::CreatePvc)),
    }
}

/// A Pod that no node has taken while the recorded volume is not there. It would start on whatever
/// PVC comes to bear that name, so it must not go on waiting. Nothing runs in it yet.
pub(crate) fn pod_that_waits_for_a_volume(s: &MemberSituation) -> Option<MemberDecision> {
    s.facts.member.recorded.pvc_uid.as_ref()?;
    let why = match &s.facts.pvc {
        Presence::Unknown => return None,
        Presence::Absent => Reason::VolumeMissing,
        Presence::Present(pvc) if pvc.deleting => Reason::VolumeMissing,
        Presence::Present(_) => Reason::VolumeReplaced,
    };
    let pod = s.facts.pod.present().filter(|p| p.ours && !p.deleting)?;
    let taken = pod.node.is_some() || pod.ip.is_some() || pod.started;
    (!taken).then(|| MemberDecision::Act(MemberAction::DeletePod { pod_uid: pod.uid.clone(), why }))
}
