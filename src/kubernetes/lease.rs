//! Owns the Lease of one shard: takes it, renews it, gives it back, and tells everyone who asks
//! whether this process owns the shard for long enough. Does I/O on that one Lease and nothing else.
//!
//! Fields and rules are those of client-go's leader election, so that the Go operator of the same
//! API group and this one exclude each other. Two rules carry the safety:
//!
//! - The clocks of others are never trusted. A Lease has expired when its record has not changed for
//!   its duration *as seen here*.
//! - Our own tenure is counted from before the renewal was sent. Nobody can have seen that renewal
//!   earlier, so nobody can think it expired before we do.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};
use kube::{Api, Client, ResourceExt, api::PostParams};
use tokio::{
    sync::{oneshot, watch},
    task::JoinHandle,
    time::{Instant, sleep, sleep_until},
};

pub use crate::ownership::{Ownership, Standing};
use crate::{
    client::deadline,
    failure::{ApiFailure, Call},
    ownership::{Shared, WallClock},
};

/// How long a Lease lasts without a renewal. client-go's default, in whole seconds on the wire.
pub const DURATION: Duration = Duration::from_secs(15);
/// From one renewal to the next, counted from when it was sent: four may fail before the Lease ends.
pub const RENEW_EVERY: Duration = Duration::from_secs(3);
/// How often one that does not hold the Lease looks at it. client-go's default.
pub const RETRY_EVERY: Duration = Duration::from_secs(2);
/// The limit of one call on the Lease: a fifth of its life, so that one that hangs costs one
/// renewal and not the Lease.
pub const LEASE_CALL: Duration = Duration::from_secs(3);
/// What our tenure ends earlier than the Lease: more than two monotonic clocks can drift apart in
/// 15 s (NTP slews at 500 ppm at most, so 15 ms), and the time to put a request on the wire.
pub const MARGIN: Duration = Duration::from_millis(250);

/// Which Lease, and as whom.
#[derive(Debug, Clone)]
pub struct LeaseSettings {
    /// The namespace of the Lease: the operator's.
    pub namespace: String,
    /// The Lease's name; see [`crate::shards::lease_name`].
    pub name: String,
    /// Who holds it; see [`identity`]. No two processes that live at once may share it.
    pub identity: String,
}

/// The identity to hold a Lease by: the Pod's UID (from POD_UID), so that a container that was
/// restarted resumes at once; for a process on a host, its host's name and a random number.
pub fn identity() -> String {
    match std::env::var("POD_UID") {
        Ok(uid) if !uid.is_empty() => uid,
        _ => {
            let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "host".to_owned());
            format!("{host}_{:016x}", rand::random::<u64>())
        }
    }
}

/// The running loop for one Lease. Dropping it ends the tenure without giving the Lease back:
/// it then expires by itself.
#[derive(Debug)]
pub struct LeaseLoop {
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    task: Option<JoinHandle<Result<(), ApiFailure>>>,
}

impl LeaseLoop {
    /// Starts to compete for the Lease. `client` should have a connection pool of its own.
    pub fn start(client: Client, settings: LeaseSettings) -> Self {
        Self::start_with(client, settings, Arc::new(SystemTime::now))
    }

    pub(crate) fn start_with(client: Client, settings: LeaseSettings, wall: WallClock) -> Self {
        let shared = Arc::new(Shared::new(settings.name.clone(), wall));
        let (stop, stopped) = oneshot::channel();
        let candidate = Candidate {
            api: Api::namespaced(client, &settings.namespace),
            settings,
            shared: shared.clone(),
            mine: None,
            seen: None,
        };
        let task = tokio::spawn(candidate.run(stopped));
        Self { shared, stop: Some(stop), task: Some(task) }
    }

    /// The present tenure, if there is one. A handle of an earlier tenure never becomes valid again.
    pub fn ownership(&self) -> Option<Ownership> {
        self.shared.current()
    }

