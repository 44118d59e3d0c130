//! Decides what is told of members in trouble: whose Pod, volume or data it is, and what comes of it. Does no I/O.

use crate::{
    etcd::quorum,
    healing::dead_end,
    lost_node::is_lost,
    reason::Reason,
    view::{ClusterSituation, MemberFacts, Presence},
    volume::is_memory_lost,
};

/// After more Pods than this without an answer it is no accident. The first two come within a second.
const MANY_PODS: u32 = 3;

/// The first member whose Pod or volume is in trouble, in words.
pub(crate) fn trouble(s: &ClusterSituation) -> Option<(Reason, String)> {
    s.members.iter().filter(|m| m.member.stays()).find_map(|m| {
        let name = &m.member.name;
        if let Some(words) = volume_trouble(s, m).or_else(|| data_trouble(s, m)) {
            return Some(words);
        }
        // A person may have made the volume large enough meanwhile.
        let large = m.pvc.present().is_some_and(|pvc| pvc.requested >= m.member.blueprint.size);
        if let Some(words) = m.cannot_grow.as_ref().filter(|_| !large) {
            return Some((Reason::VolumeCannotGrow, format!("PVC data-{name} cannot grow: {words}")));
        }
        if let Some(words) = &m.refused {
            return Some((Reason::ObjectRefused, format!("member {name}: {words}")));
        }
        // A Pod that says itself what keeps it from running says more.
        let silent = m.pod.present().is_none_or(|pod| pod.trouble.is_none());
        if silent && m.thrown_out.pods > MANY_PODS {
            let words = format!(
                "{} Pods {name} in a row did not get to run etcd; the next ones come at growing intervals. See their Events",
                m.thrown_out.pods
            );
            return Some((Reason::PodEnded, words));
        }
        match &m.pod {
            Presence::Present(pod) if !pod.ours => Some((
                Reason::ForeignObject,
                format!("Pod {name} exists and is not ours; delete or rename it"),
            )),
            Presence::Present(pod) => {
                pod.trouble.as_ref().map(|t| (t.reason(), format!("Pod {name}: {}", t.words())))
            }
            Presence::Unknown | Presence::Absent => None,
        }
    })
}

/// What comes of a member whose data is lost.
fn fate(s: &ClusterSituation, m: &MemberFacts) -> &'static str {
    let voters = s.members.iter().filter(|v| s.is_voter(v)).count();
    // If it serves itself it is replaced first, so whether it counts among them does not matter.
    if m.look.serves() || s.serving() >= quorum(voters) {
        "the member is replaced"
    } else {
        "the other voters hold no quorum, so nobody is replaced; bring them back, or restore a snapshot into a new EtcdCluster"
    }
}

/// A member whose data is gone, cannot be read or cannot be reached, in words.
fn data_trouble(s: &ClusterSituation, m: &MemberFacts) -> Option<(Reason, String)> {
    let (name, fate) = (&m.member.name, fate(s, m));
    if is_memory_lost(&m.member, &m.pod, &s.list) {
        let words = format!("member {name} kept its data in its Pod's memory, and that Pod is gone; {fate}");
        return Some((Reason::MemoryLost, words));
    }
    if is_lost(s, m) {
        let words = format!("the node of member {name} has been gone for longer than is waited for; {fate}");
        return Some((Reason::NodeLost, words));
    }
    let said = m.pod.present().and_then(|pod| pod.trouble.as_ref()).map_or("", |t| t.words());
    match dead_end(m)? {
        Reason::DataDirectoryEmpty => Some((
            Reason::DataDirectoryEmpty,
            format!("the data directory of member {name} is empty, though it has had data; {fate}"),
        )),
        Reason::DataDamaged => Some((
            Reason::DataDamaged,
            format!("etcd cannot read the data of member {name} ({said}); {fate}"),
        )),
        _ => None,
    }
}

fn volume_trouble(s: &ClusterSituation, m: &MemberFacts) -> Option<(Reason, String)> {
    if m.member.memory {
        return None;
    }
    let (name, fate) = (&m.member.name, fate(s, m));
    let recorded = &m.member.recorded;
    match (&m.pvc, &recorded.pvc_uid) {
        (Presence::Present(pvc), _) if !pvc.ours => Some((
            Reason::ForeignObject,
            format!("PVC data-{name} exists and is not ours; it is left alone, delete or rename it"),
        )),
        (Presence::Present(pvc), Some(uid)) if pvc.uid != *uid => Some((
            Reason::VolumeReplaced,
            format!(
                "PVC data-{name} is another one than the recorded {uid}, so member {name} is not started on it; {fate}"
            ),
        )),
        (Presence::Present(pvc), _) if pvc.deleting => Some((
            Reason::VolumeTerminating,
            format!(
                "PVC data-{name} was deleted and stays only until its Pod ends; leave Pod {name} alone, {fate}"
            ),
        )),
        (Presence::Absent, Some(_)) => Some((
            Reason::VolumeMissing,
            format!("PVC data-{name} is gone, and with it the data of member {name}; {fate}"),
        )),
        _ => None,
    }
}

/// An alarm that some member reports.
pub(crate) fn alarm(s: &ClusterSituation) -> Option<(Reason, String)> {
    if s.has_alarm("CORRUPT") {
        let words = "etcd has raised the alarm CORRUPT: members hold different data. No member is added or removed; compare etcdctl endpoint hashkv --cluster, delete the EtcdMember that differs, then disarm the alarm";
        return Some((Reason::CorruptAlarm, words.to_owned()));
    }
    let words = "etcd has raised the alarm NOSPACE: a database is at its quota and no write is taken. Compact and defragment, or raise options.quotaBackendBytes, then disarm the alarm";
    s.has_alarm("NOSPACE").then(|| (Reason::NoSpaceAlarm, words.to_owned()))
}
