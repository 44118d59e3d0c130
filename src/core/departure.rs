//! Decides whether a member whose deletion was asked for may leave now. Does no I/O.
//!
//! Deleting one EtcdMember means "replace it"; a shrink deletes EtcdMembers too. Both end here: a
//! healthy voter leaves only when the voters that remain are as many as wanted, a dead one leaves
//! first, and only one leaves at a time.

use crate::{
    etcd::{MemberList, quorum},
    ids::{MemberId, MemberName},
    reason::Reason,
    view::{ClusterSituation, MemberFacts, Presence},
};

/// Whether a member may leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Departure {
    /// Not now: it keeps its Pod and lives on.
    Hold(Reason),
    /// It may ask the guard to remove it. The guard still judges whether that is safe.
    Go,
}

impl ClusterSituation {
    /// Whether etcd counts this member as a voter: by the last list if there is one, else by
    /// record or by its own word.
    pub fn is_voter(&self, facts: &MemberFacts) -> bool {
        match self.list.list() {
            Some(list) => list.at(&facts.member.peer_url).is_some_and(|m| !m.is_learner),
            None => {
                let says_so = facts.look.status().is_some_and(|status| !status.is_learner);
                facts.member.recorded.is_voter || says_so
            }
        }
    }

    /// Whether etcd lists this member at all, as far as we know.
    pub fn is_listed(&self, facts: &MemberFacts) -> bool {
        match self.list.list() {
            Some(list) => list.at(&facts.member.peer_url).is_some(),
            None => facts.member.recorded.member_id.is_some() || !facts.member.initial_cluster.is_empty(),
        }
    }

    /// The voters that serve linearizable reads now.
    pub fn serving(&self) -> usize {
        self.members.iter().filter(|m| self.is_voter(m) && m.look.serves()).count()
    }

    /// The leader that the member in the latest term follows.
    pub fn leader(&self) -> Option<MemberId> {
        let answered = self.members.iter().filter_map(|m| m.look.status());
        answered.max_by_key(|status| status.term).and_then(|status| status.leader)
    }

    /// Whether some member reports this alarm. etcd tells it through every member, for whichever it is about.
    pub fn has_alarm(&self, alarm: &str) -> bool {
        self.members.iter().filter_map(|m| m.look.status()).any(|status| status.has_alarm(alarm))
    }

    /// The member that is being restarted by permit.
    pub fn restarting(&self) -> Option<&MemberFacts> {
        self.members.iter().find(|m| m.member.permit.is_some())
    }

    /// The number of voters that is being worked towards.
    pub fn wanted(&self) -> Option<usize> {
        self.cluster.recorded.target.as_ref().map(|t| t.replicas)
    }
}

impl MemberFacts {
    /// Known not to run: it was asked and did not answer, or it has no Pod that could answer.
    /// A member that nobody has looked at is not dead.
    pub fn is_dead(&self) -> bool {
        match &self.pod {
            Presence::Unknown => false,
            Presence::Absent => true,
            Presence::Present(pod) => pod.ended || pod.ip.is_none() || self.look.is_silent(),
        }
    }
}

/// Whether the member `name` may leave now.
pub fn departure(situation: &ClusterSituation, name: &MemberName) -> Departure {
    let Some(facts) = situation.members.iter().find(|m| &m.member.name == name) else {
        return Departure::Hold(Reason::NotKnownYet);
    };
    if facts.member.stays() {
        return Departure::Hold(Reason::NotKnownYet);
    }
    if situation.cluster.recorded.cluster_id.is_none() {
        return Departure::Go;
    }
    // Without a list nobody can be removed, so nobody stops working for it: the members that are on
    // their way out may be the ones whose return brings the list back.
    let Some(list) = situation.list.list() else { return Departure::Hold(Reason::NotKnownYet) };
    if !situation.is_listed(facts) {
        return Departure::Go;
    }
    let rank =
        |m: &MemberFacts| (situation.is_voter(m), !m.is_dead(), m.member.deleting, m.member.name.clone());
    let first = situation
        .members
        .iter()
        .filter(|m| !m.member.stays() && situation.is_listed(m))
        .min_by_key(|m| rank(m));
    if first.is_some_and(|f| f.member.name != *name) {
        return Departure::Hold(Reason::AnotherMemberFirst);
    }
    if !situation.is_voter(facts) {
        return Departure::Go;
    }
    if facts.is_dead() {
        return dead_voter(situation, list, facts);
    }
    let Some(wanted) = situation.wanted() else { return Departure::Hold(Reason::NotKnownYet) };
    let others_serve =
        situation.serving() == situation.members.iter().filter(|m| situation.is_voter(m)).count();
    match facts.look.serves() {
        false => Departure::Hold(Reason::NotKnownYet),
        // The guard would wait for them, and they for it: a lost one goes before a healthy one.
        true if !others_serve => Departure::Hold(Reason::VoterNotServing),
        // A pause keeps one.
        true if situation.serving() > wanted.max(1) => Departure::Go,
        true => Departure::Hold(Reason::ReplacementFirst),
    }
}

/// A dead voter leaves only while the others could remove it. Without their quorum it lives on and
/// its Pod is started again: it may be the one that brings the quorum back.
fn dead_voter(situation: &ClusterSituation, list: &MemberList, facts: &MemberFacts) -> Departure {
    let rest = list.voters().filter(|l| !l.is_at(&facts.member.peer_url)).count();
    let serving = situation
        .members
        .iter()
        .filter(|m| m.member.name != facts.member.name && situation.is_voter(m) && m.look.serves())
        .count();
    if serving >= quorum(rest) { Departure::Go } else { Departure::Hold(Reason::AwaitingQuorum) }
}
