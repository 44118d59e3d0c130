//! Owns what of an object is kept in memory: what decisions and people need, and no more. Pure.
//!
//! A pruned object is never the base of a write: writes are merge patches of single fields.

use etcd_operator_api::{EtcdCluster, EtcdDefrag, EtcdMember, EtcdSnapshot, labels, names};
use k8s_openapi::{
    api::core::v1::{
        Container, PersistentVolumeClaim, PersistentVolumeClaimSpec, PersistentVolumeClaimStatus, Pod,
        PodSpec, PodStatus, Service, Volume,
    },
    api::policy::v1::PodDisruptionBudget,
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::{cache::Cached, feed::Kind};

/// A kind that has a store.
pub(crate) trait Watched: Cached {
    const KIND: Kind;
    /// Cuts the object down.
    fn prune(&mut self);
}

/// What `kubectl apply` keeps in an annotation is the whole object once more.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

pub(crate) fn meta(meta: &mut ObjectMeta) {
    meta.managed_fields = None;
    if let Some(annotations) = &mut meta.annotations {
        annotations.remove(LAST_APPLIED);
    }
}

fn label<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.labels.as_ref()?.get(key).map(String::as_str)
}

impl Cached for EtcdCluster {
    fn cluster_name(&self) -> Option<&str> {
        self.metadata.name.as_deref()
    }
}

impl Watched for EtcdCluster {
    const KIND: Kind = Kind::Cluster;
    fn prune(&mut self) {
        meta(&mut self.metadata);
    }
}

impl Cached for EtcdMember {
    fn cluster_name(&self) -> Option<&str> {
        Some(&self.spec.cluster_name)
    }
}

impl Watched for EtcdMember {
    const KIND: Kind = Kind::Member;
    fn prune(&mut self) {
        meta(&mut self.metadata);
    }
}

impl Cached for EtcdSnapshot {
    fn cluster_name(&self) -> Option<&str> {
        Some(&self.spec.cluster_ref.name)
    }
}

impl Watched for EtcdSnapshot {
    const KIND: Kind = Kind::Snapshot;
    fn prune(&mut self) {
        meta(&mut self.metadata);
    }
}

impl Cached for EtcdDefrag {
    fn cluster_name(&self) -> Option<&str> {
        Some(&self.spec.cluster_ref.name)
    }
}

impl Watched for EtcdDefrag {
    const KIND: Kind = Kind::Defrag;
    fn prune(&mut self) {
        meta(&mut self.metadata);
    }
}

impl Cached for Service {
    fn cluster_name(&self) -> Option<&str> {
        label(&self.metadata, labels::CLUSTER)
    }
}

impl Watched for Service {
    const KIND: Kind = Kind::Service;
    fn prune(&mut self) {
        meta(&mut self.metadata);
        self.status = None;
    }
}

impl Cached for PodDisruptionBudget {
    fn cluster_name(&self) -> Option<&str> {
        label(&self.metadata, labels::CLUSTER)
    }
}

impl Watched for PodDisruptionBudget {
    const KIND: Kind = Kind::Budget;
    fn prune(&mut self) {
        meta(&mut self.metadata);
        // What the disruption controller counts concerns evictions, not us.
        self.status = None;
    }
}

impl Cached for PersistentVolumeClaim {
    fn cluster_name(&self) -> Option<&str> {
        label(&self.metadata, labels::CLUSTER)
    }
}

impl Watched for PersistentVolumeClaim {
    const KIND: Kind = Kind::Pvc;
    fn prune(&mut self) {
        meta(&mut self.metadata);
        self.spec = self.spec.take().map(|spec| PersistentVolumeClaimSpec {
            resources: spec.resources,
            storage_class_name: spec.storage_class_name,
            volume_name: spec.volume_name,
            ..Default::default()
        });
        self.status = self.status.take().map(|status| PersistentVolumeClaimStatus {
            phase: status.phase,
            capacity: status.capacity,
            conditions: status.conditions,
            ..Default::default()
        });
    }
}

impl Cached for Pod {
    fn cluster_name(&self) -> Option<&str> {
        label(&self.metadata, labels::CLUSTER)
    }
}

impl Watched for Pod {
    const KIND: Kind = Kind::Pod;
    fn prune(&mut self) {
        meta(&mut self.metadata);
        self.spec = self.spec.take().map(|spec| PodSpec {
            node_name: spec.node_name,
            // By which the Pod of a recovery is known.
            restart_policy: spec.restart_policy,
            // Only what a message names.
            containers: spec
                .containers
                .into_iter()
                .filter(|c| c.name == names::CONTAINER)
                .map(|c| Container { name: c.name, image: c.image, ..Default::default() })
                .collect(),
            volumes: spec.volumes.map(|volumes| {
                let claims = volumes.into_iter().filter(|v| v.persistent_volume_claim.is_some());
                claims
                    .map(|v| Volume {
                        name: v.name,
                        persistent_volume_claim: v.persistent_volume_claim,
                        ..Default::default()
                    })
                    .collect()
            }),
            ..Default::default()
        });
        self.status = self.status.take().map(|status| PodStatus {
            phase: status.phase,
            reason: status.reason,
            message: status.message,
            pod_ip: status.pod_ip,
            pod_ips: status.pod_ips,
            conditions: status.conditions,
            container_statuses: status
                .container_statuses
                .map(|all| all.into_iter().filter(|c| c.name == names::CONTAINER).collect()),
            ..Default::default()
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_keeps_the_node_and_the_zone_by_which_its_neighbours_are_known() {
        let mut pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "db-x7k2p", "labels": {labels::ZONE: "x", labels::CLUSTER: "db"}},
            "spec": {"nodeName": "n1", "containers": [], "nodeSelector": {"a": "b"},
                "tolerations": [{"operator": "Exists"}]},
        }))
        .unwrap();
        pod.prune();
        assert_eq!(label(&pod.metadata, labels::ZONE), Some("x"));
        let spec = pod.spec.unwrap();
        assert_eq!(spec.node_name.as_deref(), Some("n1"));
        assert_eq!((spec.tolerations, spec.node_selector), (None, None), "nobody reads them from a store");
    }
}
