//! Owns what the objects that the operator makes look like. Pure: objects in, objects out, no I/O,
//! no clock, no randomness.
//!
//! A builder takes the object that will own the new one, so that an owner reference is never
//! forgotten: Pod and PVC belong to their EtcdMember, EtcdMember, Services and budget to their EtcdCluster.
//! Nothing belongs to the operator, so removing the operator removes nothing (RB-04).

mod address;
mod budget;
pub mod extra;
pub mod flags;
mod member;
mod pod;
mod pvc;
mod scheduling;
mod service;

use std::collections::BTreeMap;

use etcd_operator_api::{AdditionalMetadata, EtcdMember, labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;

pub use address::{client_url, dns_name, founds, peer_url};
pub use budget::disruption_budget;
pub use member::{NewMember, member, updated};
pub use pod::{PodSettings, instruction_annotations, pod, read_instruction, recovery_pod};
pub use pvc::pvc;
pub use service::{client_service, headless_service, service};

/// Why an object cannot be built. All of these are about the object it would be built from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The owner was not read from the API server.
    #[error("{kind} {name:?} has no {field}, so it was never stored and can own nothing")]
    NotStored {
        /// The owner's kind.
        kind: String,
        /// The owner's name.
        name: String,
        /// What it lacks.
        field: &'static str,
    },
    /// A name that cannot be used.
    #[error(transparent)]
    Name(#[from] etcd_operator_api::names::NameError),
    /// A version that this build has no flags for.
    #[error(transparent)]
    Flags(#[from] flags::FlagError),
}

/// The owner's name, namespace and reference, for an object that it controls.
pub(crate) struct Owner<'a> {
    pub(crate) name: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) uid: &'a str,
    pub(crate) reference: OwnerReference,
}

impl<'a> Owner<'a> {
    pub(crate) fn of<K: Resource<DynamicType = ()>>(object: &'a K) -> Result<Self, BuildError> {
        let meta = object.meta();
        let missing = |field| BuildError::NotStored {
            kind: K::kind(&()).into_owned(),
            name: meta.name.clone().unwrap_or_default(),
            field,
        };
        let name = meta.name.as_deref().ok_or_else(|| missing("metadata.name"))?;
        let namespace = meta.namespace.as_deref().ok_or_else(|| missing("metadata.namespace"))?;
        let uid = meta.uid.as_deref().ok_or_else(|| missing("metadata.uid"))?;
        let reference = OwnerReference {
            api_version: K::api_version(&()).into_owned(),
            kind: K::kind(&()).into_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            controller: Some(true),
            // The owner waits for its objects when it is deleted in the foreground (RB-02 is about the
            // right that this needs).
            block_owner_deletion: Some(true),
        };
        Ok(Self { name, namespace, uid, reference })
    }

    /// Metadata of an object that this owner controls. The user's labels and annotations come first
    /// and ours win; the user's keys under our prefix are dropped (VC-08).
    pub(crate) fn meta(
        &self,
        name: String,
        own_labels: BTreeMap<String, String>,
        own_annotations: BTreeMap<String, String>,
        extra: Option<&AdditionalMetadata>,
    ) -> ObjectMeta {
        let none = AdditionalMetadata::default();
        let extra = extra.unwrap_or(&none);
        let mut annotations = extra::annotations(extra);
        annotations.extend(own_annotations);
        ObjectMeta {
            name: Some(name),
            namespace: Some(self.namespace.to_owned()),
            labels: Some(labels::merged(own_labels, &extra.labels)),
            annotations: (!annotations.is_empty()).then_some(annotations),
            owner_references: Some(vec![self.reference.clone()]),
            ..Default::default()
        }
    }
}

/// The labels that a member's Pod and PVC must have: the operator's own, and the user's.
pub fn labels_of(member: &EtcdMember) -> BTreeMap<String, String> {
    let own =
        labels::for_member(&member.spec.cluster_name, member.metadata.name.as_deref().unwrap_or_default());
    let extra = member.spec.additional_metadata.as_ref();
    extra.map_or_else(|| own.clone(), |extra| labels::merged(own.clone(), &extra.labels))
}

/// The user's annotations that a member's Pod and PVC must have, and the note of what is the user's.
pub fn annotations_of(member: &EtcdMember) -> BTreeMap<String, String> {
    let extra = member.spec.additional_metadata.as_ref();
    extra.map(extra::annotations).unwrap_or_default()
}

/// Whether the object's controller is the one with this UID. Names prove nothing.
pub fn is_controlled_by(meta: &ObjectMeta, uid: &str) -> bool {
    controller_uid(meta) == Some(uid)
}

/// The UID of the object's controller.
pub fn controller_uid(meta: &ObjectMeta) -> Option<&str> {
    let owners = meta.owner_references.as_deref().unwrap_or_default();
    owners.iter().find(|o| o.controller == Some(true)).map(|o| o.uid.as_str())
}

#[cfg(test)]
mod tests;
