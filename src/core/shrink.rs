//! Decides who leaves when there are more members than wanted. Does no I/O.

use std::cmp::Reverse;

use crate::{
    etcd::Look,
    view::{ClusterSituation, MemberFacts, PodView},
};

/// Who goes first: who never joined; then what is unhealthy, the dead before what answers and does not
/// serve; then what shares a node, and after that a zone, with the most other voters that stay; a leader
/// only when nobody else is left; then the youngest.
///
/// What nobody has looked at is not unhealthy, and a Pod whose node or zone is not known shares neither.
pub(crate) fn first_to_go<'a>(s: &ClusterSituation, staying: &[&'a MemberFacts]) -> Option<&'a MemberFacts> {
    let leader = s.leader();
    let voters: Vec<&MemberFacts> = staying.iter().copied().filter(|m| s.is_voter(m)).collect();
    staying.iter().copied().min_by_key(|m| {
        (
            s.is_voter(m),
            health(m),
            leader.is_some() && m.look.status().map(|status| status.member_id) == leader,
            Reverse(neighbours(m, &voters, |pod| pod.node.as_deref())),
            Reverse(neighbours(m, &voters, |pod| pod.zone.as_deref())),
            Reverse(m.member.created),
            m.member.name.clone(),
        )
    })
}

/// 0 is dead, 1 answers and is known not to serve, 2 serves or was not looked at.
fn health(m: &MemberFacts) -> u8 {
    match &m.look {
        _ if m.is_dead() => 0,
        // One that was last seen as a learner may serve by now.
        Look::Answered { linearizable: false, status, .. } if !status.is_learner => 1,
        _ => 2,
    }
}

/// How many other voters share this one's failure domain.
fn neighbours(m: &MemberFacts, voters: &[&MemberFacts], domain: impl Fn(&PodView) -> Option<&str>) -> usize {
    let of = |m: &MemberFacts| m.pod.present().and_then(|pod| domain(pod).map(str::to_owned));
    let Some(own) = of(m) else { return 0 };
    voters
        .iter()
        .filter(|other| other.member.name != m.member.name && of(other).as_ref() == Some(&own))
        .count()
}
