//! EtcdMember: one etcd member, its Pod and its volume. Written by the operator, read by people. No I/O.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, LocalObjectReference, ResourceRequirements, Toleration, TopologySpreadConstraint,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{AdditionalMetadata, EtcdOptions, ObservedClusterSpec, RestoreSpec, StorageSpec};

/// What the member should be. The cluster's settings are copied here when the member is created.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "etcd-operator.cozystack.io",
    version = "v1alpha2",
    kind = "EtcdMember",
    plural = "etcdmembers",
    singular = "etcdmember",
    namespaced,
    status = "EtcdMemberStatus",
    derive = "PartialEq",
    shortname = "etcdm",
    category = "etcd",
    doc = "One member of an etcd cluster. Made by the operator; deleting one means: replace this member.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterName"),
    printcolumn(name = "Version", type_ = "string", json_path = ".spec.version"),
    printcolumn(name = "Running", type_ = "string", json_path = ".status.version"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Voter", type_ = "boolean", json_path = ".status.isVoter"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].reason"#
    ),
    printcolumn(name = "Member ID", type_ = "string", priority = 1, json_path = ".status.memberID")
)]
pub struct EtcdMemberSpec {
    /// The EtcdCluster that this member belongs to.
    #[schemars(length(min = 1))]
    pub cluster_name: String,

    /// Version of etcd that this member runs.
    #[schemars(regex(pattern = r"^\d+\.\d+\.\d+$"))]
    pub version: String,

    /// The member's data directory.
    pub storage: StorageSpec,

    /// Requests and limits of the etcd container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,

    /// Labels and annotations for the member's objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub additional_metadata: Option<AdditionalMetadata>,

    /// Affinity of the Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,

    /// How the cluster's Pods are spread.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,

    /// Tuning of etcd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<EtcdOptions>,

    /// Secrets with which the image is pulled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::local_object_references")]
    pub image_pull_secrets: Vec<LocalObjectReference>,

    /// PriorityClass of the Pod: who makes room for whom when nodes are full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::priority_class")]
    pub priority_class_name: Option<String>,

    /// Taints that the Pod tolerates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,

    /// Labels that a node must have for the Pod.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,

    /// This member is the seed: the first one, with which the cluster begins.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bootstrap: bool,

    /// `--initial-cluster`, as etcd returned it when it accepted the member. Empty until then, and no Pod is
    /// made before.
    pub initial_cluster: String,

    /// `--initial-cluster-token`, copied from the cluster.
    pub cluster_token: String,

    /// Always 1. It exists because the disruption controller asks a Pod's controller for its scale.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1))]
    pub replicas: i32,

    /// The member is paused: no Pod, the volume stays.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dormant: bool,

    /// What the member's Pod needs to know about TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<EtcdMemberTls>,

    /// The snapshot that the seed begins with. Only on a seed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<RestoreSpec>,
}

fn one() -> i32 {
    1
}

/// What a member's Pod needs to know about TLS.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct EtcdMemberTls {
    /// Secret of the server certificate. Absent means a plain client port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::local_object_reference")]
    pub client_server_secret_ref: Option<LocalObjectReference>,

    /// Clients must present a certificate.
    #[serde(default, rename = "clientMTLS", skip_serializing_if = "std::ops::Not::not")]
    pub client_mtls: bool,

    /// Secret of the peer certificate. Absent means a plain peer port, unless peerAutoTLS is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::local_object_reference")]
    pub peer_secret_ref: Option<LocalObjectReference>,

    /// `--peer-auto-tls`: encrypted between members, but nobody is identified. Only on adopted clusters.
    #[serde(default, rename = "peerAutoTLS", skip_serializing_if = "std::ops::Not::not")]
    pub peer_auto_tls: bool,
}

/// What the operator knows about the member.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct EtcdMemberStatus {
    /// etcd's member ID, 16 hex digits. Set once etcd has accepted the member, and never changed.
    #[serde(rename = "memberID", skip_serializing_if = "Option::is_none")]
    pub member_id: Option<String>,

    /// Name of the member's Pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_name: Option<String>,

    /// UID of the Pod that was last seen.
    #[serde(rename = "podUID", skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,

    /// etcd's list has this member as a voter, not as a learner.
    pub is_voter: bool,

    /// 1 while the member has a Pod, else 0. For /scale.
    pub replicas: i32,

    /// Label selector of the member's Pod, as text, for /scale.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,

    /// Name of the PersistentVolumeClaim with the member's data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pvc_name: Option<String>,

    /// UID of that PersistentVolumeClaim, recorded before the first Pod starts. A claim with another UID is
    /// not this member's data.
    #[serde(rename = "pvcUID", skip_serializing_if = "Option::is_none")]
    pub pvc_uid: Option<String>,

    /// Version that etcd itself reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,

    /// Joined, Ready and VersionDrifted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
}

impl EtcdMemberSpec {
    /// A member of this cluster, made from the target that the cluster is working towards. Not a seed,
    /// not yet accepted by etcd (`initialCluster` is empty), plain connections.
    #[must_use]
    pub fn from_target(
        cluster_name: impl Into<String>,
        cluster_token: impl Into<String>,
        target: &ObservedClusterSpec,
    ) -> Self {
        Self {
            cluster_name: cluster_name.into(),
            version: target.version.clone(),
            storage: target.storage.clone(),
            resources: target.resources.clone(),
            additional_metadata: target.additional_metadata.clone(),
            affinity: target.affinity.clone(),
            topology_spread_constraints: target.topology_spread_constraints.clone(),
            options: target.options.clone(),
            image_pull_secrets: target.image_pull_secrets.clone(),
            priority_class_name: target.priority_class_name.clone(),
            tolerations: target.tolerations.clone(),
            node_selector: target.node_selector.clone(),
            bootstrap: false,
            initial_cluster: String::new(),
            cluster_token: cluster_token.into(),
            replicas: one(),
            dormant: false,
            tls: None,
            restore: None,
        }
    }
}

impl EtcdMember {
    /// The status, or an empty one when none was written yet.
    #[must_use]
    pub fn status_or_default(&self) -> EtcdMemberStatus {
        self.status.clone().unwrap_or_default()
    }
}
