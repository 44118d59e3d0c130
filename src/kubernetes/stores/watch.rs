//! Keeps one cache true to one watch. Does I/O: the watch.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    sync::Arc,
    time::Duration,
};

use etcd_operator_api::Reason;
use futures::{Stream, StreamExt};
use kube::{Api, runtime::watcher};
use serde::de::DeserializeOwned;

use super::{
    Shared,
    cache::{Cache, Key, key_of},
    feed::Touched,
    prune::Watched,
};
use crate::decoded::Decoded;

/// One watch: where its objects go, and whether it has shown all of them once.
pub(super) struct Watch<K> {
    pub(super) shared: Arc<Shared>,
    pub(super) cache: fn(&Shared) -> &Cache<K>,
    /// The one namespace that it covers; none is all.
    pub(super) scope: Option<String>,
    /// Its number among the process's watches, for [`Shared::filled`].
    pub(super) number: usize,
}

impl<K> Watch<K>
where
    K: Watched + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    /// Lists and watches for ever. A failing watch is tried again more and more slowly; meanwhile
    /// the cache stays as it was.
    pub(super) async fn run(self, api: Api<Decoded<K>>, config: watcher::Config) {
        self.follow(Box::pin(watcher(api, config))).await;
    }

    pub(super) async fn follow(
        self,
        mut stream: impl Stream<Item = watcher::Result<watcher::Event<Decoded<K>>>> + Unpin,
    ) {
        let mut relist: BTreeSet<Key> = BTreeSet::new();
        let mut backoff = Backoff::default();
        while let Some(event) = stream.next().await {
            match event {
                // It only says that a list is about to be asked for.
                Ok(watcher::Event::Init) => relist.clear(),
                Ok(event) => {
                    backoff = Backoff::default();
                    self.shared.trouble(self.number, None);
                    self.absorb(event, &mut relist);
                }
                Err(error) => {
                    let text = error.to_string();
                    if self.shared.trouble(self.number, Some(text.clone())) {
                        tracing::warn!(kind = ?K::KIND, scope = self.scope, error = text, "a watch fails");
                    }
                    // The stream asks for nothing while it is not polled.
                    tokio::time::sleep(backoff.next()).await;
                }
            }
        }
    }

    fn absorb(&self, event: watcher::Event<Decoded<K>>, relist: &mut BTreeSet<Key>) {
        match event {
            watcher::Event::Init => {}
            watcher::Event::InitApply(object) => {
                relist.insert(key_of(&object));
                self.put(object);
            }
            watcher::Event::InitDone => {
                let cache = (self.cache)(&self.shared);
                for key in cache.missing_from(self.scope.as_deref(), relist) {
                    self.drop_object(&key);
                }
                relist.clear();
                self.shared.filled(self.number);
            }
            watcher::Event::Apply(object) => self.put(object),
            watcher::Event::Delete(object) => self.drop_object(&key_of(&object)),
        }
    }

    fn put(&self, Decoded(object): Decoded<K>) {
        let cache = (self.cache)(&self.shared);
        match object {
            Ok(mut object) => {
                object.prune();
                let new = Arc::new(object);
                let old = cache.insert(new.clone());
                let version = |o: &Arc<K>| (o.meta().uid.clone(), o.meta().resource_version.clone());
                // A relist shows everything again; only what is different is news.
                if old.as_ref().map(version) == Some(version(&new)) {
                    return;
                }
                if let Some(old) = old {
                    self.tell(&old);
                }
                self.tell(&new);
            }
            // It concerns this object only, is told once, and is looked at again when it changes (VC-05).
            Err(invalid) => {
                let meta = &invalid.metadata;
                let key = (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default());
                if cache.note_unreadable(key.clone(), invalid.error.clone()) {
                    tracing::error!(
                        kind = ?K::KIND, namespace = key.0, name = key.1, error = invalid.error,
                        "the object does not decode as this version of the API; it alone is left alone"
                    );
                    if let Some(events) = &self.shared.events {
                        let object = Decoded::<K>(Err(invalid.clone()));
                        events.tell(&object, Reason::UnreadableObject, invalid.error.clone());
                    }
                    self.shared.feed.push(Touched {
                        kind: K::KIND,
                        namespace: key.0,
                        name: key.1,
                        owner_uid: None,
                        cluster: None,
                    });
                }
            }
        }
    }

    fn drop_object(&self, key: &Key) {
        if let Some(old) = (self.cache)(&self.shared).remove(key) {
            self.tell(&old);
        }
    }

    fn tell(&self, object: &Arc<K>) {
        let (namespace, name) = key_of(&**object);
        let owner = object
            .meta()
            .owner_references
            .as_deref()
            .unwrap_or_default()
            .iter()
            .find(|o| o.controller == Some(true));
        // The owner is an identity; a label is what somebody wrote, and is asked only when there is no owner.
        let by_owner = owner.and_then(|owner| match owner.kind.as_str() {
            "EtcdCluster" => Some(owner.name.clone()),
            "EtcdMember" => {
                let member = self.shared.members.get(&namespace, &owner.name);
                member.map(|member| member.spec.cluster_name.clone())
            }
            _ => None,
        });
        let cluster = by_owner.or_else(|| object.cluster_name().map(str::to_owned));
        let owner_uid = owner.map(|owner| owner.uid.as_str().into());
        self.shared.feed.push(Touched { kind: K::KIND, namespace, name, owner_uid, cluster });
    }
}

/// The pause before a failing watch is tried again: 0.8 s doubling to 30 s, as client-go's, each
/// with up to as much again so that watches do not come in step.
///
/// kube's own back-off is not used: it starts again at `Event::Init`, which comes before each list,
/// so that a list that is refused would be repeated every second for ever (AP-03).
#[derive(Debug)]
struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Self {
        Self(Duration::from_millis(800))
    }
}

impl Backoff {
    fn next(&mut self) -> Duration {
        let pause = self.0.mul_f64(1.0 + rand::random::<f64>());
        self.0 = (self.0 * 2).min(Duration::from_secs(30));
        pause
    }
}

/// Which watches have shown all their objects, and what is wrong with those that fail.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) unfilled: BTreeSet<usize>,
    pub(super) troubles: BTreeMap<usize, String>,
}
