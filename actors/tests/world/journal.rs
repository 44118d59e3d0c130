//! Owns the record of what was done in the fake world, in the order in which it took effect.

use etcd_operator_core::{ids::Uid, time::Time};

/// One write that took effect: on the API server, or on etcd's membership.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) at: Time,
    pub(crate) cluster: String,
    pub(crate) verb: &'static str,
    /// The member's name; empty for what concerns the whole cluster.
    pub(crate) member: String,
}

/// One membership call, from its start to its end.
#[derive(Debug, Clone)]
pub(crate) struct MembershipCall {
    pub(crate) cluster: Uid,
    /// Which guard's life made it.
    pub(crate) life: u64,
    pub(crate) verb: &'static str,
    /// The member whose place changes; for a hand-over, the one that hands over.
    pub(crate) member: String,
    pub(crate) sent: Time,
    pub(crate) ended: Option<Time>,
    pub(crate) outcome: Outcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    InFlight,
    Done,
    Refused,
    Ambiguous,
    NotSent,
    /// Its caller ended first.
    Dropped,
}

#[derive(Debug, Default)]
pub(crate) struct Journal {
    pub(crate) done: Vec<Done>,
    pub(crate) calls: Vec<MembershipCall>,
    /// API calls that were begun, by verb, whatever came of them.
    pub(crate) begun: Vec<Done>,
    pub(crate) looks: Vec<(Time, String)>,
    pub(crate) lists: Vec<(Time, String)>,
    pub(crate) told: Vec<String>,
    /// How often an actor read the stores.
    pub(crate) sights: usize,
    /// When an actor was made to panic.
    pub(crate) panics: Vec<Time>,
    /// What must never happen and did.
    pub(crate) violations: Vec<String>,
}

impl Journal {
    /// The position of the first such entry.
    pub(crate) fn position(&self, verb: &str, member: &str) -> Option<usize> {
        self.done.iter().position(|d| d.verb == verb && d.member == member)
    }

    /// How often this took effect in that cluster.
    pub(crate) fn count(&self, cluster: &str, verb: &str) -> usize {
        self.done.iter().filter(|d| d.cluster == cluster && d.verb == verb).count()
    }
}
