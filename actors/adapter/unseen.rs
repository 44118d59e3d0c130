//! What live reads showed of objects that the watches do not show. The watches are filtered by label, so
//! "not in the store" is not "not there": a foreign object may have a name of ours, and one of ours may have
//! lost its labels by hand. Owns that memory and the reads that keep it true, and gives a volume of ours its
//! labels back. Decides nothing.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use etcd_operator_api::{EtcdMember, labels, names};
use etcd_operator_kubernetes::{gate::Target, objects};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use kube::ResourceExt;
use serde_json::json;

use super::{Kubernetes, Parts};

/// How long an absence lasts before the API server is asked. A watch is rarely that far behind, so what we
/// have just made ourselves costs no read.
const DOUBT: Duration = Duration::from_secs(2);

/// How often what was found is looked at again. A person who has cleared the way waits for this.
const AGAIN: Duration = Duration::from_secs(5);

/// Namespace and name.
type Key = (String, String);

/// See the module.
#[derive(Default)]
pub(super) struct Unseen(Mutex<Memory>);

#[derive(Default)]
struct Memory {
    services: HashMap<Key, Arc<Service>>,
    pods: HashMap<Key, Arc<Pod>>,
    pvcs: HashMap<Key, Arc<PersistentVolumeClaim>>,
    /// PVCs that the API server has been asked for.
    asked: HashSet<Key>,
    /// PVCs that it does not have.
    missing: HashSet<Key>,
}

fn key(namespace: &str, name: &str) -> Key {
    (namespace.to_owned(), name.to_owned())
}

