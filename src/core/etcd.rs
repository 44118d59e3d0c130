//! Owns what etcd says about itself, in the operator's own words. Decides nothing, does no I/O.

use crate::{
    ids::{ClusterId, MemberId, MemberName, PeerUrl},
    time::Time,
    version::EtcdVersion,
};

/// One line of etcd's member list.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListedMember {
    /// The member ID.
    pub id: MemberId,
    /// Empty until the member's process has started once and announced itself.
    pub name: String,
    /// Peer URLs; ours have exactly one.
    pub peer_urls: Vec<PeerUrl>,
    /// Client URLs; empty until the member has started once.
    pub client_urls: Vec<String>,
    /// Not a voter yet.
    pub is_learner: bool,
}

impl ListedMember {
    /// Whether its process has announced itself at least once. etcd stores the name only then.
    pub fn started(&self) -> bool {
        !self.name.is_empty()
    }

    /// Whether `url` is one of its peer URLs.
    pub fn is_at(&self, url: &PeerUrl) -> bool {
        self.peer_urls.contains(url)
    }
}

/// etcd's member list as one linearizable read returned it, with the cluster ID of the same answer.
///
/// A value of this type was true at some moment after the read was sent. It is never built from
/// a serializable read, which may be arbitrarily old.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MemberList {
    /// The answering cluster's ID, from the response header.
    pub cluster_id: ClusterId,
    /// All members, voters and learners.
    pub members: Vec<ListedMember>,
}

impl MemberList {
    /// The member at this peer URL. Names cannot be used for this: see [`PeerUrl`].
    pub fn at(&self, url: &PeerUrl) -> Option<&ListedMember> {
        self.members.iter().find(|m| m.is_at(url))
    }

    /// The member with this ID.
    pub fn by_id(&self, id: MemberId) -> Option<&ListedMember> {
        self.members.iter().find(|m| m.id == id)
    }

    /// All voters, in the list's order.
    pub fn voters(&self) -> impl Iterator<Item = &ListedMember> {
        self.members.iter().filter(|m| !m.is_learner)
    }

    /// All learners, in the list's order.
    pub fn learners(&self) -> impl Iterator<Item = &ListedMember> {
        self.members.iter().filter(|m| m.is_learner)
    }

    /// The `--initial-cluster` value for a joiner: every member, one entry for each peer URL.
    ///
    /// `own` names the member at `own_url`, whose name etcd does not know yet. etcd compares the
    /// peer URLs of this list with its own and refuses to start when they differ, so nothing may
    /// be left out. Another nameless member gets its peer URL's first host label as its name.
    pub fn initial_cluster(&self, own: &MemberName, own_url: &PeerUrl) -> String {
        let mut entries: Vec<String> = self
            .members
            .iter()
            .flat_map(|m| m.peer_urls.iter().map(move |url| (m, url)))
            .map(|(m, url)| {
                let name = if url == own_url {
                    own.as_str()
                } else if m.started() {
                    &m.name
                } else {
                    url.host_label()
                };
                format!("{name}={url}")
            })
            .collect();
        entries.sort();
        entries.join(",")
    }
}

impl PeerUrl {
    /// The first label of the host: for a URL of ours, the member's name.
    pub fn host_label(&self) -> &str {
        let host = self.0.split_once("://").map_or(self.0.as_str(), |(_, rest)| rest);
        host.split(['.', ':', '/']).next().unwrap_or(host)
    }
}

/// What a member's own process answered to Status, on a channel to that process alone.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MemberStatus {
    /// The cluster it says it belongs to.
    pub cluster_id: ClusterId,
    /// Who it says it is.
    pub member_id: MemberId,
    /// Whether it sees itself as a learner.
    pub is_learner: bool,
    /// The leader it follows; none while it knows of none.
    pub leader: Option<MemberId>,
    /// The Raft term it is in.
    pub term: u64,
    /// The last index in its Raft log that it knows committed.
    pub raft_index: u64,
    /// The last index that it has applied.
    pub applied_index: u64,
    /// Bytes its database file takes on disk.
    pub db_size: u64,
    /// Bytes of that in use.
    pub db_size_in_use: u64,
    /// The version it runs.
    pub version: Option<EtcdVersion>,
    /// Alarms and other errors that it reports, in etcd's words.
    pub errors: Vec<String>,
}

impl MemberStatus {
    /// Whether it reports this alarm, for whichever member. etcd writes `memberID:1 alarm:CORRUPT`; some versions
    /// leave the ID out.
    pub fn has_alarm(&self, alarm: &str) -> bool {
        let is = |word: &str| word.strip_prefix("alarm:") == Some(alarm);
        self.errors.iter().any(|error| error.split_whitespace().any(is))
    }
}

/// What a look at one member found: its own Status, and whether it serves a linearizable read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Look {
    /// It answered Status.
    Answered {
        /// When the answer came.
        at: Time,
        /// The answer.
        status: MemberStatus,
        /// A linearizable read through this member succeeded, so it is connected to a quorum.
        /// Learners refuse such reads, so for them it is always false.
        linearizable: bool,
    },
    /// It did not answer within [`crate::time::timeouts::ETCD_READ`], or refused the connection.
    Silent {
        /// When we gave up.
        at: Time,
    },
    /// Nobody has looked yet, or the look failed on our side (no address, TLS trouble of our own).
    /// Never a reason for a destructive act.
    Unknown {
        /// Since when.
        since: Time,
    },
}

