//! A client that writes all the time through the client Service, as a user's does, and remembers what etcd said.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use etcd_client::{Client, ConnectOptions};
use etcd_operator_api::names;
use etcd_operator_testbed::eventually;
use k8s_openapi::api::core::v1::Service;
use tokio::time::Instant;

use super::{Scene, etcd};

/// A write that etcd acknowledged.
#[derive(Debug, Clone)]
struct Acknowledged {
    key: String,
    revision: i64,
}

#[derive(Default)]
struct Book {
    acknowledged: Vec<Acknowledged>,
    last_error: Option<String>,
    longest_gap: Duration,
}

/// Writes until it is stopped.
pub struct Writer {
    book: Arc<Mutex<Book>>,
    stop: Arc<tokio::sync::Notify>,
    task: tokio::task::JoinHandle<()>,
    cluster: String,
}

/// Pause between two writes: enough of them, and the testbed is left to the others.
const PAUSE: Duration = Duration::from_millis(20);
/// A write that takes longer has an unknown outcome.
const LIMIT: Duration = Duration::from_secs(3);

impl Writer {
    /// Begins to write to the client Service of this cluster, and returns when the first write was acknowledged.
    pub async fn start(scene: &Scene, cluster: &str) -> Self {
        let service = scene.api::<Service>().get(&names::client_service(cluster)).await.unwrap();
        let address = service.spec.and_then(|s| s.cluster_ip).expect("the client Service has an address");
        let book = Arc::new(Mutex::new(Book::default()));
        let stop = Arc::new(tokio::sync::Notify::new());
        let task = tokio::spawn(write(format!("http://{address}:2379"), book.clone(), stop.clone()));
        let writer = Self { book, stop, task, cluster: cluster.to_owned() };
        eventually("a first write acknowledged", Duration::from_secs(30), async || {
            let book = writer.book.lock().unwrap();
            if book.acknowledged.is_empty() { Err(format!("{:?}", book.last_error)) } else { Ok(()) }
        })
        .await
        .unwrap();
        writer
    }

    /// How many writes were acknowledged so far.
    pub fn count(&self) -> usize {
        self.book.lock().unwrap().acknowledged.len()
    }

    /// Stops, and checks that every acknowledged write is there at the revision that etcd gave it, that revisions rose
    /// from write to write, and that all members hold the same. Returns the longest time without an acknowledged write.
    pub async fn finish(self, scene: &Scene) -> Duration {
        self.stop.notify_one();
        self.task.await.unwrap();
        let (writes, gap) = {
            let book = self.book.lock().unwrap();
            (book.acknowledged.clone(), book.longest_gap)
        };
        for pair in writes.windows(2) {
            assert!(pair[0].revision < pair[1].revision, "revisions do not rise: {pair:?}");
        }
        let found =
            etcd::ask(scene, &self.cluster, &["get", "--prefix", "written/", "--keys-only"]).await.unwrap();
        let found: std::collections::BTreeMap<Vec<u8>, i64> = found["kvs"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|kv| {
                (
                    base64(kv["key"].as_str().unwrap_or_default()),
                    kv["mod_revision"].as_i64().unwrap_or_default(),
                )
            })
            .collect();
        for write in &writes {
            let at = found.get(write.key.as_bytes());
            assert_eq!(
                at,
                Some(&write.revision),
                "{} was acknowledged at revision {}",
                write.key,
                write.revision
            );
        }
        eventually("the same data on every member", Duration::from_secs(10), async || {
            etcd::same_data_everywhere(scene, &self.cluster).await
        })
        .await
        .unwrap();
        gap
    }
}

#[expect(clippy::disallowed_methods, reason = "a client as a user has it: one address, that of the Service")]
async fn write(endpoint: String, book: Arc<Mutex<Book>>, stop: Arc<tokio::sync::Notify>) {
    let options = ConnectOptions::new().with_timeout(LIMIT).with_connect_timeout(Duration::from_secs(1));
    let mut client: Option<Client> = None;
    let mut last = Instant::now();
    for number in 0_u64.. {
        if tokio::time::timeout(PAUSE, stop.notified()).await.is_ok() {
            return;
        }
        let key = format!("written/{number:08}");
        let result = async {
            let connected = match client.take() {
                Some(client) => client,
                None => {
                    Client::connect([&endpoint], Some(options.clone())).await.map_err(|e| e.to_string())?
                }
            };
            let mut one = connected.clone();
            let answer = tokio::time::timeout(LIMIT, one.put(key.clone(), number.to_string(), None)).await;
            let answer = answer.map_err(|_| "no answer in time".to_owned())?.map_err(|e| e.to_string())?;
            // A connection that failed is not used again: behind a Service the next one may be another member's.
            client = Some(connected);
            Ok::<_, String>(answer.header().map_or(0, etcd_client::ResponseHeader::revision))
        };
        let result = result.await;
        let mut book = book.lock().unwrap();
        match result {
            Ok(revision) => {
                if !book.acknowledged.is_empty() {
                    book.longest_gap = book.longest_gap.max(last.elapsed());
                }
                last = Instant::now();
                book.acknowledged.push(Acknowledged { key, revision });
            }
            Err(error) => book.last_error = Some(error),
        }
    }
}

/// Decodes what etcdctl's JSON has for bytes.
fn base64(text: &str) -> Vec<u8> {
    let value = |c: u8| match c {
        b'A'..=b'Z' => Some(u32::from(c - b'A')),
        b'a'..=b'z' => Some(u32::from(c - b'a') + 26),
        b'0'..=b'9' => Some(u32::from(c - b'0') + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let digits: Vec<u32> = text.bytes().filter_map(value).collect();
    let mut bytes = Vec::new();
    for four in digits.chunks(4) {
        let bits = four.iter().fold(0, |bits, d| (bits << 6) | d) << (6 * (4 - four.len()));
        bytes.extend_from_slice(&bits.to_be_bytes()[1..four.len()]);
    }
    bytes
}
