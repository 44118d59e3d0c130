//! A client of one cluster, as a user's application is one: through the client Service, a write of something new and a
//! read of something old in turn. It remembers what etcd acknowledged, and checks each answer against that.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use etcd_client::{ConnectOptions, GetOptions, KvClient};
use etcd_operator_api::names;
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use tokio::time::{Instant, timeout};

use crate::support::{Scene, etcd};

/// Between two requests: enough of them to meet every moment of a change, and the machine is left to the clusters.
const PAUSE: Duration = Duration::from_millis(40);
/// A write that takes longer has an unknown outcome.
const LIMIT: Duration = Duration::from_secs(3);
/// Keys that are read in one go at the end: below what a message may hold.
const PAGE: u64 = 5_000;
/// Writes that are followed by a read.
const READ_EVERY: u64 = 3;

/// A write that etcd acknowledged: of key `number`, at this revision.
#[derive(Debug, Clone, Copy)]
struct Acknowledged {
    number: u64,
    revision: i64,
}

#[derive(Default)]
struct Book {
    acknowledged: Vec<Acknowledged>,
    reads: usize,
    failures: usize,
    longest_gap: Duration,
    /// The first answer that no etcd that keeps its promises gives.
    wrong: Option<String>,
    last_error: String,
}

/// Writes and reads until it is dropped.
pub(crate) struct Client {
    cluster: &'static str,
    book: Arc<Mutex<Book>>,
    task: tokio::task::JoinHandle<()>,
}

/// What a client did.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Done {
    pub(crate) writes: usize,
    pub(crate) reads: usize,
    /// Requests without an answer, or with an error.
    pub(crate) failures: usize,
    /// The longest time without an acknowledged write.
    pub(crate) longest_gap: Duration,
}

