//! The ports to a real Kubernetes: [`Stores`] for what is seen, the gate and the live reads for what
//! is done. Translates and carries out; decides nothing.

mod budget;
mod hands;
mod member_objects;
mod shown;
mod sight;
mod unseen;

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
};

use etcd_operator_api::{EtcdCluster, EtcdMember};
use etcd_operator_core::ids::Uid;
use etcd_operator_kubernetes::{
    events::Events, gate::Writer, objects::PodSettings, reads::Reader, stores::Stores,
};

/// Both ports, [`crate::Sight`] and [`crate::Hands`], to a real Kubernetes. Clones share everything.
#[derive(Clone)]
pub struct Kubernetes(Arc<Parts>);

struct Parts {
    stores: Stores,
    reader: Reader,
    writer: Writer,
    events: Events,
    settings: PodSettings,
    /// PVCs that this process created and on which no Pod was created yet.
    fresh: Mutex<HashSet<Uid>>,
    unseen: unseen::Unseen,
    views: shown::LastViews,
}

impl Kubernetes {
    /// The ports over these parts.
    pub fn new(
        stores: Stores,
        reader: Reader,
        writer: Writer,
        events: Events,
        settings: PodSettings,
    ) -> Self {
        Self(Arc::new(Parts {
            stores,
            reader,
            writer,
            events,
            settings,
            fresh: Mutex::default(),
            unseen: unseen::Unseen::default(),
            views: shown::LastViews::default(),
        }))
    }

    /// The EtcdCluster of that name and UID, as the store has it.
    fn stored_cluster(&self, key: &crate::ClusterKey) -> Option<Arc<EtcdCluster>> {
        let found = self.0.stores.cluster(&key.namespace, &key.name)?;
        (found.metadata.uid.as_deref() == Some(key.uid.as_str())).then_some(found)
    }

    /// The EtcdMember of that name and UID, as the store has it.
    fn stored_member(&self, key: &crate::MemberKey) -> Option<Arc<EtcdMember>> {
        let found = self.0.stores.member(&key.cluster.namespace, key.name.as_str())?;
        (found.metadata.uid.as_deref() == Some(key.uid.as_str())).then_some(found)
    }
}
