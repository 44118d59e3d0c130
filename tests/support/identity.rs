//! Who the members are: what must be the same after a Pod, a node or an operator was lost. Reads only.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

use super::Scene;

/// One member: its EtcdMember's UID, its ID in etcd, and the UID of the PVC with its data.
pub type Identity = [Option<String>; 3];

/// Every member by name.
pub async fn identities(scene: &Scene) -> BTreeMap<String, Identity> {
    let members = scene.members().await.into_iter();
    members
        .map(|m| {
            let status = m.status.clone().unwrap_or_default();
            (m.name_any(), [m.uid(), status.member_id, status.pvc_uid])
        })
        .collect()
}

/// The UID of the Pod of this name; none if there is none, or one that is on its way out.
pub async fn pod(scene: &Scene, name: &str) -> Option<String> {
    let pod = scene.api::<Pod>().get_opt(name).await.unwrap()?;
    pod.uid().filter(|_| pod.metadata.deletion_timestamp.is_none())
}
