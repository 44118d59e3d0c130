//! A client that writes all the time through the client Service and tries a write that fails once more, as a careful
//! application does. Counts what failed in spite of that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use etcd_client::{Client, ConnectOptions};
use etcd_operator_api::names;
use etcd_operator_testbed::{Context as _, Error, Result};
use k8s_openapi::api::core::v1::Service;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::Clusters;

/// Between two writes.
const PAUSE: Duration = Duration::from_millis(20);
/// Before a write is tried once more: kube-proxy and an election need some hundred milliseconds.
const ONCE_MORE: Duration = Duration::from_secs(1);
/// For one try.
const LIMIT: Duration = Duration::from_secs(3);

/// Writes until it is dropped.
pub struct Writer {
    count: Arc<Count>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Count {
    written: AtomicU32,
    retried: AtomicU32,
    failed: AtomicU32,
}

/// How many writes there were.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Written {
    /// Acknowledged, at the first try or the second.
    pub written: u32,
    /// Tried twice.
    pub retried: u32,
    /// Failed twice.
    pub failed: u32,
}

impl Writer {
    /// Begins to write to this cluster.
    ///
    /// # Errors
    /// When its client Service has no address.
    pub async fn start(clusters: &Clusters, cluster: &str) -> Result<Self> {
        let service = names::client_service(cluster);
        let found = clusters.api::<Service>().get(&service).await.context("reading the client Service")?;
        let address = found.spec.and_then(|s| s.cluster_ip);
        let address = address.ok_or_else(|| Error::new(format!("{service} has no address")))?;
        let count = Arc::<Count>::default();
        let task = tokio::spawn(work(format!("http://{address}:2379"), count.clone()));
        Ok(Self { count, task })
    }

    /// What it has done so far.
    pub fn done(&self) -> Written {
        let read = |n: &AtomicU32| n.load(Ordering::Relaxed);
        let Count { written, retried, failed } = &*self.count;
        Written { written: read(written), retried: read(retried), failed: read(failed) }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn work(endpoint: String, count: Arc<Count>) {
    let mut connected = None;
    for number in 0_u32.. {
        sleep(PAUSE).await;
        let mut is_written = write(&endpoint, &mut connected, number).await;
        if !is_written {
            sleep(ONCE_MORE).await;
            count.retried.fetch_add(1, Ordering::Relaxed);
            is_written = write(&endpoint, &mut connected, number).await;
        }
        let kind = if is_written { &count.written } else { &count.failed };
        kind.fetch_add(1, Ordering::Relaxed);
    }
}

/// Whether it was acknowledged.
#[expect(clippy::disallowed_methods, reason = "a client as a user has it: one address, that of the Service")]
async fn write(endpoint: &str, connected: &mut Option<Client>, number: u32) -> bool {
    let options = ConnectOptions::new().with_timeout(LIMIT).with_connect_timeout(Duration::from_secs(1));
    let client = match connected.take() {
        Some(client) => Some(client),
        None => {
            timeout(LIMIT, Client::connect([endpoint], Some(options))).await.ok().and_then(|done| done.ok())
        }
    };
    // A connection that failed is not used again: behind a Service the next one may be another member's.
    let Some(mut client) = client else { return false };
    let put = timeout(LIMIT, client.put(format!("written/{number:08}"), "", None)).await;
    let is_written = put.is_ok_and(|answer| answer.is_ok());
    if is_written {
        *connected = Some(client);
    }
    is_written
}
