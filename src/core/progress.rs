//! Owns the question whether a learner that answers is getting anywhere. Does no I/O.
//!
//! A learner that copies a large database must be left alone for as long as it takes; one that
//! stands still holds the only learner slot and must make room. Time alone cannot tell them apart,
//! movement can.

use std::time::Duration;

use crate::{etcd::MemberStatus, time::Time};

/// A learner may stand still for at least this long.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// The transfer rate, in bytes a second, that even a poor link is expected to reach. A snapshot
/// shows no movement on the learner until it is complete, so the patience grows with its size.
pub const SLOWEST_TRANSFER: u64 = 5_000_000;

/// What was last seen to move, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    mark: (u64, u64, u64),
    moved: Time,
}

impl Progress {
    /// Starts watching at the first answer.
    pub fn new(now: Time, status: &MemberStatus) -> Self {
        Self { mark: Self::mark_of(status), moved: now }
    }

    fn mark_of(status: &MemberStatus) -> (u64, u64, u64) {
        (status.applied_index, status.raft_index, status.db_size)
    }

    /// Takes in another answer.
    pub fn observe(&mut self, now: Time, status: &MemberStatus) {
        let mark = Self::mark_of(status);
        if mark != self.mark {
            self.mark = mark;
            self.moved = now;
        }
    }

    /// Whether it has stood still for too long: max(5 min, leader's database ÷ 5 MB/s), doubled
    /// with each earlier `attempt` (0 for the first).
    pub fn stalled(&self, now: Time, leader_db_size: u64, attempt: u32) -> bool {
        let transfer = Duration::from_secs(leader_db_size / SLOWEST_TRANSFER);
        let patience = PATIENCE.max(transfer).saturating_mul(1 << attempt.min(16));
        now.since(self.moved) >= patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{ClusterId, MemberId};

    fn status(applied: u64) -> MemberStatus {
        MemberStatus {
            cluster_id: ClusterId(1),
            member_id: MemberId(1),
            is_learner: true,
            leader: Some(MemberId(2)),
            term: 2,
            raft_index: applied,
            applied_index: applied,
            db_size: 0,
            db_size_in_use: 0,
            version: None,
            errors: vec![],
        }
    }

    // LP-04
    #[test]
    fn a_learner_that_moves_is_never_stalled_however_long_it_takes() {
        let mut progress = Progress::new(Time(0), &status(0));
        for minute in 1..600u64 {
            progress.observe(Time(minute * 240_000), &status(minute));
            assert!(!progress.stalled(Time(minute * 240_000 + 1), 0, 0));
        }
    }

    #[test]
    fn a_learner_that_stands_still_is_stalled_after_five_minutes() {
        let mut progress = Progress::new(Time(0), &status(7));
        progress.observe(Time(299_000), &status(7));
        assert!(!progress.stalled(Time(299_999), 0, 0));
        assert!(progress.stalled(Time(300_000), 0, 0));
    }

    #[test]
    fn patience_grows_with_the_leaders_database_and_with_each_attempt() {
        let progress = Progress::new(Time(0), &status(7));
        let eight_gib = 8 << 30;
        assert!(!progress.stalled(Time(1_700_000), eight_gib, 0));
        assert!(progress.stalled(Time(1_720_000), eight_gib, 0));
        assert!(!progress.stalled(Time(599_999), 0, 1));
        assert!(progress.stalled(Time(600_000), 0, 1));
    }
}
