//! Where a snapshot is written to and read from. Shared by EtcdSnapshot and `bootstrap.restore`. No I/O.

use k8s_openapi::api::core::v1::LocalObjectReference;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the cluster begins. Read once, before the cluster exists.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
pub struct BootstrapSpec {
    /// Begin with the content of a snapshot. Absent means begin empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<RestoreSpec>,
}

/// The snapshot that a new cluster begins with.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[x_kube(
    validation = Rule::new("!has(self.source.s3) || (has(self.source.s3.key) && size(self.source.s3.key) > 0)")
        .message("restore.source.s3.key must be the exact key of the snapshot object, not a prefix"),
    validation = Rule::new("!has(self.source.pvc) || (has(self.source.pvc.subPath) && size(self.source.pvc.subPath) > 0)")
        .message("restore.source.pvc.subPath must be the exact path of the snapshot file in the volume")
)]
pub struct RestoreSpec {
    /// Where the snapshot is. The key or path must be that of the snapshot itself.
    pub source: SnapshotLocation,
}

/// A place for snapshots: an S3 bucket or a volume.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[x_kube(validation = Rule::new("has(self.s3) != has(self.pvc)")
    .message("a snapshot location needs exactly one of s3 and pvc"))]
pub struct SnapshotLocation {
    /// An S3-compatible object store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3: Option<S3SnapshotLocation>,

    /// A PersistentVolumeClaim in the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pvc: Option<PvcSnapshotLocation>,
}

/// A place in an S3-compatible object store.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct S3SnapshotLocation {
    /// URL of the object store.
    #[schemars(length(min = 1))]
    pub endpoint: String,

    /// Name of the bucket.
    #[schemars(length(min = 1))]
    pub bucket: String,

    /// For a destination the prefix, to which `/<snapshot>.db` is added; for a restore the exact key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,

    /// Secret with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
    #[schemars(schema_with = "crate::schema::local_object_reference")]
    pub credentials_secret_ref: LocalObjectReference,

    /// Region, where the object store has regions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,

    /// Put the bucket into the path of the URL instead of the host name. MinIO and Ceph usually want it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force_path_style: bool,
}

/// A place on a volume.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PvcSnapshotLocation {
    /// Name of the PersistentVolumeClaim.
    #[schemars(length(min = 1))]
    pub claim_name: String,

    /// For a destination the directory; for a restore the exact file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub_path: Option<String>,
}
