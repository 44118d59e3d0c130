//! Owns what the process knows of the API server without asking: one watch for each kind, and one
//! store behind it. Does I/O: the watches. Decides nothing.
//!
//! A store may be behind. What is in it may have changed, and what is absent may exist. So it is
//! read to find out what to look at; an effect that rests on absence asks [`crate::reads`] first.

mod cache;
mod feed;
mod prune;
mod watch;

use std::{
    collections::BTreeSet,
    fmt::Debug,
    sync::{Arc, Mutex, PoisonError},
};

use etcd_operator_api::{EtcdCluster, EtcdDefrag, EtcdMember, EtcdSnapshot, labels};
use etcd_operator_core::ids::Uid;
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        core::v1::{PersistentVolumeClaim, Pod, Service},
        policy::v1::PodDisruptionBudget,
    },
};
use kube::{Api, Client, Resource, runtime::watcher};
use serde::de::DeserializeOwned;
use tokio::{sync::watch::Sender, task::JoinSet};

pub use feed::{Feed, Kind, Touched};

use crate::{decoded::Decoded, events::Events, objects::controller_uid};
use cache::Cache;
use prune::Watched;
use watch::{Progress, Watch};

/// An object that does not decode as this version of the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What is wrong with it.
    pub why: String,
}

#[derive(Debug)]
pub(crate) struct Shared {
    clusters: Cache<EtcdCluster>,
    members: Cache<EtcdMember>,
    snapshots: Cache<EtcdSnapshot>,
    defrags: Cache<EtcdDefrag>,
    pods: Cache<Pod>,
    pvcs: Cache<PersistentVolumeClaim>,
    services: Cache<Service>,
    budgets: Cache<PodDisruptionBudget>,
    feed: Feed,
    events: Option<Events>,
    progress: Mutex<Progress>,
    ready: Sender<bool>,
}

impl Shared {
    fn new(watches: usize, events: Option<Events>) -> Self {
        Self {
            clusters: Cache::default(),
            members: Cache::default(),
            snapshots: Cache::default(),
            defrags: Cache::default(),
            pods: Cache::default(),
            pvcs: Cache::default(),
            services: Cache::default(),
            budgets: Cache::default(),
            feed: Feed::default(),
            events,
            progress: Mutex::new(Progress { unfilled: (0..watches).collect(), ..Progress::default() }),
            ready: Sender::new(false),
        }
    }

    fn filled(&self, watch: usize) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        if progress.unfilled.remove(&watch) && progress.unfilled.is_empty() {
            self.ready.send_replace(true);
        }
    }

    /// Notes what is wrong with a watch, or that nothing is, and tells whether that is news.
    fn trouble(&self, watch: usize, why: Option<String>) -> bool {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        match why {
            Some(why) => progress.troubles.insert(watch, why.clone()).is_none_or(|before| before != why),
            None => progress.troubles.remove(&watch).is_some(),
        }
    }
}

/// The stores of the whole process. Clones share them; the watches end with the last clone.
#[derive(Debug, Clone)]
pub struct Stores {
    shared: Arc<Shared>,
    _watches: Arc<JoinSet<()>>,
}

impl Stores {
    /// Starts the watches: one for each kind, or one for each kind and namespace if namespaces are
    /// given; then no request goes to any other. Our own kinds are watched unfiltered, so that no
    /// label can hide one; the rest by the label `managed-by` (AP-02).
    ///
    /// An object that does not decode is logged once, and told of as an Event if `events` is given.
    pub fn start_telling(client: Client, namespaces: &[String], events: Option<Events>) -> Self {
        let scopes: BTreeSet<Option<String>> = if namespaces.is_empty() {
            BTreeSet::from([None])
        } else {
            namespaces.iter().cloned().map(Some).collect()
        };
        const KINDS: usize = 8;
        let shared = Arc::new(Shared::new(scopes.len() * KINDS, events));
        let mut starter = Starter { client, shared: shared.clone(), watches: JoinSet::new(), number: 0 };
        let everything = watcher::Config::default();
        let labelled = watcher::Config::default().labels(&format!(
            "{}={}",
            labels::MANAGED_BY,
            labels::MANAGED_BY_VALUE
        ));
        for scope in scopes {
            starter.watch(scope.clone(), everything.clone(), |s| &s.clusters);
            starter.watch(scope.clone(), everything.clone(), |s| &s.members);
            starter.watch(scope.clone(), everything.clone(), |s| &s.snapshots);
            starter.watch(scope.clone(), everything.clone(), |s| &s.defrags);
            starter.watch(scope.clone(), labelled.clone(), |s| &s.pods);
            starter.watch(scope.clone(), labelled.clone(), |s| &s.pvcs);
            starter.watch(scope.clone(), labelled.clone(), |s| &s.services);
            starter.watch(scope, labelled.clone(), |s| &s.budgets);
        }
        Self { shared, _watches: Arc::new(starter.watches) }
    }

    /// [`Stores::start_telling`] without Events.
    pub fn start(client: Client, namespaces: &[String]) -> Self {
        Self::start_telling(client, namespaces, None)
    }

    /// Waits until every store has been filled once. Before that, "not there" means nothing (CL-06).
    pub async fn ready(&self) {
        // The sender lives in `shared`, so this never fails.
        let _ = self.shared.ready.subscribe().wait_for(|ready| *ready).await;
    }

    /// Whether every store has been filled once.
    pub fn is_ready(&self) -> bool {
        *self.shared.ready.borrow()
    }

