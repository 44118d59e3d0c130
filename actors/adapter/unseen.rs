//! What live reads showed of objects that the watches do not show. The watches are filtered by label, so
//! "not in the store" is not "not there": a foreign object may have a name of ours, and one of ours may have
//! lost its labels by hand. Owns that memory and the reads that keep it true. Decides nothing.

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use etcd_operator_api::{EtcdMember, names};
use etcd_operator_kubernetes::{failure::ApiFailure, reads::Reader, stores::Stores};
use k8s_openapi::api::{
    core::v1::{PersistentVolumeClaim, Pod, Service},
    policy::v1::PodDisruptionBudget,
};
use kube::ResourceExt;

use super::Kubernetes;

/// How long an absence lasts before the API server is asked. A watch is rarely that far behind, so what we
/// have just made ourselves costs no read.
const DOUBT: Duration = Duration::from_secs(2);

/// How often an object that was found is looked at again. A person who has cleared the way waits for this.
const AGAIN: Duration = Duration::from_secs(5);

/// How often an object that is not there is looked for again. If it comes back with its labels the watch
/// tells; this is for one that comes back without.
const MISSING: Duration = Duration::from_secs(60);

/// Namespace and name.
type Key = (String, String);

/// What the last read of an object showed. As long as there is an entry, one task keeps it true.
enum Found<K> {
    /// Nobody has been asked yet.
    Nothing,
    /// It is there.
    Object(Arc<K>),
    /// It is not there.
    Missing,
}

/// See the module.
#[derive(Default)]
pub(super) struct Unseen(Mutex<Memory>);

#[derive(Default)]
pub(super) struct Memory {
    services: HashMap<Key, Found<Service>>,
    budgets: HashMap<Key, Found<PodDisruptionBudget>>,
    pods: HashMap<Key, Found<Pod>>,
    pvcs: HashMap<Key, Found<PersistentVolumeClaim>>,
}

/// A kind whose watch is filtered by label.
#[expect(private_interfaces, reason = "the memory is nobody else's")]
pub(super) trait Filtered: ResourceExt + Clone + Send + Sync + Sized + 'static {
    /// Its part of the memory.
    fn found(memory: &mut Memory) -> &mut HashMap<Key, Found<Self>>;
    /// Whether `owner` is there, which wants an object of this name, and the watch does not show that.
    fn is_wanted(stores: &Stores, namespace: &str, owner: &str, name: &str) -> bool;
    /// Reads it from the API server.
    fn read(
        reader: &Reader,
        namespace: &str,
        name: &str,
    ) -> impl Future<Output = Result<Option<Self>, ApiFailure>> + Send;
}

#[expect(private_interfaces, reason = "the memory is nobody else's")]
impl Filtered for Service {
    fn found(memory: &mut Memory) -> &mut HashMap<Key, Found<Self>> {
        &mut memory.services
    }

    fn is_wanted(stores: &Stores, namespace: &str, owner: &str, name: &str) -> bool {
        stores.cluster(namespace, owner).is_some() && stores.service(namespace, name).is_none()
    }

    async fn read(reader: &Reader, namespace: &str, name: &str) -> Result<Option<Self>, ApiFailure> {
        reader.get_service(namespace, name).await
    }
}

#[expect(private_interfaces, reason = "the memory is nobody else's")]
impl Filtered for PodDisruptionBudget {
    fn found(memory: &mut Memory) -> &mut HashMap<Key, Found<Self>> {
        &mut memory.budgets
    }

    fn is_wanted(stores: &Stores, namespace: &str, owner: &str, name: &str) -> bool {
        stores.cluster(namespace, owner).is_some() && stores.budget(namespace, name).is_none()
    }

    async fn read(reader: &Reader, namespace: &str, name: &str) -> Result<Option<Self>, ApiFailure> {
        reader.get_budget(namespace, name).await
    }
}

