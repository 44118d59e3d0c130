//! Owns the answer to "does this process own the shard, and for how long still". Does no I/O.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

/// Reads the wall clock; tests bring their own.
pub(crate) type WallClock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// Where a process stands with a shard's Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Another process holds it, or nobody has been seen to.
    Waiting {
        /// Who holds it, as far as known.
        holder: Option<String>,
    },
    /// This process holds it; the number grows with each new tenure.
    Owner {
        /// The tenure.
        term: u64,
    },
    /// This process held it and holds it no longer.
    Lost {
        /// Why.
        why: &'static str,
    },
}

/// The right to act on a shard's clusters for one tenure. Clones share it. Once lost it never
/// becomes valid again, also when the same process acquires the Lease anew: whoever holds this
/// handle decided on what was true before.
#[derive(Clone)]
pub struct Ownership {
    tenure: Option<(Arc<Shared>, u64)>,
}

impl Ownership {
    /// Ownership without a Lease, always valid: for `--leader-elect=false` and for tests. Whoever
    /// uses it answers for there being no second process.
    pub const fn without_lease() -> Self {
        Self { tenure: None }
    }

    /// Whether the shard is ours for longer than `needed` from now on. To be asked right before a
    /// call that may take `needed`.
    ///
    /// Two clocks must agree. The monotonic one cannot be set, but it stands still while a machine
    /// is suspended; the wall clock runs on through that, or jumps when the machine wakes. A jump
    /// forward therefore costs a pause until the next renewal, and a jump back changes nothing.
    pub fn valid_for(&self, needed: Duration) -> bool {
        let Some((shared, term)) = &self.tenure else { return true };
        let tenure = shared.tenure();
        let wall = (shared.wall)();
        tenure.term == *term
            && tenure.until.is_some_and(|(monotonic, wall_until)| {
                Instant::now() + needed < monotonic && wall + needed < wall_until
            })
    }

    /// Returns when this tenure has ended. Without a Lease, never.
    pub async fn lost(&self) {
        let Some((shared, term)) = &self.tenure else { return std::future::pending().await };
        let mut standing = shared.standing.subscribe();
        while shared.tenure().is(*term) {
            if standing.changed().await.is_err() {
                return;
            }
        }
    }
}

impl fmt::Debug for Ownership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.tenure {
            Some((shared, term)) => write!(f, "Ownership({}, term {term})", shared.name),
            None => f.write_str("Ownership(without Lease)"),
        }
    }
}

/// One shard's tenure, written by its Lease loop and read by every [`Ownership`].
pub(crate) struct Shared {
    name: String,
    wall: WallClock,
    tenure: Mutex<Tenure>,
    standing: watch::Sender<Standing>,
}

#[derive(Debug, Clone, Copy)]
struct Tenure {
    term: u64,
    /// None when the Lease is not held. Both must lie ahead.
    until: Option<(Instant, SystemTime)>,
}

impl Tenure {
    fn is(&self, term: u64) -> bool {
        self.term == term && self.until.is_some()
    }
}

impl Shared {
    pub(crate) fn new(name: String, wall: WallClock) -> Self {
        let (standing, _) = watch::channel(Standing::Waiting { holder: None });
        Self { name, wall, tenure: Mutex::new(Tenure { term: 0, until: None }), standing }
    }

    pub(crate) fn wall(&self) -> SystemTime {
        (self.wall)()
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Standing> {
        self.standing.subscribe()
    }

    pub(crate) fn current(self: &Arc<Self>) -> Option<Ownership> {
        let tenure = self.tenure();
        tenure.until.map(|_| Ownership { tenure: Some((self.clone(), tenure.term)) })
    }

    /// The tenure lasts until then; a new one begins if there is none.
    pub(crate) fn extend(&self, monotonic: Instant, wall: SystemTime) {
        let mut tenure = self.tenure();
        let new = tenure.until.is_none();
        tenure.term += u64::from(new);
        tenure.until = Some((monotonic, wall));
        let term = tenure.term;
        drop(tenure);
        if new {
            tracing::info!(lease = self.name, term, "the Lease is ours");
            self.standing.send_replace(Standing::Owner { term });
        }
    }

    /// Ends the tenure, and tells whether there was one.
    pub(crate) fn end(&self, why: &'static str) -> bool {
        let held = self.tenure().until.take().is_some();
        if held {
            tracing::warn!(lease = self.name, why, "the Lease is no longer ours");
            self.standing.send_replace(Standing::Lost { why });
        }
        held
    }

    pub(crate) fn wait_for(&self, holder: Option<String>) {
        self.standing.send_if_modified(|standing| {
            let next = Standing::Waiting { holder };
            let changed = *standing != next;
            if changed {
                tracing::info!(lease = self.name, standing = ?next, "the Lease is another's");
                *standing = next;
            }
            changed
        });
    }

    /// Returns when the tenure has run out by the monotonic clock; never while there is none.
    pub(crate) async fn expired(&self) {
        loop {
            let until = self.tenure().until;
            match until {
                None => std::future::pending().await,
                Some((monotonic, _)) if Instant::now() >= monotonic => return,
                Some((monotonic, _)) => sleep_until(monotonic).await,
            }
        }
    }

    fn tenure(&self) -> MutexGuard<'_, Tenure> {
        self.tenure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("name", &self.name).finish_non_exhaustive()
    }
}
