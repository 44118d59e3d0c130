//! Decides whether a member is held by a node that is gone, by what its Pod shows. Does no I/O.
//!
//! A node that is gone and one that comes back look the same, so this is evidence only for whoever has said after how
//! long it is to count. A person knows more about nodes than a Pod tells.

use crate::view::{ClusterSituation, MemberFacts, PodTrouble, Presence};

/// What the scheduler says of a node that the volume cannot follow the Pod to: until Kubernetes 1.34, and since.
const OUT_OF_REACH: [&str; 2] =
    ["node(s) had volume node affinity conflict", "node(s) didn't match PersistentVolume's node affinity"];

/// What it says of a node that takes no such Pod: one of the control plane, or one that is down. Since 1.35 it does not
/// say which.
const TAINTED: &str = "node(s) had untolerated taint";

/// Whether all that is seen of the member says that the node that it needs is not there: no node that is there has its
/// volume, or its Pod was to end and its node neither ends it nor lets it answer.
///
/// True of a node that is only down as well. It says nothing of how long that has been so.
pub fn is_stranded(m: &MemberFacts) -> bool {
    let Presence::Present(pod) = &m.pod else { return false };
    if m.member.memory || !pod.ours {
        return false;
    }
    if pod.deleting {
        return pod.node.is_some() && m.is_dead();
    }
    match &pod.trouble {
        Some(PodTrouble::Unschedulable(words)) => pod.node.is_none() && no_node_has_the_volume(words),
        _ => false,
    }
}

/// A node that has the volume and is full or cordoned is there: any other word in the scheduler's list may be about it.
fn no_node_has_the_volume(words: &str) -> bool {
    let Some((_, reasons)) = words.split_once("nodes are available: ") else { return false };
    let mut out_of_reach = false;
    for reason in reasons.trim_end_matches('.').split(", ") {
        let reason = reason.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start();
        if OUT_OF_REACH.contains(&reason) {
            out_of_reach = true;
        } else if !reason.starts_with(TAINTED) {
            return false;
        }
    }
    out_of_reach
}

/// Whether the member has been stranded for so long that it is to be replaced. Never, unless a person has set how long
/// that is.
pub(crate) fn is_lost(s: &ClusterSituation, m: &MemberFacts) -> bool {
    let (Some(after), Some(since)) = (s.lost_node_after, m.stranded) else { return false };
    is_stranded(m) && s.now.since(since) >= after
}
