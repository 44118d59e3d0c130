//! Owns when an actor looks again: one timer, its jitter, its stretching, and the pause after a
//! failure. Does no I/O.

use std::time::Duration;

use etcd_operator_core::{budget::RestartBudget, time::Time};
use etcd_operator_kubernetes::failure::ApiFailure;
use ractor::{ActorRef, Message};

/// Nothing is looked at less often than this while it is not settled.
const LONGEST: Duration = Duration::from_secs(10);

/// No effect is repeated this soon after it succeeded: a store shows it in much less, and a view that does
/// not show it yet would only lead to the same effect again.
pub(crate) const JUST_DONE: Duration = Duration::from_secs(1);

/// How the last effect failed.
#[derive(Debug)]
enum Words {
    /// The API server will not have it, in its own words: they name what a person must change, and are the
    /// same each time.
    Refused(String),
    /// It fails, and nobody can tell whose fault that is.
    Failing(String),
}

/// The pace of one actor.
#[derive(Debug)]
pub(crate) struct Pace {
    generation: u64,
    quiet_looks: u32,
    failures: RestartBudget,
    not_before: Time,
    last_words: Option<Words>,
    timer: Option<tokio::task::AbortHandle>,
}

impl Default for Pace {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        if let Some(timer) = self.timer.take() {
            timer.abort();
        }
    }
}

impl Pace {
    /// A pace without history.
    pub(crate) fn new() -> Self {
        Self {
            generation: 0,
            quiet_looks: 0,
            failures: RestartBudget::new(Duration::from_millis(250), Duration::from_secs(60)),
            not_before: Time(0),
            last_words: None,
            timer: None,
        }
    }

    /// Something changed, so short waits are worth it again.
    pub(crate) fn news(&mut self) {
        self.quiet_looks = 0;
    }

    /// `again`, doubled with every four looks that brought no news, up to ten seconds: a Pod
    /// that does not come up for an hour must not be looked at three times a second.
    pub(crate) fn stretched(&mut self, again: Duration) -> Duration {
        let stretched = again.saturating_mul(1 << (self.quiet_looks / 4).min(6));
        self.quiet_looks = self.quiet_looks.saturating_add(1);
        stretched.min(LONGEST.max(again))
    }

    /// How often an unsettled member's process is looked at, at the present stretch.
    pub(crate) fn look_every(&self) -> Duration {
        Duration::from_millis(250).saturating_mul(1 << (self.quiet_looks / 4).min(6)).min(LONGEST)
    }

    /// An effect failed.
    pub(crate) fn failed(&mut self, now: Time, failure: &ApiFailure) {
        // Somebody else wrote first: the store will show it, and the next look decides anew.
        let pause = if matches!(failure, ApiFailure::Conflict(_)) {
            Duration::from_millis(50)
        } else {
            self.last_words = Some(match failure {
                ApiFailure::Forbidden(_) | ApiFailure::Invalid(_) => Words::Refused(failure.to_string()),
                other => Words::Failing(format!("writes to the API server fail: {}", other.kind())),
            });
            self.failures.failed(now)
        };
        self.not_before = now + pause;
    }

    /// An effect succeeded.
    pub(crate) fn succeeded(&mut self) {
        self.last_words = None;
        self.failures = RestartBudget::new(Duration::from_millis(250), Duration::from_secs(60));
    }

    /// How long effects must pause still.
    pub(crate) fn pause(&self, now: Time) -> Option<Duration> {
        (now < self.not_before).then(|| self.not_before.since(now))
    }

    /// What keeps failing, once it has failed three times in a row.
    pub(crate) fn fault(&self) -> Option<&str> {
        match &self.last_words {
            Some(Words::Failing(words)) if self.failures.failures() >= 3 => Some(words),
            _ => None,
        }
    }

    /// What the API server says as it keeps refusing an effect, once it has done so three times in a row.
    pub(crate) fn refused(&self) -> Option<&str> {
        match &self.last_words {
            Some(Words::Refused(words)) if self.failures.failures() >= 3 => Some(words),
            _ => None,
        }
    }

    /// Replaces the one timer.
    pub(crate) fn arm<M: Message>(&mut self, actor: &ActorRef<M>, after: Duration, tick: fn(u64) -> M) {
        if let Some(timer) = self.timer.take() {
            timer.abort();
        }
        self.generation += 1;
        let generation = self.generation;
        self.timer = Some(actor.send_after(after, move || tick(generation)).abort_handle());
    }

    /// Whether a tick is of the present timer.
    pub(crate) fn is_current(&self, generation: u64) -> bool {
        self.generation == generation
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // AP-03
    #[test]
    fn looks_that_bring_no_news_come_less_and_less_often() {
        let mut pace = Pace::new();
        let short = Duration::from_millis(300);
        let waits: Vec<Duration> = (0..40).map(|_| pace.stretched(short)).collect();
        assert_eq!(waits[0], short);
        assert!(waits.windows(2).all(|w| w[0] <= w[1]));
        assert_eq!(waits[39], LONGEST);
        pace.news();
        assert_eq!(pace.stretched(short), short);
    }

    #[test]
    fn a_patient_wait_is_not_shortened() {
        assert_eq!(Pace::new().stretched(Duration::from_secs(15)), Duration::from_secs(15));
    }

    #[test]
    fn failures_pause_longer_each_time_and_are_told_from_the_third_on() {
        let mut pace = Pace::new();
        let failure = ApiFailure::Forbidden("pods is forbidden".into());
        for n in 0..3u64 {
            assert!(pace.refused().is_none());
            pace.failed(Time(n * 10), &failure);
        }
        assert!(pace.refused().is_some_and(|words| words.contains("forbidden")));
        assert_eq!(pace.fault(), None, "what is refused is no fault of the operator's");
        assert!(pace.pause(Time(30)) > Some(Duration::from_millis(900)));
        pace.failed(Time(60), &ApiFailure::Throttled { retry_after: None });
        assert!(pace.fault().is_some_and(|words| words.contains("throttled")));
        pace.succeeded();
        assert_eq!((pace.refused(), pace.fault()), (None, None));
    }
}
