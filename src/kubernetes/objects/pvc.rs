//! Builds a member's PersistentVolumeClaim. Pure.

use std::collections::BTreeMap;

use etcd_operator_api::{EtcdMember, labels, names};
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements,
};

use super::{BuildError, Owner};

/// The claim `data-<member>`. An absent storageClassName stays absent (the default class), and an
/// empty one stays empty (no dynamic provisioning).
///
/// # Errors
/// If the member was not read from the API server.
pub fn pvc(member: &EtcdMember) -> Result<PersistentVolumeClaim, BuildError> {
    let owner = Owner::of(member)?;
    let spec = &member.spec;
    Ok(PersistentVolumeClaim {
        metadata: owner.meta(
            names::pvc(owner.name),
            labels::for_member(&spec.cluster_name, owner.name),
            BTreeMap::new(),
            spec.additional_metadata.as_ref(),
        ),
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            storage_class_name: spec.storage.storage_class_name.clone(),
            resources: Some(VolumeResourceRequirements {
                requests: Some(BTreeMap::from([("storage".to_owned(), spec.storage.size.clone())])),
                limits: None,
            }),
            ..Default::default()
        }),
        status: None,
    })
}
