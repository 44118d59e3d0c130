//! Owns one kind's objects as its watches show them, with the indexes that lookups need. No I/O.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard},
};

use kube::Resource;

use crate::objects::controller_uid;

/// Namespace and name.
pub(crate) type Key = (String, String);

/// What the stores need to know of a kind.
pub(crate) trait Cached: Resource<DynamicType = ()> + Sized {
    /// The EtcdCluster that it says it belongs to.
    fn cluster_name(&self) -> Option<&str>;
}

#[derive(Debug)]
struct Inner<K> {
    objects: HashMap<Key, Arc<K>>,
    /// Which key has this UID now.
    by_uid: HashMap<String, Key>,
    /// By the controller's UID. Sorted, so that lookups come out in one order.
    by_owner: HashMap<String, BTreeSet<Key>>,
    /// By namespace and cluster name.
    by_cluster: HashMap<Key, BTreeSet<Key>>,
    /// What does not decode, with the reason.
    unreadable: BTreeMap<Key, String>,
}

/// One kind's objects. Every lookup costs what it returns, not what is stored.
#[derive(Debug)]
pub(crate) struct Cache<K>(RwLock<Inner<K>>);

impl<K> Default for Cache<K> {
    fn default() -> Self {
        Self(RwLock::new(Inner {
            objects: HashMap::new(),
            by_uid: HashMap::new(),
            by_owner: HashMap::new(),
            by_cluster: HashMap::new(),
            unreadable: BTreeMap::new(),
        }))
    }
}

pub(crate) fn key_of<K: Resource>(object: &K) -> Key {
    let meta = object.meta();
    (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

impl<K: Cached> Cache<K> {
    fn read(&self) -> RwLockReadGuard<'_, Inner<K>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.read().objects.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    pub(crate) fn by_uid(&self, uid: &str) -> Option<Arc<K>> {
        let inner = self.read();
        inner.by_uid.get(uid).and_then(|key| inner.objects.get(key)).cloned()
    }

    /// Sorted by namespace and name.
    pub(crate) fn owned_by(&self, uid: &str) -> Vec<Arc<K>> {
        let inner = self.read();
        let keys = inner.by_owner.get(uid).into_iter().flatten();
        keys.filter_map(|key| inner.objects.get(key)).cloned().collect()
    }

    /// Sorted by name.
    pub(crate) fn of_cluster(&self, namespace: &str, cluster: &str) -> Vec<Arc<K>> {
        let inner = self.read();
        let keys = inner.by_cluster.get(&(namespace.to_owned(), cluster.to_owned())).into_iter().flatten();
        keys.filter_map(|key| inner.objects.get(key)).cloned().collect()
    }

    pub(crate) fn all(&self) -> Vec<Arc<K>> {
        self.read().objects.values().cloned().collect()
    }

    pub(crate) fn unreadable(&self) -> Vec<(Key, String)> {
        self.read().unreadable.iter().map(|(key, why)| (key.clone(), why.clone())).collect()
    }

    /// Stores the object and returns the one that it replaces.
    pub(crate) fn insert(&self, object: Arc<K>) -> Option<Arc<K>> {
        let mut inner = self.0.write().unwrap_or_else(PoisonError::into_inner);
        inner.unreadable.remove(&key_of(&*object));
        inner.insert(object)
    }

    pub(crate) fn remove(&self, key: &Key) -> Option<Arc<K>> {
        let mut inner = self.0.write().unwrap_or_else(PoisonError::into_inner);
        inner.unreadable.remove(key);
        inner.remove(key)
    }

    /// Notes that the object does not decode, and tells whether that is news. What was read of it
    /// before stays: an unreadable object exists, and must not look deleted.
    pub(crate) fn note_unreadable(&self, key: Key, why: String) -> bool {
        let mut inner = self.0.write().unwrap_or_else(PoisonError::into_inner);
        inner.unreadable.insert(key, why.clone()).is_none_or(|before| before != why)
    }

    /// Everything in scope (one namespace, or all) that is not in `present`.
    pub(crate) fn missing_from(&self, scope: Option<&str>, present: &BTreeSet<Key>) -> Vec<Key> {
        let inner = self.read();
        let keys = inner.objects.keys().chain(inner.unreadable.keys());
        let in_scope = keys.filter(|key| scope.is_none_or(|namespace| key.0 == namespace));
        in_scope.filter(|key| !present.contains(*key)).cloned().collect()
    }
}

impl<K: Cached> Inner<K> {
    fn insert(&mut self, object: Arc<K>) -> Option<Arc<K>> {
        let key = key_of(&*object);
        let old = self.remove(&key);
        if let Some(uid) = &object.meta().uid {
            self.by_uid.insert(uid.clone(), key.clone());
        }
        if let Some(owner) = controller_uid(object.meta()) {
            self.by_owner.entry(owner.to_owned()).or_default().insert(key.clone());
        }
        if let Some(cluster) = object.cluster_name() {
            let cluster = (key.0.clone(), cluster.to_owned());
            self.by_cluster.entry(cluster).or_default().insert(key.clone());
        }
        self.objects.insert(key, object);
        old
    }

    fn remove(&mut self, key: &Key) -> Option<Arc<K>> {
        let old = self.objects.remove(key)?;
        if let Some(uid) = &old.meta().uid {
            self.by_uid.remove(uid);
        }
        if let Some(owner) = controller_uid(old.meta()) {
            take_out(&mut self.by_owner, &owner.to_owned(), key);
        }
        if let Some(cluster) = old.cluster_name() {
            take_out(&mut self.by_cluster, &(key.0.clone(), cluster.to_owned()), key);
        }
        Some(old)
    }
}

/// Empty entries go, so that a fleet that comes and goes leaves nothing behind.
fn take_out<I: std::hash::Hash + Eq>(index: &mut HashMap<I, BTreeSet<Key>>, at: &I, key: &Key) {
    if let Some(keys) = index.get_mut(at) {
        keys.remove(key);
        if keys.is_empty() {
            index.remove(at);
        }
    }
}