#[expect(private_interfaces, reason = "the memory is nobody else's")]
impl Filtered for Pod {
    fn found(memory: &mut Memory) -> &mut HashMap<Key, Found<Self>> {
        &mut memory.pods
    }

    fn is_wanted(stores: &Stores, namespace: &str, owner: &str, name: &str) -> bool {
        stores.member(namespace, owner).is_some() && stores.pod(namespace, name).is_none()
    }

    async fn read(reader: &Reader, namespace: &str, name: &str) -> Result<Option<Self>, ApiFailure> {
        reader.get_pod(namespace, name).await
    }
}

#[expect(private_interfaces, reason = "the memory is nobody else's")]
impl Filtered for PersistentVolumeClaim {
    fn found(memory: &mut Memory) -> &mut HashMap<Key, Found<Self>> {
        &mut memory.pvcs
    }

    fn is_wanted(stores: &Stores, namespace: &str, owner: &str, name: &str) -> bool {
        stores.member(namespace, owner).is_some() && stores.pvc(namespace, name).is_none()
    }

    async fn read(reader: &Reader, namespace: &str, name: &str) -> Result<Option<Self>, ApiFailure> {
        reader.get_pvc(namespace, name).await
    }
}

impl Unseen {
    // Every change is one insert or remove, so a panic in between leaves nothing half done.
    fn with<T>(&self, f: impl FnOnce(&mut Memory) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// An object that a live read found and the watch does not show.
    pub(super) fn get<K: Filtered>(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        let at = (namespace.to_owned(), name.to_owned());
        self.with(|memory| match K::found(memory).get(&at) {
            Some(Found::Object(object)) => Some(object.clone()),
            _ => None,
        })
    }
}

impl Kubernetes {
    /// An object of a name that `owner` wants is there, and the watch does not show it. It is looked at
    /// until the watch does, or nobody wants the name any more.
    pub(super) fn note<K: Filtered>(&self, owner: &str, live: K) {
        let at = (live.namespace().unwrap_or_default(), live.name_any());
        self.look_after(owner, at, Found::Object(Arc::new(live)), AGAIN);
    }

    /// Whether the PVC of this member, which the store does not show, is known not to be there.
    /// The first time nobody knows, and the API server is asked; the answer counts at the next look.
    pub(super) fn is_missing(&self, member: &EtcdMember) -> bool {
        let owner = member.name_any();
        let at = (member.namespace().unwrap_or_default(), names::pvc(&owner));
        let known = self.0.unseen.with(|memory| {
            let found = PersistentVolumeClaim::found(memory).get(&at);
            found.map(|found| matches!(found, Found::Missing))
        });
        if known.is_none() {
            self.look_after(&owner, at, Found::<PersistentVolumeClaim>::Nothing, DOUBT);
        }
        known.unwrap_or(false)
    }

    fn look_after<K: Filtered>(&self, owner: &str, at: Key, found: Found<K>, first: Duration) {
        if self.0.unseen.with(|memory| K::found(memory).insert(at.clone(), found)).is_some() {
            return;
        }
        let (parts, owner) = (Arc::downgrade(&self.0), owner.to_owned());
        tokio::spawn(async move {
            let mut pause = first;
            loop {
                tokio::time::sleep(pause).await;
                let Some(parts) = parts.upgrade() else { return };
                if !K::is_wanted(&parts.stores, &at.0, &owner, &at.1) {
                    parts.unseen.with(|memory| K::found(memory).remove(&at));
                    return;
                }
                let found = match K::read(&parts.reader, &at.0, &at.1).await {
                    Ok(Some(live)) => Found::Object(Arc::new(live)),
                    Ok(None) => Found::Missing,
                    // Nothing is known: what was found last still counts.
                    Err(_) => continue,
                };
                pause = if matches!(found, Found::Missing) { MISSING } else { AGAIN };
                parts.unseen.with(|memory| K::found(memory).insert(at.clone(), found));
            }
        });
    }
}
