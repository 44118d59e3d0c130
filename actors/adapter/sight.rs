//! What the stores show, in core's values, and what live reads showed of the rest ([`super::unseen`]). No I/O
//! here: watches and reads run elsewhere.

use std::{collections::BTreeMap, sync::Arc};

use etcd_operator_api::{EtcdCluster, EtcdMember, names};
use etcd_operator_core::view::{ClusterView, Presence, ServiceKind, ServiceState};
use etcd_operator_etcd::{Expected, Target};
use etcd_operator_kubernetes::{drift, objects, view};
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;

use super::Kubernetes;
use crate::ports::{ClusterKey, SeenCluster, SeenMember, Sight};

impl Sight for Kubernetes {
    fn owners(&self, namespace: &str, name: &str) -> Vec<ClusterKey> {
        let owners = self.0.stores.owners(namespace, name);
        owners
            .into_iter()
            .map(|uid| ClusterKey { namespace: namespace.to_owned(), name: name.to_owned(), uid })
            .collect()
    }

    fn cluster(&self, key: &ClusterKey) -> SeenCluster {
        if !self.0.stores.is_ready() {
            return SeenCluster {
                cluster: Presence::Unknown,
                services: BTreeMap::new(),
                members: Vec::new(),
                version: String::new(),
            };
        }
        self.seen(key, self.stored_cluster(key).as_deref(), &self.0.stores.members_of(&key.uid))
    }
}

impl Kubernetes {
    /// One cluster made of this EtcdCluster and these EtcdMembers, with all else from the stores.
    pub(super) fn seen(
        &self,
        key: &ClusterKey,
        cluster: Option<&EtcdCluster>,
        members: &[Arc<EtcdMember>],
    ) -> SeenCluster {
        let seen = cluster.map(view::cluster);
        let services = cluster.map(|c| self.services(key, c)).unwrap_or_default();
        let mut version = cluster.and_then(ResourceExt::resource_version).unwrap_or_default();
        for kind in [names::headless_service(&key.name), names::client_service(&key.name)] {
            let service = self.service(&key.namespace, &kind);
            version += "/";
            version += &service.and_then(|s| s.resource_version()).unwrap_or_default();
        }
        for member in members {
            version += "/";
            version += &member.resource_version().unwrap_or_default();
        }
        SeenCluster {
            members: members.iter().map(|m| self.member(key, m, seen.as_ref())).collect(),
            cluster: seen.map_or(Presence::Absent, Presence::Present),
            services,
            version,
        }
    }

    fn services(&self, key: &ClusterKey, cluster: &EtcdCluster) -> BTreeMap<ServiceKind, ServiceState> {
        let extra = cluster.spec.additional_metadata.as_ref();
        [ServiceKind::Headless, ServiceKind::Client]
            .into_iter()
            .filter_map(|kind| {
                // A cluster from the API server has all that the builder needs.
                let wanted = objects::service(cluster, kind, extra).ok()?;
                let live = self.service(&key.namespace, &wanted.name_any());
                Some((kind, drift::state(live.as_deref(), &wanted, key.uid.as_str())))
            })
            .collect()
    }

    fn member(&self, key: &ClusterKey, object: &EtcdMember, cluster: Option<&ClusterView>) -> SeenMember {
        let name = object.name_any();
        let (stores, unseen) = (&self.0.stores, &self.0.unseen);
        let pod = stores.pod(&key.namespace, &name).or_else(|| unseen.get(&key.namespace, &name));
        let pvc_name = names::pvc(&name);
        let pvc = stores.pvc(&key.namespace, &pvc_name).or_else(|| unseen.get(&key.namespace, &pvc_name));
        let member = view::member(object);
        let seen_pod = pod.as_ref().map(|p| view::pod(p, object));
        let target = seen_pod.as_ref().filter(|p| p.ours && !p.ended).and_then(|p| {
            let expected = Expected {
                cluster_id: cluster.and_then(|c| c.recorded.cluster_id),
                member_id: member.recorded.member_id,
            };
            Some(Target::new(member.name.clone(), p.uid.clone(), p.ip?, objects::dns_name(object), expected))
        });
        let version = [object.resource_version(), pod.as_ref().and_then(|p| p.resource_version())]
            .into_iter()
            .chain([pvc.as_ref().and_then(|p| p.resource_version())])
            .map(Option::unwrap_or_default)
            .collect::<Vec<_>>()
            .join("/");
        // A volume that was there is not gone because a label of it is.
        let seen_pvc = match pvc.as_ref().map(|p| view::pvc(p, object)) {
            None if member.stays() && member.recorded.pvc_uid.is_some() && !self.is_missing(object) => {
                Presence::Unknown
            }
            found => present(found),
        };
        SeenMember { pvc: seen_pvc, pod: present(seen_pod), member, target, version }
    }
}

impl Kubernetes {
    /// The Service of that name, if the watch shows it or a live read found it.
    fn service(&self, namespace: &str, name: &str) -> Option<Arc<Service>> {
        self.0.stores.service(namespace, name).or_else(|| self.0.unseen.get(namespace, name))
    }
}

fn present<T>(object: Option<T>) -> Presence<T> {
    object.map_or(Presence::Absent, Presence::Present)
}