    /// Where we stand, and each change of it.
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.shared.subscribe()
    }

    /// Waits until this process owns the shard. Never returns if the loop has ended.
    pub async fn acquired(&self) -> Ownership {
        let mut standing = self.standing();
        loop {
            if let Some(ownership) = self.ownership() {
                return ownership;
            }
            if standing.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Ends the tenure at once and gives the Lease back, so that another need not wait for it to
    /// expire. To be called when everything that acts on the shard's clusters has stopped: a call
    /// still under way would run beside the next owner.
    ///
    /// # Errors
    /// The Lease could not be given back; it expires by itself.
    pub async fn release(mut self) -> Result<(), ApiFailure> {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        match self.task.take() {
            Some(task) => task.await.unwrap_or_else(|error| Err(ApiFailure::Other(error.to_string()))),
            None => Ok(()),
        }
    }
}

impl Drop for LeaseLoop {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
        self.shared.end("the loop was dropped");
    }
}

/// The part of a Lease that its holder writes; it changes with each renewal.
#[derive(Debug, Clone, PartialEq)]
struct Record {
    holder: Option<String>,
    acquired: Option<MicroTime>,
    renewed: Option<MicroTime>,
    duration: Option<i32>,
    transitions: Option<i32>,
}

impl Record {
    fn of(lease: &Lease) -> Self {
        let spec = lease.spec.clone().unwrap_or_default();
        Self {
            holder: spec.holder_identity.filter(|h| !h.is_empty()),
            acquired: spec.acquire_time,
            renewed: spec.renew_time,
            duration: spec.lease_duration_seconds,
            transitions: spec.lease_transitions,
        }
    }

    /// The longer of what the holder promises and what we would: a holder with a longer Lease
    /// must not be cut short, and a record without sense must not make us hasty.
    fn duration(&self) -> Duration {
        let promised =
            self.duration.and_then(|s| u64::try_from(s).ok()).map_or(DURATION, Duration::from_secs);
        promised.max(DURATION)
    }
}

/// A record of another holder, and since when it has not changed as seen here.
struct SeenRecord {
    record: Record,
    since: Instant,
}

struct Candidate {
    api: Api<Lease>,
    settings: LeaseSettings,
    shared: Arc<Shared>,
    /// The Lease as our last write left it; none when there is doubt about that.
    mine: Option<Lease>,
    seen: Option<SeenRecord>,
}

impl Candidate {
    async fn run(mut self, mut stop: oneshot::Receiver<()>) -> Result<(), ApiFailure> {
        loop {
            let shared = self.shared.clone();
            tokio::select! {
                biased;
                _ = &mut stop => break,
                // A renewal that hangs is dropped here: the tenure ends by the clock, not by an answer.
                () = shared.expired() => {
                    shared.end("it was not renewed in time");
                }
                () = self.turn() => {}
            }
        }
        let held = self.shared.end("it is being given back");
        if held { self.give_back().await } else { Ok(()) }
    }

    /// One look or renewal, and the pause after it.
    async fn turn(&mut self) {
        let started = Instant::now();
        let outcome = self.look(started).await;
        let pause = match outcome {
            Ok(()) if self.mine.is_some() => RENEW_EVERY,
            Ok(()) => jittered(RETRY_EVERY),
            Err(failure) => {
                tracing::warn!(lease = self.settings.name, %failure, "the Lease could not be read or written");
                // Another writer got in between, so there is something new to see at once.
                if matches!(failure, ApiFailure::Conflict(_)) {
                    jittered(RETRY_EVERY / 8)
                } else {
                    jittered(RETRY_EVERY)
                }
            }
        };
        sleep_until(started + pause).await;
        // Whatever happened above took longer than the pause: still never spin.
        sleep(Duration::from_millis(1)).await;
    }

    async fn look(&mut self, started: Instant) -> Result<(), ApiFailure> {
        let wall = self.shared.wall();
        let lease = match self.mine.take() {
            Some(lease) => lease,
            None => match deadline(Call::Read, LEASE_CALL, self.api.get_opt(&self.settings.name)).await? {
                Some(lease) => lease,
                None => return self.create(started, wall).await,
            },
        };
        let record = Record::of(&lease);
        let ours = record.holder.as_deref() == Some(self.settings.identity.as_str());
        if !ours && self.shared.end("another process holds it") {
            tracing::error!(
                lease = self.settings.name,
                holder = record.holder,
                "the Lease was taken from us"
            );
        }
        if !ours && record.holder.is_some() && !self.has_expired(&record) {
            self.shared.wait_for(record.holder);
            return Ok(());
        }
        self.write(lease, &record, ours, started, wall).await
    }

