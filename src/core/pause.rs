//! Decides how a cluster is paused and woken: `replicas: 0` leaves one member, dormant, whose Pod is gone and whose
//! EtcdMember and volume stay. Does no I/O.
//!
//! Invariant: what is to be kept is never deleted. The intent stands on the EtcdMember itself (`spec.dormant`), so
//! no second object and no second cache can take it for a departure (SZ-04).

use crate::{
    cluster::{ClusterAction, ClusterDecision},
    reason::Reason,
    view::{ClusterSituation, ListFact, MemberFacts, Presence},
    volume::is_volume_doomed,
};

/// The part of the way to or from the pause that is due; none while the set of members is too large to pause, or
/// when nothing is paused and nothing is to be.
pub(crate) fn pause(s: &ClusterSituation, wanted: usize) -> Option<ClusterDecision> {
    // An EtcdMember that a former life of the operator made late is let go with etcd's word, as any other.
    if wanted > 0 || s.members.len() > 1 {
        return wake(s);
    }
    let [last] = s.members.as_slice() else { return None };
    if last.member.dormant {
        let gone = matches!(last.pod, Presence::Absent);
        return Some(if gone {
            ClusterDecision::Settled
        } else {
            ClusterDecision::Wait(Reason::PodTerminating)
        });
    }
    // A volume that was deleted stays only as long as its Pod does.
    if is_volume_doomed(&last.pvc, &last.member.recorded) {
        return Some(ClusterDecision::Wait(Reason::VolumeMissing));
    }
    Some(if is_the_cluster(s, last) {
        ClusterDecision::Act(ClusterAction::ParkMember {
            name: last.member.name.clone(),
            uid: last.member.uid.clone(),
        })
    } else {
        ClusterDecision::Wait(Reason::NotKnownYet)
    })
}

/// The next dormant member wakes.
pub(crate) fn wake(s: &ClusterSituation) -> Option<ClusterDecision> {
    let dormant = s.members.iter().find(|m| m.member.dormant)?;
    let (name, uid) = (dormant.member.name.clone(), dormant.member.uid.clone());
    Some(ClusterDecision::Act(ClusterAction::WakeMember { name, uid }))
}

/// Whether this member alone is the cluster: etcd lists nobody else, or it does not run and there is nobody who
/// could be asked.
fn is_the_cluster(s: &ClusterSituation, last: &MemberFacts) -> bool {
    match &s.list {
        ListFact::Known { list, .. } => {
            list.members.len() == 1 && list.at(&last.member.peer_url).is_some_and(|m| !m.is_learner)
        }
        ListFact::Unknown { .. } => {
            let recorded = &last.member.recorded;
            last.is_dead() && recorded.member_id.is_some() && recorded.is_voter
        }
    }
}

/// Whether the cluster is to be paused: by its spec, and by what is worked towards.
pub fn parks(s: &ClusterSituation) -> bool {
    s.wanted() == Some(0) && s.cluster.replicas == 0
}

/// Whether the cluster is paused: nothing runs, nothing is to run, and its data waits.
pub fn is_paused(s: &ClusterSituation) -> bool {
    let sleeps = |m: &MemberFacts| m.member.dormant && matches!(m.pod, Presence::Absent);
    let formed = s.cluster.recorded.cluster_id.is_some();
    let asleep =
        if formed { !s.members.is_empty() && s.members.iter().all(sleeps) } else { s.members.is_empty() };
    parks(s) && asleep
}

/// What a person is told about the data of a paused cluster.
pub(crate) fn words(s: &ClusterSituation) -> String {
    match s.members.first() {
        Some(m) if m.member.memory => format!(
            "paused; member {} kept its data in memory, so it is gone. Delete the EtcdCluster",
            m.member.name
        ),
        Some(m) => format!(
            "paused; the data stays on PVC data-{} of member {}. Set replicas to resume",
            m.member.name, m.member.name
        ),
        None => "created with replicas 0: nothing was made, and there is no data yet. Set replicas to begin"
            .into(),
    }
}