impl Look {
    /// The Status answer, if there is one.
    pub fn status(&self) -> Option<&MemberStatus> {
        match self {
            Look::Answered { status, .. } => Some(status),
            Look::Silent { .. } | Look::Unknown { .. } => None,
        }
    }

    /// Whether the member serves linearizable reads, hence is a voter connected to a quorum.
    pub fn serves(&self) -> bool {
        matches!(self, Look::Answered { linearizable: true, .. })
    }

    /// Whether the member was asked and did not answer. `Unknown` is not silence.
    pub fn is_silent(&self) -> bool {
        matches!(self, Look::Silent { .. })
    }
}

/// The smallest number of voters that is a quorum of `voters`: more than half.
pub const fn quorum(voters: usize) -> usize {
    voters / 2 + 1
}

/// How one call to etcd failed, by what may have happened to the cluster.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EtcdFailure {
    /// etcd refused: it has not done it and will not.
    #[error("etcd refused: {0}")]
    Refused(Refusal),
    /// etcd may or may not have done it, or may do it yet.
    #[error("the answer leaves open whether etcd did it: {0}")]
    Ambiguous(String),
    /// The connection was never made, so the request was never sent.
    #[error("no connection: {0}")]
    Unreachable(String),
    /// The credentials or the token were refused; the request was not carried out.
    #[error("authentication failed: {0}")]
    Auth(String),
    /// TLS trouble before the request was sent: names, trust or a missing client certificate.
    #[error("TLS failed: {0}")]
    Tls(String),
    /// The channel leads to another cluster or another member than the recorded one; nothing was sent.
    #[error("{0}")]
    WrongPeer(String),
}

/// Why etcd refused, one value for every text and code that its versions use for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    /// A voter has not been connected for 5 s, or too few have: wait and ask again.
    #[error("not every voter has been connected for long enough")]
    UnhealthyCluster,
    /// Too few members have started for the new quorum.
    #[error("not enough started members")]
    NotEnoughStarted,
    /// The learner is not in sync with the leader yet.
    #[error("the learner is not in sync with the leader yet")]
    LearnerNotReady,
    /// The member to be promoted is a voter already.
    #[error("the member is not a learner")]
    NotLearner,
    /// There is a learner already.
    #[error("the cluster has as many learners as it allows")]
    TooManyLearners,
    /// A member with this peer URL exists.
    #[error("a member with this peer URL exists already")]
    PeerUrlExists,
    /// A member with this ID exists.
    #[error("a member with this ID exists already")]
    MemberIdExists,
    /// There is no such member.
    #[error("there is no such member")]
    MemberNotFound,
    /// The answering member is a learner, which does not serve this call.
    #[error("a learner does not serve this call")]
    LearnerAsked,
    /// The leader could not be moved there.
    #[error("leadership cannot be moved to that member")]
    BadLeaderTransferee,
    /// The answering member is not the leader.
    #[error("the member is not the leader")]
    NotLeader,
    /// The database is at its quota.
    #[error("the database is at its space quota")]
    NoSpace,
    /// A CORRUPT alarm is raised.
    #[error("the cluster has a CORRUPT alarm")]
    Corrupt,
    /// A definite refusal that is none of the above, in etcd's words.
    #[error("{0}")]
    Other(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(id: u64, name: &str, url: &str) -> ListedMember {
        ListedMember {
            id: MemberId(id),
            name: name.into(),
            peer_urls: vec![url.into()],
            client_urls: vec![],
            is_learner: false,
        }
    }

    // MQ-02
    #[test]
    fn a_member_without_a_name_is_found_by_its_peer_url_and_by_nothing_else() {
        let list = MemberList {
            cluster_id: ClusterId(1),
            members: vec![listed(1, "a", "http://a.c.ns.svc:2380"), listed(2, "", "http://b.c.ns.svc:2380")],
        };
        assert_eq!(list.at(&"http://b.c.ns.svc:2380".into()).map(|m| m.id), Some(MemberId(2)));
        assert_eq!(list.at(&"http://c.c.ns.svc:2380".into()), None);
    }

    #[test]
    fn the_join_list_names_every_member_and_the_joiner_itself() {
        let list = MemberList {
            cluster_id: ClusterId(1),
            members: vec![listed(1, "a", "http://a.c.ns.svc:2380"), listed(2, "", "http://b.c.ns.svc:2380")],
        };
        assert_eq!(
            list.initial_cluster(&"b".into(), &"http://b.c.ns.svc:2380".into()),
            "a=http://a.c.ns.svc:2380,b=http://b.c.ns.svc:2380"
        );
    }

    #[test]
    fn a_quorum_is_more_than_half() {
        assert_eq!([1, 2, 3, 4, 5].map(quorum), [1, 2, 2, 3, 3]);
    }
}
