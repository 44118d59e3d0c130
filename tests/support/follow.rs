//! The logs of every Pod of a namespace, also of those that are gone. Reads only.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{AsyncBufReadExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::api::LogParams;
use kube::runtime::watcher::{self, Event};
use kube::{Api, ResourceExt as _};
use tokio::task::{AbortHandle, JoinSet};

/// Lines by Pod UID.
type Lines = Arc<Mutex<BTreeMap<String, Vec<String>>>>;

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
        self.lines.lock().unwrap().values().flatten().cloned().collect()
    }
}

impl Drop for PodLogs {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Reads one Pod's log to its end, container after container, until the Pod is gone.
async fn follow(api: Api<Pod>, name: String, uid: String, lines: Lines) {
    let params = LogParams { follow: true, ..LogParams::default() };
    let mut restarts = None;
    loop {
        let Ok(Some(pod)) = api.get_opt(&name).await else { return };
        if pod.uid().as_deref() != Some(&uid) {
            return;
        }
        let container = pod.status.and_then(|s| s.container_statuses).and_then(|c| c.into_iter().next());
        let state = container.as_ref().and_then(|c| c.state.as_ref());
        let ran = state.is_some_and(|s| s.running.is_some() || s.terminated.is_some());
        let count = container.map(|c| c.restart_count);
        // The log of a container that was read to its end is not read again.
        if ran
            && count != restarts
            && let Ok(stream) = api.log_stream(&name, &params).await
        {
            restarts = count;
            let mut stream = stream.lines();
            while let Some(Ok(line)) = stream.next().await {
                lines.lock().unwrap().entry(uid.clone()).or_default().push(line);
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