    /// Notes the record, and tells whether it has stood unchanged for as long as it promised.
    /// Another's clock plays no part: a record is as old as our knowledge of it.
    fn has_expired(&mut self, record: &Record) -> bool {
        let now = Instant::now();
        match &self.seen {
            Some(seen) if seen.record == *record => now >= seen.since + record.duration(),
            _ => {
                self.seen = Some(SeenRecord { record: record.clone(), since: now });
                false
            }
        }
    }

    async fn create(&mut self, started: Instant, wall: SystemTime) -> Result<(), ApiFailure> {
        self.shared.end("the Lease was deleted");
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.settings.name.clone()),
                namespace: Some(self.settings.namespace.clone()),
                ..Default::default()
            },
            spec: Some(self.spec(now(wall), 0, wall)),
        };
        let created =
            deadline(Call::Write, LEASE_CALL, self.api.create(&PostParams::default(), &lease)).await?;
        self.keep(created, started, wall);
        Ok(())
    }

    /// Takes or renews. The resourceVersion in the body makes the server refuse if anyone wrote since.
    async fn write(
        &mut self,
        mut lease: Lease,
        record: &Record,
        ours: bool,
        started: Instant,
        wall: SystemTime,
    ) -> Result<(), ApiFailure> {
        let transitions = record.transitions.unwrap_or(0);
        lease.spec = Some(if ours {
            self.spec(record.acquired.clone().unwrap_or_else(|| now(wall)), transitions, wall)
        } else {
            self.spec(now(wall), transitions.saturating_add(1), wall)
        });
        lease.metadata.managed_fields = None;
        let params = PostParams::default();
        let replace = self.api.replace(&self.settings.name, &params, &lease);
        let written = deadline(Call::Write, LEASE_CALL, replace).await?;
        self.keep(written, started, wall);
        Ok(())
    }

    fn keep(&mut self, lease: Lease, started: Instant, wall: SystemTime) {
        if lease.resource_version().is_none() {
            tracing::error!(lease = self.settings.name, "the API server returned a Lease without a version");
            return;
        }
        self.mine = Some(lease);
        self.seen = None;
        self.shared.extend(started + (DURATION - MARGIN), wall + (DURATION - MARGIN));
    }

    fn spec(&self, acquired: MicroTime, transitions: i32, wall: SystemTime) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(self.settings.identity.clone()),
            lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
            acquire_time: Some(acquired),
            renew_time: Some(now(wall)),
            lease_transitions: Some(transitions),
            ..Default::default()
        }
    }

    /// As client-go releases: no holder, one second.
    async fn give_back(mut self) -> Result<(), ApiFailure> {
        let lease = match self.mine.take() {
            Some(lease) => lease,
            None => deadline(Call::Read, LEASE_CALL, self.api.get(&self.settings.name)).await?,
        };
        let record = Record::of(&lease);
        if record.holder.as_deref() != Some(self.settings.identity.as_str()) {
            return Ok(());
        }
        let wall = self.shared.wall();
        let mut free = lease;
        free.metadata.managed_fields = None;
        free.spec = Some(LeaseSpec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(1),
            ..self.spec(now(wall), record.transitions.unwrap_or(0), wall)
        });
        let params = PostParams::default();
        let replace = self.api.replace(&self.settings.name, &params, &free);
        deadline(Call::Write, LEASE_CALL, replace).await.map(|_| ())
    }
}

/// Only for people and for the record to change: nobody's decision depends on it.
fn now(wall: SystemTime) -> MicroTime {
    MicroTime(Timestamp::try_from(wall).unwrap_or_default())
}

/// Up to a fifth more, so that many candidates do not look in step.
fn jittered(time: Duration) -> Duration {
    time.mul_f64(1.0 + rand::random::<f64>() / 5.0)
}

#[cfg(test)]
#[path = "lease_tests.rs"]
mod tests;
