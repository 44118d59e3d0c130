//! Conditions of a status: their types, and one way to change them. No I/O.
//!
//! A condition that says the same thing again is left as it is, so that the caller can compare the whole
//! status and write nothing. That works only with stable text: no addresses, ports, counters or times
//! in a message. Those belong into the log.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::Reason;

/// EtcdCluster: the cluster serves reads and writes.
pub const AVAILABLE: &str = "Available";
/// EtcdCluster: the operator is on its way to what the spec says.
pub const PROGRESSING: &str = "Progressing";
/// EtcdCluster: less is delivered than intended.
pub const DEGRADED: &str = "Degraded";
/// EtcdCluster: the spec asks for what may do harm. Only there while it does, and nothing is stopped by it.
pub const SPEC_WARNINGS: &str = "SpecWarnings";
/// EtcdCluster: Pods of voters can be evicted, as a drain does.
pub const DISRUPTIONS_ALLOWED: &str = "DisruptionsAllowed";
/// EtcdMember: etcd has accepted the member.
pub const JOINED: &str = "Joined";
/// EtcdMember: a started voter that answers a linearizable read. EtcdSnapshot, EtcdDefrag: done.
pub const READY: &str = "Ready";
/// EtcdMember: etcd reports another version than the spec asks for.
pub const VERSION_DRIFTED: &str = "VersionDrifted";

/// The three values that a condition can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It is so.
    True,
    /// It is not so.
    False,
    /// Not known. Never used as a default for either.
    Unknown,
}

impl Status {
    /// As it stands on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for Status {
    fn from(value: bool) -> Self {
        if value { Self::True } else { Self::False }
    }
}

/// Sets the condition `kind`, and says whether anything is different afterwards.
///
/// `lastTransitionTime` moves to `now` only when the status changes. If status, reason, message and
/// generation are all as they were, nothing is touched and the answer is `false`: there is nothing to write.
///
/// ```
/// # use etcd_operator_api::{Reason, conditions::{AVAILABLE, Status, upsert}};
/// # use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
/// let mut conditions = Vec::new();
/// let now = Time(Timestamp::UNIX_EPOCH);
/// assert!(upsert(&mut conditions, AVAILABLE, Status::True, Reason::QuorumHealthy, "3 of 3 voters serve", Some(1), &now));
/// assert!(!upsert(&mut conditions, AVAILABLE, Status::True, Reason::QuorumHealthy, "3 of 3 voters serve", Some(1), &now));
/// ```
pub fn upsert(
    conditions: &mut Vec<Condition>,
    kind: &str,
    status: Status,
    reason: Reason,
    message: impl Into<String>,
    generation: Option<i64>,
    now: &Time,
) -> bool {
    let mut wanted = Condition {
        type_: kind.to_owned(),
        status: status.as_str().to_owned(),
        reason: reason.as_str().to_owned(),
        message: message.into(),
        observed_generation: generation,
        last_transition_time: now.clone(),
    };
    let Some(present) = conditions.iter_mut().find(|c| c.type_ == kind) else {
        conditions.push(wanted);
        return true;
    };
    if present.status == wanted.status {
        wanted.last_transition_time = present.last_transition_time.clone();
    }
    if *present == wanted {
        return false;
    }
    *present = wanted;
    true
}

/// Takes the condition `kind` away, and says whether it was there.
pub fn remove(conditions: &mut Vec<Condition>, kind: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|c| c.type_ != kind);
    conditions.len() != before
}

/// The condition `kind`, if it is there.
#[must_use]
pub fn find<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.type_ == kind)
}

/// Whether the condition `kind` is there and true.
#[must_use]
pub fn is_true(conditions: &[Condition], kind: &str) -> bool {
    find(conditions, kind).is_some_and(|c| c.status == Status::True.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::jiff::Timestamp;

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    // MT-03
    #[test]
    fn a_condition_that_says_the_same_again_changes_nothing() {
        let mut conditions = Vec::new();
        let said = |conditions: &mut Vec<Condition>, second| {
            upsert(
                conditions,
                AVAILABLE,
                Status::False,
                Reason::ClusterUnreachable,
                "no voter answers",
                Some(4),
                &at(second),
            )
        };
        assert!(said(&mut conditions, 1));
        let first = conditions.clone();
        for second in 2..300 {
            assert!(!said(&mut conditions, second), "second {second}");
        }
        assert_eq!(conditions, first);
    }

    // MT-03
    #[test]
    fn the_transition_time_moves_only_with_the_status() {
        let mut conditions = Vec::new();
        upsert(&mut conditions, AVAILABLE, Status::False, Reason::WaitingForSeed, "a", Some(1), &at(1));
        assert!(upsert(&mut conditions, AVAILABLE, Status::False, Reason::QuorumLost, "b", Some(1), &at(2)));
        assert_eq!(conditions[0].last_transition_time, at(1), "another reason, same status");
        assert!(upsert(&mut conditions, AVAILABLE, Status::False, Reason::QuorumLost, "b", Some(2), &at(3)));
        assert_eq!(conditions[0].last_transition_time, at(1), "another generation, same status");
        assert_eq!(conditions[0].observed_generation, Some(2));
        assert!(upsert(
            &mut conditions,
            AVAILABLE,
            Status::True,
            Reason::QuorumHealthy,
            "c",
            Some(2),
            &at(4)
        ));
        assert_eq!(conditions[0].last_transition_time, at(4));
        assert_eq!(conditions.len(), 1);
    }

    #[test]
    fn conditions_of_others_are_left_alone() {
        let mut conditions = Vec::new();
        upsert(&mut conditions, "example.com/Blessed", Status::True, Reason::Reconciled, "", None, &at(1));
        upsert(&mut conditions, DEGRADED, Status::Unknown, Reason::ClusterUnreachable, "", None, &at(1));
        assert!(is_true(&conditions, "example.com/Blessed"));
        assert!(!is_true(&conditions, DEGRADED), "unknown is not true");
        assert!(remove(&mut conditions, DEGRADED));
        assert!(!remove(&mut conditions, DEGRADED));
        assert!(find(&conditions, "example.com/Blessed").is_some());
    }
}
