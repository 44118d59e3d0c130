//! Every state that objects of a kind went through, in the order of their resource versions. Reads only.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use futures::StreamExt as _;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Resource, ResourceExt as _};
use tokio::task::AbortHandle;

/// A recording that goes on until it is dropped.
pub struct History<K> {
    seen: Arc<Mutex<Vec<Seen<K>>>>,
    task: AbortHandle,
}

/// One state of one object.
#[derive(Debug, Clone)]
pub struct Seen<K> {
    /// The object.
    pub object: K,
    /// Whether this is its last state, from the moment it was deleted.
    pub gone: bool,
}

impl<K: Resource> Seen<K> {
    /// When, in the one order that all objects of an API server share.
    pub fn version(&self) -> u64 {
        self.object.resource_version().and_then(|v| v.parse().ok()).unwrap_or_default()
    }
}

impl<K> History<K>
where
    K: Resource + Clone + Debug + Send + Sync + DeserializeOwned + 'static,
    K::DynamicType: Default,
{
    /// Starts to record. What is there now is the first that is seen; returns once it has been.
    pub async fn start(api: Api<K>) -> Self {
        Self::start_with(api, |_| {}).await
    }

    /// As [`History::start`], and hands each state to `look` at once.
    pub async fn start_with(api: Api<K>, mut look: impl FnMut(&K) + Send + 'static) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (ready, is_ready) = tokio::sync::oneshot::channel();
        let mut ready = Some(ready);
        let store = seen.clone();
        let task = tokio::spawn(async move {
            let mut events = std::pin::pin!(watcher::watcher(api, watcher::Config::default()));
            while let Some(event) = events.next().await {
                let (object, gone) = match event {
                    Ok(Event::Apply(object) | Event::InitApply(object)) => (object, false),
                    Ok(Event::Delete(object)) => (object, true),
                    Ok(Event::InitDone) => {
                        let _ = ready.take().map(|ready| ready.send(()));
                        continue;
                    }
                    // The watcher starts again by itself; what it lists then is recorded too.
                    Ok(Event::Init) | Err(_) => continue,
                };
                if !gone {
                    look(&object);
                }
                store.lock().unwrap().push(Seen { object, gone });
            }
        });
        is_ready.await.expect("the watch never began");
        Self { seen, task: task.abort_handle() }
    }

    /// What was seen so far.
    pub fn all(&self) -> Vec<Seen<K>> {
        self.seen.lock().unwrap().clone()
    }

    /// The states of one object, oldest first.
    pub fn of(&self, name: &str) -> Vec<Seen<K>> {
        self.all().into_iter().filter(|s| s.object.name_any() == name).collect()
    }

    /// The first state for which `is` holds.
    pub fn first(&self, is: impl Fn(&K) -> bool) -> Option<Seen<K>> {
        self.all().into_iter().find(|s| !s.gone && is(&s.object))
    }

    /// How many different objects there were, by UID.
    pub fn objects(&self) -> usize {
        let uids: std::collections::BTreeSet<_> = self.all().iter().map(|s| s.object.uid()).collect();
        uids.len()
    }
}

impl<K> Drop for History<K> {
    fn drop(&mut self) {
        self.task.abort();
    }
}
