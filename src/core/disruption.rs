//! Decides the cluster's disruption budget: how many labelled Pods of voters an eviction must leave, when that
//! number may move, and when one more Pod may carry the label. Does no I/O.
//!
//! The disruption controller counts Pods with the label `role=voter` that are Ready, and lets them go down to the
//! floor. So with `f` the floor and `u` voters without the label, evictions leave `f + u` voters, and that must be a
//! quorum of all voters at every moment. From this follows the order: the floor rises before one more Pod is
//! labelled; a Pod loses its label before etcd is asked to remove its member; the floor falls after that, and only
//! while nobody is on the way in or out. While the floor that the store shows is not the wanted one no member is
//! made, so a new one never meets a floor that has fallen unseen.

use crate::{
    cluster::{ClusterAction, ClusterDecision},
    etcd::quorum,
    ids::{MemberName, PeerUrl},
    pause::parks,
    reason::Reason,
    report::{Condition, Verdict},
    view::{BudgetState, ClusterRecord, ClusterSituation, MemberFacts},
};

/// Up to so many voters, losing one is losing the quorum.
const NONE_TO_SPARE: usize = 2;

/// Whether the budget of so many voters lets none of them be evicted: one of one or two is always needed.
pub fn blocks_every_eviction(voters: usize) -> bool {
    voters <= NONE_TO_SPARE
}

/// The next thing to do about the budget; none if it is as it should be, or nothing is to be done about it.
pub(crate) fn decide(s: &ClusterSituation) -> Option<ClusterDecision> {
    // Without a recorded cluster ID no Pod has the label.
    s.cluster.recorded.cluster_id?;
    let state = match s.budget {
        BudgetState::Unknown => return Some(ClusterDecision::Wait(Reason::NotKnownYet)),
        // It is reported. The members go on: somebody else's budget is no reason to leave etcd alone.
        BudgetState::Foreign => return None,
        BudgetState::Absent => None,
        BudgetState::Present { min_available, right } => Some((min_available, right)),
    };
    if nobody_is_wanted_up(s) {
        return state.map(|_| ClusterDecision::Act(ClusterAction::DeleteBudget));
    }
    let voters = covered(s, s.wanted().unwrap_or(0), None);
    if voters == 0 {
        return None;
    }
    let wanted = quorum(voters);
    let (floor, right) = match state {
        None => (wanted, false),
        Some((seen, right)) if seen > wanted && !is_at_rest(s) => (seen, right),
        Some((seen, right)) => (wanted, right && seen == wanted),
    };
    let blocks = blocks_every_eviction(voters);
    (!right).then_some(ClusterDecision::Act(ClusterAction::PutBudget { min_available: floor, blocks }))
}

/// Whether the Pod of this member may be given the label: the floor is a quorum of the voters, this one among them.
/// Somebody else's budget is none of our business; without one, the first Pod is labelled, so that clients have one,
/// and the others wait for the budget. It is about one label more: none is ever taken off for it.
pub fn covers_label(s: &ClusterSituation, name: &MemberName) -> bool {
    match s.budget {
        BudgetState::Foreign => true,
        BudgetState::Unknown | BudgetState::Absent => {
            let labelled = |m: &MemberFacts| m.pod.present().is_some_and(|pod| pod.voter_label);
            !s.members.iter().any(|m| m.member.name != *name && labelled(m))
        }
        BudgetState::Present { min_available, right } => {
            right && min_available >= quorum(covered(s, s.wanted().unwrap_or(0), Some(name)))
        }
    }
}

/// The condition DisruptionsAllowed, from the write on that records the cluster ID. It tells of the voters that there
/// are and those that are wanted, never of how each of them is, so that it changes only when one of the two does.
pub(crate) fn condition(s: &ClusterSituation, record: &ClusterRecord) -> Option<Condition> {
    record.cluster_id?;
    let say =
        |verdict, reason, message: &str| Some(Condition { verdict, reason, message: message.to_owned() });
    if s.members.is_empty() {
        return None;
    }
    if s.budget == BudgetState::Foreign {
        let words = "another PodDisruptionBudget has the name of this cluster's; see Degraded";
        return say(Verdict::Unknown, Reason::ForeignObject, words);
    }
    if nobody_is_wanted_up(s) {
        return say(Verdict::True, Reason::Paused, "no Pod is wanted, so there is no disruption budget");
    }
    let target = record.target.as_ref().map_or(0, |target| target.replicas);
    match covered(s, target, None) {
        0 => None,
        n if blocks_every_eviction(n) => say(
            Verdict::False,
            Reason::BudgetBlocksDrain,
            "each voter of one or two is needed for the quorum, so no Pod is evicted and a drain of its node waits; set \
             spec.replicas to 3, or accept an outage: kubectl delete pod, or kubectl drain --disable-eviction",
        ),
        _ => say(
            Verdict::True,
            Reason::BudgetLeavesQuorum,
            "Pods of voters can be evicted as long as a quorum of the voters that there are, and of those wanted, is left",
        ),
    }
}

/// The Pod of each EtcdMember is wanted gone; or none is left of those that etcd listed. Without a list, no
/// EtcdMember in sight may mean that nobody has looked.
fn nobody_is_wanted_up(s: &ClusterSituation) -> bool {
    s.members.iter().all(|m| sleeps(s, m)) && (!s.members.is_empty() || s.list.list().is_some())
}

/// Whether its Pod is wanted gone: `spec.dormant` counts in a cluster that is to be paused and in no other.
fn sleeps(s: &ClusterSituation, m: &MemberFacts) -> bool {
    m.member.dormant && parks(s)
}

/// The voters that the budget counts on, or `target` if that is more; 0 if no voter is known. `also` counts as one
/// whatever the list says: it is about to be treated as a voter.
fn covered(s: &ClusterSituation, target: usize, also: Option<&MemberName>) -> usize {
    let counts = |m: &MemberFacts| !sleeps(s, m) && (votes(s, m) || Some(&m.member.name) == also);
    let known = s.members.iter().filter(|m| counts(m)).count();
    // A voter that no EtcdMember accounts for has no Pod of ours, and counts for the quorum all the same.
    let strange = s.list.list().map_or(0, |list| {
        let ours = |url: &PeerUrl| s.members.iter().any(|m| m.member.peer_url == *url);
        list.voters().filter(|l| !l.peer_urls.iter().any(ours)).count()
    });
    match known + strange {
        0 => 0,
        voters => voters.max(target),
    }
}

/// Whether it is a voter: by the list, or by its own word while a list that may be older has it as a learner.
fn votes(s: &ClusterSituation, m: &MemberFacts) -> bool {
    let says_so = || {
        let listed = s.list.at(&m.member.peer_url);
        m.look
            .status()
            .is_some_and(|status| !status.is_learner && listed.is_some_and(|l| l.id == status.member_id))
    };
    s.is_voter(m) || says_so()
}

/// Whether nobody is on the way in or out: etcd was asked, and every EtcdMember is one of its voters.
fn is_at_rest(s: &ClusterSituation) -> bool {
    let votes = |m: &MemberFacts| s.list.at(&m.member.peer_url).is_some_and(|l| !l.is_learner);
    s.list.list().is_some() && s.members.iter().all(votes)
}