fn open(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

fn key(number: u64) -> String {
    format!("written/{number:010}")
}

impl Client {
    /// Starts.
    pub(crate) fn start(scene: &Scene, cluster: &'static str) -> Self {
        let book = Arc::new(Mutex::new(Book::default()));
        let task = tokio::spawn(work(scene.api::<Service>(), names::client_service(cluster), book.clone()));
        Self { cluster, book, task }
    }

    /// What it did so far.
    pub(crate) fn done(&self) -> Done {
        let book = open(&self.book);
        Done {
            writes: book.acknowledged.len(),
            reads: book.reads,
            failures: book.failures,
            longest_gap: book.longest_gap,
        }
    }

    /// Checks in passing: no answer was wrong, etcd holds no fewer keys than it acknowledged, and it still takes writes.
    ///
    /// # Errors
    /// What is wrong.
    pub(crate) async fn check(&self, scene: &Scene) -> Result<(), String> {
        let cluster = self.cluster;
        let (writes, wrong) = {
            let book = open(&self.book);
            (book.acknowledged.len(), book.wrong.clone())
        };
        if let Some(wrong) = wrong {
            return Err(format!("{cluster}: {wrong}"));
        }
        let args = ["get", "--prefix", "written/", "--keys-only", "--limit=1"];
        let value = etcd::ask(scene, cluster, &args).await?;
        let count = value["count"].as_u64().unwrap_or_default();
        if count < u64::try_from(writes).unwrap_or(u64::MAX) {
            return Err(format!("{cluster}: {writes} writes were acknowledged, and {count} keys are there"));
        }
        let end = Instant::now() + 10 * LIMIT;
        while open(&self.book).acknowledged.len() == writes {
            if Instant::now() > end {
                let error = open(&self.book).last_error.clone();
                return Err(format!("{cluster}: no write is acknowledged any more: {error}"));
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Stops, and checks that every acknowledged write is there at the revision that etcd gave it.
    ///
    /// # Errors
    /// The first that is not.
    pub(crate) async fn finish(&mut self, scene: &Scene) -> Result<(), String> {
        self.task.abort();
        let cluster = self.cluster;
        let writes = open(&self.book).acknowledged.clone();
        let (_, endpoint) = etcd::leader(scene, cluster).await?;
        let mut kv = connect(&endpoint).await?;
        let mut found = std::collections::HashMap::new();
        let last = writes.last().map_or(0, |w| w.number);
        for first in (0..=last).step_by(usize::try_from(PAGE).unwrap_or(usize::MAX)) {
            let options = GetOptions::new().with_range(key(first + PAGE)).with_keys_only();
            let page = kv.get(key(first), Some(options)).await.map_err(|e| format!("{cluster}: {e}"))?;
            found.extend(page.kvs().iter().map(|kv| (kv.key().to_vec(), kv.mod_revision())));
        }
        for write in &writes {
            let at = found.get(key(write.number).as_bytes());
            if at != Some(&write.revision) {
                return Err(format!(
                    "{cluster}: {write:?} was acknowledged, and is there at revision {at:?}"
                ));
            }
        }
        Ok(())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[expect(clippy::disallowed_methods, reason = "a client as a user has it: one address, that of the Service")]
async fn connect(endpoint: &str) -> Result<KvClient, String> {
    let options = ConnectOptions::new().with_timeout(LIMIT).with_connect_timeout(Duration::from_secs(1));
    let client = etcd_client::Client::connect([endpoint], Some(options)).await.map_err(|e| e.to_string())?;
    Ok(client.kv_client())
}

async fn work(services: Api<Service>, service: String, book: Arc<Mutex<Book>>) {
    let mut connected = None;
    let mut last = Instant::now();
    for number in 0_u64.. {
        tokio::time::sleep(PAUSE).await;
        let written = write(&services, &service, &mut connected, number).await;
        note(&book, &mut last, number, written);
        if number.is_multiple_of(READ_EVERY) {
            let answer = read(&mut connected, &book, number).await;
            let mut book = open(&book);
            match answer {
                Ok(true) => book.reads += 1,
                Ok(false) => {}
                Err(error) => {
                    book.failures += 1;
                    book.last_error = error;
                }
            }
        }
    }
}

fn note(book: &Mutex<Book>, last: &mut Instant, number: u64, written: Result<i64, String>) {
    let mut book = open(book);
    match written {
        Ok(revision) => {
            if let Some(before) = book.acknowledged.last().filter(|before| before.revision >= revision) {
                let wrong = format!("write {number} got revision {revision} after {before:?}");
                book.wrong.get_or_insert(wrong);
            }
            if !book.acknowledged.is_empty() {
                book.longest_gap = book.longest_gap.max(last.elapsed());
            }
            *last = Instant::now();
            book.acknowledged.push(Acknowledged { number, revision });
        }
        Err(error) => {
            book.failures += 1;
            book.last_error = error;
        }
    }
}

/// The revision at which it was written.
async fn write(
    services: &Api<Service>,
    service: &str,
    connected: &mut Option<KvClient>,
    number: u64,
) -> Result<i64, String> {
    // A connection that failed is not used again: behind a Service the next one may be another member's.
    let mut kv = match connected.take() {
        Some(kv) => kv,
        None => {
            let found = services.get(service).await.map_err(|e| e.to_string())?;
            let address = found.spec.and_then(|s| s.cluster_ip).ok_or("the Service has no address")?;
            timeout(LIMIT, connect(&format!("http://{address}:2379"))).await.map_err(|e| e.to_string())??
        }
    };
    let answer = timeout(LIMIT, kv.put(key(number), number.to_string(), None)).await;
    let answer = answer.map_err(|_| "no answer in time".to_owned())?.map_err(|e| e.to_string())?;
    *connected = Some(kv);
    Ok(answer.header().map_or(0, etcd_client::ResponseHeader::revision))
}

/// Reads one of the acknowledged keys, another one each time, linearizably. False if there was nobody to ask.
async fn read(connected: &mut Option<KvClient>, book: &Mutex<Book>, number: u64) -> Result<bool, String> {
    let (old, newest) = {
        let book = open(book);
        let length = u64::try_from(book.acknowledged.len()).unwrap_or(1).max(1);
        // Old ones and the very last in turn.
        let index =
            if number.is_multiple_of(2) { length - 1 } else { number.wrapping_mul(2_654_435_761) % length };
        let index = usize::try_from(index).unwrap_or_default();
        let Some(old) = book.acknowledged.get(index).copied() else { return Ok(false) };
        (old, book.acknowledged.last().map_or(0, |w| w.revision))
    };
    let Some(mut kv) = connected.take() else { return Ok(false) };
    let answer = timeout(LIMIT, kv.get(key(old.number), None)).await;
    let answer = answer.map_err(|_| "no answer in time".to_owned())?.map_err(|e| e.to_string())?;
    *connected = Some(kv);
    let at = answer.header().map_or(0, etcd_client::ResponseHeader::revision);
    let found = answer.kvs().first().map(|kv| (kv.value().to_vec(), kv.mod_revision()));
    let wanted = (old.number.to_string().into_bytes(), old.revision);
    if found.as_ref() != Some(&wanted) || at < newest {
        let wrong = format!(
            "{old:?} was acknowledged, and a later read at revision {at}, when {newest} was known, found {found:?}"
        );
        open(book).wrong.get_or_insert(wrong);
    }
    Ok(true)
}
