//! Owns the one notion of time that decisions use. Does no I/O: the time is passed in.

use std::{ops::Add, time::Duration};

/// Milliseconds since the Unix epoch, as the caller's clock shows them.
///
/// Only ever compared with other readings of the *same* process's clock, or (deadlines in a
/// status) with a tolerance of seconds: a clock that jumps may delay or hasten a look, never
/// allow an effect that was not allowed before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Time(pub u64);

impl Time {
    /// How long ago `earlier` was; zero if it lies ahead.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, d: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(d.as_millis()).unwrap_or(u64::MAX)))
    }
}

/// The timeouts of the whole operator, in one place because each must be shorter than the next.
pub mod timeouts {
    use std::time::Duration;

    /// One read of etcd (Status, MemberList, Range).
    pub const ETCD_READ: Duration = Duration::from_secs(3);
    /// One membership call. etcd itself gives up after 5 s + 2 × election timeout (1 s by default),
    /// so that after this the call is over on the server's side too; one second is for the network.
    pub const MEMBERSHIP_CALL: Duration = Duration::from_secs(8);
    /// One turn of the guard: a list, the reads that judge it, a hand-over, the call.
    pub const GUARD_TURN: Duration = Duration::from_secs(20);
    /// How long an asker waits for the guard's answer before it asks again.
    pub const QUESTION: Duration = Duration::from_secs(45);
    /// One call to the API server.
    pub const API_CALL: Duration = Duration::from_secs(10);
    /// After an ambiguous answer: the time in which the call may still be applied.
    pub const DOUBT: Duration = MEMBERSHIP_CALL;
}

#[cfg(test)]
mod tests {
    use super::{timeouts::*, *};

    #[test]
    fn each_timeout_is_shorter_than_the_one_that_contains_it() {
        assert!(ETCD_READ < MEMBERSHIP_CALL);
        assert!(MEMBERSHIP_CALL < GUARD_TURN);
        assert!(GUARD_TURN < QUESTION);
    }

    #[test]
    fn a_clock_that_jumps_back_yields_no_time_passed() {
        assert_eq!(Time(5).since(Time(9)), Duration::ZERO);
    }
}
