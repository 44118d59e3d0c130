//! Owns where the actors read the time, and the chance by which they spread out. Tests bring their
//! own.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use etcd_operator_core::time::Time;
use rand::{Rng, SeedableRng, rngs::StdRng};

/// Reads the time in milliseconds since the Unix epoch.
#[derive(Clone)]
pub struct Clock {
    now: Arc<dyn Fn() -> Time + Send + Sync>,
    chance: Arc<Mutex<StdRng>>,
}

impl Clock {
    /// A clock of this process: the wall clock at its start, moved on by the monotonic clock, so
    /// that an operator whose wall clock is set does not see time jump.
    pub fn system() -> Self {
        let start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::since(start, StdRng::from_os_rng())
    }

    /// A clock for a test: it starts at `start` after the epoch, follows tokio's time, which may be
    /// paused, and takes its jitter from `seed`, so that a run can be repeated.
    pub fn seeded(start: Duration, seed: u64) -> Self {
        Self::since(start, StdRng::seed_from_u64(seed))
    }

    fn since(start: Duration, chance: StdRng) -> Self {
        let since = tokio::time::Instant::now();
        let now = move || {
            let now = start + since.elapsed();
            Time(u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
        };
        Self { now: Arc::new(now), chance: Arc::new(Mutex::new(chance)) }
    }

    /// The same clock as a function, for the adapters.
    pub fn as_fn(&self) -> Arc<dyn Fn() -> Time + Send + Sync> {
        self.now.clone()
    }

    /// The time.
    pub fn now(&self) -> Time {
        (self.now)()
    }

    /// `d` more or less by up to a fifth, so that a thousand actors that started together spread out.
    pub(crate) fn jittered(&self, d: Duration) -> Duration {
        let mut chance = self.chance.lock().unwrap_or_else(PoisonError::into_inner);
        d.mul_f64(chance.random_range(0.8..1.2))
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({:?})", self.now())
    }
}
