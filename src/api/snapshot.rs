//! EtcdSnapshot: one snapshot of a cluster, taken once. No I/O.

use k8s_openapi::api::core::v1::LocalObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::SnapshotLocation;

/// Which cluster, and where to.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "etcd-operator.cozystack.io",
    version = "v1alpha2",
    kind = "EtcdSnapshot",
    plural = "etcdsnapshots",
    singular = "etcdsnapshot",
    namespaced,
    status = "EtcdSnapshotStatus",
    derive = "PartialEq",
    shortname = "etcds",
    category = "etcd",
    doc = "One snapshot of an EtcdCluster in the same namespace, taken once and stored.",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterRef.name"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].reason"#
    ),
    printcolumn(name = "Size", type_ = "integer", priority = 1, json_path = ".status.artifact.sizeBytes"),
    printcolumn(name = "URI", type_ = "string", priority = 1, json_path = ".status.artifact.uri")
)]
pub struct EtcdSnapshotSpec {
    /// The EtcdCluster, in the same namespace.
    #[schemars(schema_with = "crate::schema::local_object_reference")]
    pub cluster_ref: LocalObjectReference,

    /// Where the snapshot is stored.
    pub destination: SnapshotLocation,
}

/// How far a snapshot is. Complete and Failed are final.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotPhase {
    /// Not begun.
    Pending,
    /// Being taken.
    Started,
    /// Stored and verified. Final.
    Complete,
    /// Given up. Final.
    Failed,
}

/// The stored snapshot.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotArtifact {
    /// Where it is, such as s3://bucket/key.db.
    pub uri: String,

    /// Size in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<i64>,

    /// `<algorithm>:<hex>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
}

/// What became of the snapshot.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct EtcdSnapshotStatus {
    /// How far it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<SnapshotPhase>,

    /// The stored snapshot, once there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifact: Option<SnapshotArtifact>,

    /// Ready.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
}
