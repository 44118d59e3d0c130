//! Where a member keeps its data. Shared by EtcdCluster, EtcdMember and `status.observed`. No I/O.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the data directory of a member is made of.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StorageMedium {
    /// A PersistentVolumeClaim per member. Written as the empty string.
    #[default]
    #[serde(rename = "")]
    Volume,
    /// A tmpfs emptyDir. The data is gone when the Pod is.
    Memory,
}

/// The data directory of each member.
// The default medium is stored by the API server, so that Memory on an existing cluster is seen as a
// change by the rule on `medium`. storageClassName cannot have a default (absent and "" mean different
// things), so its presence is compared here, one level up: a rule on a field does not run when the
// field is missing on one side.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.storageClassName) == has(oldSelf.storageClassName)")
        .message("storageClassName cannot be added to or removed from what exists: a volume cannot change its class. Create a new cluster with the class you want"),
    validation = Rule::new("!has(self.storageClassName) || !has(oldSelf.storageClassName) || self.storageClassName == oldSelf.storageClassName")
        .message("storageClassName cannot be changed: a volume cannot change its class. Create a new cluster with the class you want")
)]
pub struct StorageSpec {
    /// Capacity of each member: the request of its PersistentVolumeClaim, or the size limit of its tmpfs.
    /// It may grow, and never shrink.
    #[serde(default = "default_size")]
    #[schemars(schema_with = "crate::schema::quantity")]
    // string(): a bare number arrives as an integer, and quantity() takes text only.
    #[x_kube(validation = Rule::new("quantity(string(self)).compareTo(quantity(string(oldSelf))) >= 0")
        .message("storage.size cannot shrink: volumes only grow. Keep the old size or choose a larger one"))]
    pub size: Quantity,

    /// "" is a PersistentVolumeClaim, "Memory" a tmpfs that is lost together with its Pod.
    #[serde(default)]
    #[x_kube(validation = Rule::new("self == oldSelf")
        .message("storage.medium cannot be changed. Create a new cluster with the medium you want"))]
    pub medium: StorageMedium,

    /// StorageClass of the PersistentVolumeClaim. Absent means the default class; "" means no dynamic
    /// provisioning. Not used with medium Memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
}

/// 1Gi, the size that the Go operator fills in as well.
fn default_size() -> Quantity {
    Quantity("1Gi".to_owned())
}

impl Default for StorageSpec {
    fn default() -> Self {
        Self { size: default_size(), medium: StorageMedium::Volume, storage_class_name: None }
    }
}
