//! The logs of every Pod of a namespace, also of those that are gone. Reads only.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{AsyncBufRead, AsyncBufReadExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::api::LogParams;
use kube::runtime::watcher::{self, Event};
use kube::{Api, ResourceExt as _};
use tokio::task::{AbortHandle, JoinSet};

/// A Pod's name and UID.
type Key = (String, String);
/// What is known of each Pod.
type Lines = Arc<Mutex<BTreeMap<Key, Log>>>;

/// The lines of all containers of a Pod, each once.
///
/// Around a restart a log is read twice: which container's it is depends on what the kubelet knows at that moment, not on
/// what the Pod's status said before. etcd's lines carry their time in microseconds, so two that are equal are one.
#[derive(Default)]
pub struct Log {
    lines: Vec<Arc<str>>,
    known: HashSet<Arc<str>>,
}

impl Log {
    /// Adds a line, if it is not known yet.
    pub fn add(&mut self, line: &str) {
        let line: Arc<str> = line.into();
        if self.known.insert(line.clone()) {
            self.lines.push(line);
        }
    }

    /// The lines, in the order in which they were first read.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(|line| &**line)
    }
}

/// Follows the logs until it is dropped.
pub struct PodLogs {
    lines: Lines,
    task: AbortHandle,
}

impl PodLogs {
    /// Starts to follow.
    pub fn start(api: Api<Pod>) -> Self {
        let lines = Lines::default();
        let store = lines.clone();
        let task = tokio::spawn(async move {
            // Dropping the set with this task ends the followers.
            let mut followers = JoinSet::new();
            let mut known = std::collections::BTreeSet::new();
            let mut events = std::pin::pin!(watcher::watcher(api.clone(), watcher::Config::default()));
            while let Some(event) = events.next().await {
                if let Ok(Event::Apply(pod) | Event::InitApply(pod)) = event
                    && let Some(uid) = pod.uid()
                    && known.insert(uid.clone())
                {
                    followers.spawn(follow(api.clone(), pod.name_any(), uid, store.clone()));
                }
            }
        });
        Self { lines, task: task.abort_handle() }
    }

    /// Every line of every Pod so far.
    pub fn all(&self) -> Vec<String> {
        self.of("")
    }

    /// Every line so far of the Pods whose name begins with `prefix`.
    pub fn of(&self, prefix: &str) -> Vec<String> {
        let lines = self.lines.lock().unwrap();
        lines
            .iter()
            .filter(|((name, ..), _)| name.starts_with(prefix))
            .flat_map(|(_, log)| log.lines())
            .map(str::to_owned)
            .collect()
    }
}

impl Drop for PodLogs {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Reads one Pod's log to its end, container after container, until the Pod is gone.
async fn follow(api: Api<Pod>, name: String, uid: String, lines: Lines) {
    let follow = LogParams { follow: true, ..LogParams::default() };
    let previous = LogParams { previous: true, ..LogParams::default() };
    // The life that is being read, and the last one that has been read to its end.
    let (mut reading, mut finished) = (None, None);
    loop {
        let Ok(found) = api.get_opt(&name).await else {
            tokio::time::sleep(Duration::from_secs(1)).await;
            continue;
        };
        let Some(pod) = found.filter(|pod| pod.uid().as_deref() == Some(&uid)) else { return };
        let container = pod.status.and_then(|s| s.container_statuses).and_then(|c| c.into_iter().next());
        let state = container.as_ref().and_then(|c| c.state.as_ref());
        let running = state.is_some_and(|s| s.running.is_some());
        let ran = running || state.is_some_and(|s| s.terminated.is_some());
        let count = container.map(|c| c.restart_count);
        // A stream breaks with its kubelet, and the container may have written more before it ended.
        if let Some(last) = reading
            && count > Some(last)
            && finished < Some(last)
            && let Ok(stream) = api.log_stream(&name, &previous).await
        {
            read(stream, &lines, (name.clone(), uid.clone())).await;
            finished = Some(last);
        }
        // The log of a container that was read to its end is not read again.
        if let Some(count) = count.filter(|count| ran && finished < Some(*count))
            && let Ok(stream) = api.log_stream(&name, &follow).await
        {
            reading = Some(count);
            read(stream, &lines, (name.clone(), uid.clone())).await;
            if !running {
                finished = Some(count);
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// What a kubelet says in place of the rest when the machine has no inotify instance left: 128 are usual, and several
/// testbeds at once need more.
const NOT_FOLLOWED: &str = "failed to create fsnotify watcher";

/// Adds the lines that are not known yet.
async fn read(stream: impl AsyncBufRead, lines: &Lines, pod: Key) {
    let mut stream = std::pin::pin!(stream.lines());
    while let Some(Ok(line)) = stream.next().await {
        if line.starts_with(NOT_FOLLOWED) {
            return tokio::time::sleep(Duration::from_secs(1)).await;
        }
        lines.lock().unwrap().entry(pod.clone()).or_default().add(&line);
    }
}