impl Unseen {
    // Every change is one insert or remove, so a panic in between leaves nothing half done.
    fn with<T>(&self, f: impl FnOnce(&mut Memory) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A foreign Service.
    pub(super) fn service(&self, namespace: &str, name: &str) -> Option<Arc<Service>> {
        self.with(|m| m.services.get(&key(namespace, name)).cloned())
    }

    /// A foreign Pod.
    pub(super) fn pod(&self, namespace: &str, name: &str) -> Option<Arc<Pod>> {
        self.with(|m| m.pods.get(&key(namespace, name)).cloned())
    }

    /// A foreign PVC.
    pub(super) fn pvc(&self, namespace: &str, name: &str) -> Option<Arc<PersistentVolumeClaim>> {
        self.with(|m| m.pvcs.get(&key(namespace, name)).cloned())
    }
}

impl Kubernetes {
    /// A Service that is not ours has the name of one of ours. It is looked at until it is gone.
    pub(super) fn note_service(&self, cluster: &str, live: Service) {
        let (namespace, name) = (live.namespace().unwrap_or_default(), live.name_any());
        let at = key(&namespace, &name);
        if self.0.unseen.with(|m| m.services.insert(at.clone(), Arc::new(live))).is_some() {
            return;
        }
        let (parts, cluster) = (Arc::downgrade(&self.0), cluster.to_owned());
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(AGAIN).await;
                let Some(parts) = parts.upgrade() else { return };
                let wanted = parts.stores.cluster(&namespace, &cluster).is_some();
                let found = parts.reader.get_service(&namespace, &name).await;
                if !keep(&parts, wanted, found, |m| &mut m.services, &at) {
                    return;
                }
            }
        });
    }

    /// A Pod that is not ours has the name of one of ours. It is looked at until it is gone.
    pub(super) fn note_pod(&self, member: &str, live: Pod) {
        let (namespace, name) = (live.namespace().unwrap_or_default(), live.name_any());
        let at = key(&namespace, &name);
        if self.0.unseen.with(|m| m.pods.insert(at.clone(), Arc::new(live))).is_some() {
            return;
        }
        let (parts, member) = (Arc::downgrade(&self.0), member.to_owned());
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(AGAIN).await;
                let Some(parts) = parts.upgrade() else { return };
                let wanted = parts.stores.member(&namespace, &member).is_some();
                let found = parts.reader.get_pod(&namespace, &name).await;
                if !keep(&parts, wanted, found, |m| &mut m.pods, &at) {
                    return;
                }
            }
        });
    }

    /// A PVC that is not ours has the name of one of ours. It is looked at until it is gone.
    pub(super) fn note_pvc(&self, member: &str, live: PersistentVolumeClaim) {
        let (namespace, name) = (live.namespace().unwrap_or_default(), live.name_any());
        let at = key(&namespace, &name);
        if self.0.unseen.with(|m| m.pvcs.insert(at.clone(), Arc::new(live))).is_some() {
            return;
        }
        let (parts, member) = (Arc::downgrade(&self.0), member.to_owned());
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(AGAIN).await;
                let Some(parts) = parts.upgrade() else { return };
                let wanted = parts.stores.member(&namespace, &member).is_some();
                let found = parts.reader.get_pvc(&namespace, &name).await;
                if !keep(&parts, wanted, found, |m| &mut m.pvcs, &at) {
                    return;
                }
            }
        });
    }

    /// Whether the recorded PVC of this member, which the store does not show, is known not to be there.
    /// The first time nobody knows, and the API server is asked; the answer counts at the next look.
    pub(super) fn is_missing(&self, member: &EtcdMember) -> bool {
        let (namespace, name) = (member.namespace().unwrap_or_default(), names::pvc(&member.name_any()));
        let at = key(&namespace, &name);
        let (missing, asked) = self.0.unseen.with(|m| (m.missing.contains(&at), !m.asked.insert(at.clone())));
        if asked {
            return missing;
        }
        let (parts, member) = (Arc::downgrade(&self.0), member.clone());
        tokio::spawn(async move {
            tokio::time::sleep(DOUBT).await;
            let Some(parts) = parts.upgrade() else { return };
            if parts.stores.pvc(&namespace, &name).is_none() {
                Kubernetes(parts.clone()).look_for_pvc(&member, &at).await;
            }
            // One question at a time for each, and no more than one in this time.
            tokio::time::sleep(AGAIN).await;
            parts.unseen.with(|m| m.asked.remove(&at));
        });
        missing
    }

    async fn look_for_pvc(&self, member: &EtcdMember, at: &Key) {
        let Ok(found) = self.0.reader.get_pvc(&at.0, &at.1).await else { return };
        self.0.unseen.with(|m| match found {
            None => m.missing.insert(at.clone()),
            Some(_) => m.missing.remove(at),
        });
        let Some(live) = found else { return };
        if !objects::is_controlled_by(&live.metadata, &member.uid().unwrap_or_default()) {
            return self.note_pvc(&member.name_any(), live);
        }
        let cluster = &member.spec.cluster_name;
        let owner = self.0.stores.cluster(&at.0, cluster);
        let paused = owner.is_none_or(|c| {
            c.annotations().get(labels::RECONCILE_PAUSED).is_some_and(|paused| paused == "true")
        });
        let Ok(target) = Target::of(&live) else { return };
        if !paused {
            let labels = json!({ "metadata": { "labels": labels::for_member(cluster, &member.name_any()) } });
            if let Err(failure) = self.0.writer.patch_pvc(&target, labels).await {
                tracing::debug!(%failure, member = %member.name_any(), "labels of a PVC were not put back");
            }
        }
    }
}

/// Keeps what was found, or forgets it when it is gone or nobody wants its name any more. Says whether to go on.
fn keep<K, E>(
    parts: &Parts,
    wanted: bool,
    found: Result<Option<K>, E>,
    map: impl FnOnce(&mut Memory) -> &mut HashMap<Key, Arc<K>>,
    at: &Key,
) -> bool {
    parts.unseen.with(|memory| match found {
        Ok(Some(live)) if wanted => {
            map(memory).insert(at.clone(), Arc::new(live));
            true
        }
        // Nothing is known: what was found last still counts.
        Err(_) if wanted => true,
        _ => {
            map(memory).remove(at);
            false
        }
    })
}
