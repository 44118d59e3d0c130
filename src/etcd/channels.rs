//! Owns the channels that reads go over: one per member's Pod, for the whole process. Does no I/O
//! itself; a channel connects with its first call.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use etcd_operator_core::{etcd::EtcdFailure, ids::Uid};
use tokio::time::Instant;
use tonic::transport::Channel;

use crate::{
    dial::{Dialer, TlsConfig},
    target::Target,
};

/// How often the table is searched for unused channels, at most.
const SWEEP: Duration = Duration::from_secs(30);

/// The read channels, by Pod UID: Pod IPs are reused, and so are member DNS names when a Pod is
/// re-created, so neither says whose connection it is.
///
/// A channel is dropped when the Pod at its name or address is another one, when its Pod is gone
/// ([`Channels::forget`]), when
/// the certificates changed, when a call over it was not answered, and when it was not used for
/// [`crate::Deadlines::idle`]. The lock is held for map operations only.
#[derive(Debug)]
pub struct Channels {
    table: Mutex<Table>,
}

#[derive(Debug)]
struct Table {
    entries: HashMap<Uid, Entry>,
    swept: Instant,
}

#[derive(Debug)]
struct Entry {
    address: SocketAddr,
    server_name: String,
    tls: Option<Arc<TlsConfig>>,
    channel: Channel,
    used: Instant,
}

impl Default for Channels {
    fn default() -> Self {
        Self::new()
    }
}

impl Channels {
    /// No channels yet.
    pub fn new() -> Self {
        Self { table: Mutex::new(Table { entries: HashMap::new(), swept: Instant::now() }) }
    }

    /// The channel to this target's Pod, made if there is none. Needs a Tokio runtime.
    pub(crate) fn get(&self, dialer: &Dialer, target: &Target) -> Result<Channel, EtcdFailure> {
        let now = Instant::now();
        let mut table = self.lock();
        if now.duration_since(table.swept) >= SWEEP.min(dialer.deadlines().idle) {
            let idle = dialer.deadlines().idle;
            table.entries.retain(|_, e| now.duration_since(e.used) < idle);
            table.swept = now;
        }
        if let Some(entry) = table.entries.get_mut(&target.pod_uid)
            && entry.address == target.address
            && entry.server_name == target.server_name
            && entry.tls.as_ref() == dialer.tls()
        {
            entry.used = now;
            return Ok(entry.channel.clone());
        }
        let channel = dialer.lazy(target)?;
        // A new Pod: whatever was known by its name or at its address is over.
        table.entries.retain(|_, e| e.server_name != target.server_name && e.address != target.address);
        table.entries.insert(
            target.pod_uid.clone(),
            Entry {
                address: target.address,
                server_name: target.server_name.clone(),
                tls: dialer.tls().cloned(),
                channel: channel.clone(),
                used: now,
            },
        );
        Ok(channel)
    }

    /// Drops the channel to a Pod that is gone, or over which a call was not answered. The next
    /// read dials afresh.
    pub fn forget(&self, pod_uid: &Uid) {
        self.lock().entries.remove(pod_uid);
    }

    /// How many channels there are.
    pub fn len(&self) -> usize {
        self.lock().entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    // The table is valid at every point at which a panic could leave it.
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        dial::Deadlines,
        target::{Expected, Target},
    };

    fn target(n: u32, uid: &str) -> Target {
        let [_, _, b, c] = n.to_be_bytes();
        Target::new(
            format!("m-{n}").as_str().into(),
            uid.into(),
            [10, 0, b, c].into(),
            format!("m-{n}.c.ns.svc"),
            Expected::default(),
        )
    }

    #[tokio::test]
    async fn a_new_pod_of_the_same_member_ends_the_old_pods_channel() {
        let (channels, dialer) = (Channels::new(), Dialer::default());
        channels.get(&dialer, &target(1, "old")).unwrap();
        channels.get(&dialer, &target(1, "new")).unwrap();
        assert_eq!(channels.len(), 1);
    }

    #[tokio::test]
    async fn a_pod_that_inherits_an_address_does_not_inherit_the_channel() {
        let (channels, dialer) = (Channels::new(), Dialer::default());
        channels.get(&dialer, &target(1, "a")).unwrap();
        let mut heir = target(2, "b");
        heir.address = target(1, "a").address;
        channels.get(&dialer, &heir).unwrap();
        assert_eq!(channels.len(), 1);
    }

    #[tokio::test]
    async fn a_pod_that_is_gone_has_no_channel() {
        let (channels, dialer) = (Channels::new(), Dialer::default());
        channels.get(&dialer, &target(1, "a")).unwrap();
        channels.forget(&"a".into());
        assert!(channels.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn unused_channels_go_and_used_ones_stay() {
        let (channels, dialer) = (Channels::new(), Dialer::default());
        let idle = Deadlines::default().idle;
        for n in 0..3000 {
            channels.get(&dialer, &target(n, &n.to_string())).unwrap();
        }
        tokio::time::advance(idle / 2).await;
        channels.get(&dialer, &target(0, "0")).unwrap();
        assert_eq!(channels.len(), 3000);
        tokio::time::advance(idle / 2).await;
        channels.get(&dialer, &target(1, "1")).unwrap();
        assert_eq!(channels.len(), 2, "only the two that were used lately");
    }
}
