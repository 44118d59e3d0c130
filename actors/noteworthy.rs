//! Owns what is worth a wake or a write: of two looks at a process, and of a member's trouble. Pure.

use etcd_operator_core::{etcd::Look, reason::Reason, view::MemberFacts};

/// Whether a look says something that a decision could depend on, as against a moved index.
pub(crate) fn differs(before: &Look, now: &Look) -> bool {
    match (before, now) {
        (
            Look::Answered { status: a, linearizable: la, .. },
            Look::Answered { status: b, linearizable: lb, .. },
        ) => {
            la != lb
                || a.cluster_id != b.cluster_id
                || a.member_id != b.member_id
                || a.is_learner != b.is_learner
                || a.leader != b.leader
                || a.version != b.version
                || a.errors != b.errors
        }
        (Look::Silent { .. }, Look::Silent { .. }) | (Look::Unknown { .. }, Look::Unknown { .. }) => false,
        _ => true,
    }
}

/// What keeps the member from being ready, if it is worth a write: what passes by itself is not.
pub(crate) fn notable(facts: &MemberFacts, reason: Option<Reason>) -> Option<(Reason, String)> {
    if let Some(trouble) = facts.pod.present().and_then(|p| p.trouble.as_ref()) {
        return Some((trouble.reason(), trouble.words().to_owned()));
    }
    let words = match reason? {
        Reason::ForeignObject => {
            "an object of this member's name is not ours; it is left alone, delete or rename it"
        }
        Reason::VolumeMissing => "its PVC is gone; it is replaced while the others hold a quorum",
        Reason::VolumeReplaced => {
            "its PVC is another one than the recorded; it is replaced while the others hold a quorum"
        }
        Reason::MemoryLost => {
            "its data was in the memory of a Pod that is gone; it is replaced while the others hold a quorum"
        }
        Reason::Paused => "the cluster is paused; its data stays",
        Reason::RemovedFromEtcd => "etcd does not list it any more",
        Reason::PodEnded => {
            "its Pods do not get to run etcd; new ones come at growing intervals, see their Events"
        }
        Reason::ReplacementFirst => "its deletion waits until a replacement is a voter",
        _ => return None,
    };
    reason.map(|reason| (reason, words.to_owned()))
}
