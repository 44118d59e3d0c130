//! Owns where the actors read the time. Tests bring their own.

use std::{
    fmt,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use etcd_operator_core::time::Time;

/// Reads the time in milliseconds since the Unix epoch.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Time + Send + Sync>);

impl Clock {
    /// A clock of this process: the wall clock at its start, moved on by the monotonic clock, so
    /// that an operator whose wall clock is set does not see time jump.
    pub fn system() -> Self {
        let start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let since = tokio::time::Instant::now();
        Self(Arc::new(move || {
            let now = start + since.elapsed();
            Time(u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
        }))
    }

    /// The same clock as a function, for the adapters.
    pub fn as_fn(&self) -> Arc<dyn Fn() -> Time + Send + Sync> {
        self.0.clone()
    }

    /// The time.
    pub fn now(&self) -> Time {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({:?})", self.now())
    }
}
