//! Owns the pause before something that failed is tried again. Decides only that, does no I/O.

use std::time::Duration;

use crate::time::Time;

/// Pauses that double from `first` to `longest` and start over after a quiet time of `longest`.
/// Nothing is ever given up: a cluster must not depend on somebody restarting the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestartBudget {
    first: Duration,
    longest: Duration,
    failures: u32,
    last: Option<Time>,
}

impl RestartBudget {
    /// For an actor that ended by a fault: 1 s doubling to 5 min.
    pub const fn for_actors() -> Self {
        Self::new(Duration::from_secs(1), Duration::from_secs(300))
    }

    /// For a Pod that keeps being thrown out right after it was created: seconds up to minutes,
    /// so that a node that refuses it is not flooded with attempts.
    pub const fn for_pods() -> Self {
        Self::new(Duration::from_secs(1), Duration::from_secs(120))
    }

    /// Pauses from `first` to `longest`.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, failures: 0, last: None }
    }

    /// Notes a failure at `now` and returns how long to pause before the next try.
    pub fn failed(&mut self, now: Time) -> Duration {
        if self.last.is_some_and(|last| now.since(last) >= self.longest.saturating_mul(2)) {
            self.failures = 0;
        }
        self.last = Some(now);
        // 2^16 × 1 s is far beyond any `longest`; more would only overflow.
        let pause = self.first.saturating_mul(1 << self.failures.min(16)).min(self.longest);
        self.failures = self.failures.saturating_add(1);
        pause
    }

    /// Failures since the last quiet time.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Whether `now` lies after a quiet time, so that a fault that was lived with is over.
    pub fn is_quiet(&self, now: Time) -> bool {
        self.last.is_none_or(|last| now.since(last) >= self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // CL-09
    #[test]
    fn pauses_double_up_to_the_longest_and_are_never_given_up() {
        let mut budget = RestartBudget::for_actors();
        let pauses: Vec<u64> = (0..12).map(|i| budget.failed(Time(i)).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
        assert_eq!(budget.failures(), 12);
    }

    #[test]
    fn after_a_quiet_time_the_first_pause_is_short_again() {
        let mut budget = RestartBudget::for_actors();
        for i in 0..9 {
            budget.failed(Time(i));
        }
        assert!(!budget.is_quiet(Time(1_000)));
        assert_eq!(budget.failed(Time(700_000)).as_secs(), 1);
    }
}