    /// What is wrong with watches that fail at present; empty when all are well.
    pub fn troubles(&self) -> Vec<String> {
        let progress = self.shared.progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.troubles.values().cloned().collect()
    }

    /// The news. One reader.
    pub fn feed(&self) -> &Feed {
        &self.shared.feed
    }

    /// The EtcdCluster of that name.
    pub fn cluster(&self, namespace: &str, name: &str) -> Option<Arc<EtcdCluster>> {
        self.shared.clusters.get(namespace, name)
    }

    /// The EtcdCluster with that UID.
    pub fn cluster_by_uid(&self, uid: &Uid) -> Option<Arc<EtcdCluster>> {
        self.shared.clusters.by_uid(uid.as_str())
    }

    /// All EtcdClusters, in no order.
    pub fn clusters(&self) -> Vec<Arc<EtcdCluster>> {
        self.shared.clusters.all()
    }

    /// The EtcdMembers whose controller has that UID, sorted by name.
    pub fn members_of(&self, owner: &Uid) -> Vec<Arc<EtcdMember>> {
        self.shared.members.owned_by(owner.as_str())
    }

    /// The EtcdMember of that name.
    pub fn member(&self, namespace: &str, name: &str) -> Option<Arc<EtcdMember>> {
        self.shared.members.get(namespace, name)
    }

    /// The UIDs of all clusters of that name that are needed: the EtcdCluster's own, and those of
    /// former ones whose EtcdMembers are still there.
    pub fn owners(&self, namespace: &str, cluster: &str) -> BTreeSet<Uid> {
        let own = self.cluster(namespace, cluster).and_then(|c| c.metadata.uid.clone());
        let members = self.shared.members.of_cluster(namespace, cluster);
        let outlived = members.iter().filter_map(|m| controller_uid(&m.metadata).map(str::to_owned));
        own.into_iter().chain(outlived).map(Uid).collect()
    }

    /// Namespace and name of every cluster that [`Stores::owners`] may know something of.
    pub fn cluster_names(&self) -> BTreeSet<(String, String)> {
        let clusters = self.shared.clusters.all().into_iter().map(|c| cache::key_of(&*c));
        let members = self
            .shared
            .members
            .all()
            .into_iter()
            .map(|m| (m.metadata.namespace.clone().unwrap_or_default(), m.spec.cluster_name.clone()));
        clusters.chain(members).collect()
    }

    /// The Pod of that name, pruned, if it carries our label.
    pub fn pod(&self, namespace: &str, name: &str) -> Option<Arc<Pod>> {
        self.shared.pods.get(namespace, name)
    }

    /// The PVC of that name, pruned, if it carries our label.
    pub fn pvc(&self, namespace: &str, name: &str) -> Option<Arc<PersistentVolumeClaim>> {
        self.shared.pvcs.get(namespace, name)
    }

    /// The Service of that name, if it carries our label.
    pub fn service(&self, namespace: &str, name: &str) -> Option<Arc<Service>> {
        self.shared.services.get(namespace, name)
    }

    /// The PodDisruptionBudget of that name, without its status, if it carries our label.
    pub fn budget(&self, namespace: &str, name: &str) -> Option<Arc<PodDisruptionBudget>> {
        self.shared.budgets.get(namespace, name)
    }

    /// All EtcdSnapshots, in no order.
    pub fn snapshots(&self) -> Vec<Arc<EtcdSnapshot>> {
        self.shared.snapshots.all()
    }

    /// The EtcdSnapshot of that name.
    pub fn snapshot(&self, namespace: &str, name: &str) -> Option<Arc<EtcdSnapshot>> {
        self.shared.snapshots.get(namespace, name)
    }

    /// All EtcdDefrags, in no order.
    pub fn defrags(&self) -> Vec<Arc<EtcdDefrag>> {
        self.shared.defrags.all()
    }

    /// The EtcdDefrag of that name.
    pub fn defrag(&self, namespace: &str, name: &str) -> Option<Arc<EtcdDefrag>> {
        self.shared.defrags.get(namespace, name)
    }

    /// Objects of all kinds that do not decode.
    pub fn unreadable(&self) -> Vec<Unreadable> {
        let s = &self.shared;
        let all = [
            (Kind::Cluster, s.clusters.unreadable()),
            (Kind::Member, s.members.unreadable()),
            (Kind::Snapshot, s.snapshots.unreadable()),
            (Kind::Defrag, s.defrags.unreadable()),
            (Kind::Pod, s.pods.unreadable()),
            (Kind::Pvc, s.pvcs.unreadable()),
            (Kind::Service, s.services.unreadable()),
            (Kind::Budget, s.budgets.unreadable()),
        ];
        all.into_iter()
            .flat_map(|(kind, list)| {
                list.into_iter().map(move |((namespace, name), why)| Unreadable {
                    kind,
                    namespace,
                    name,
                    why,
                })
            })
            .collect()
    }
}

struct Starter {
    client: Client,
    shared: Arc<Shared>,
    watches: JoinSet<()>,
    number: usize,
}

impl Starter {
    fn watch<K>(&mut self, scope: Option<String>, config: watcher::Config, cache: fn(&Shared) -> &Cache<K>)
    where
        K: Watched + Resource<DynamicType = (), Scope = NamespaceResourceScope>,
        K: Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        let api: Api<Decoded<K>> = match &scope {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        let watch = Watch { shared: self.shared.clone(), cache, scope, number: self.number };
        self.number += 1;
        self.watches.spawn(watch.run(api, config));
    }
}

#[cfg(test)]
mod tests;
