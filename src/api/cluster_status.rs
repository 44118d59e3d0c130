//! EtcdCluster.status: what the operator reports. Written by the cluster's supervisor only. No I/O.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, LocalObjectReference, ResourceRequirements, Toleration, TopologySpreadConstraint,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{AdditionalMetadata, EtcdClusterSpec, EtcdMemberSpec, EtcdOptions, StorageSpec};

/// What the operator knows about the cluster.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct EtcdClusterStatus {
    /// Voters that answer a linearizable read. Also the count that /scale reports.
    pub ready_members: i32,

    /// The EtcdMember that leads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,

    /// Bytes of the leader's database file, as of the last change of this status or of a quarter of the size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub db_size_bytes: Option<i64>,

    /// Label selector of the cluster's Pods, as text, for /scale.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,

    /// Members that are lost or do not serve.
    pub broken_members: i32,

    /// etcd's cluster ID, 16 hex digits. Set once the cluster has formed, and never changed.
    #[serde(rename = "clusterID", skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,

    /// `--initial-cluster-token` of every member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_token: Option<String>,

    /// Authentication has been turned on in etcd. Never goes back to false.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub auth_enabled: bool,

    /// The target that the operator is working towards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed: Option<ObservedClusterSpec>,

    /// What becomes of members that were made from another spec than `observed`. Absent until this operator has seen the
    /// cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drift: Option<DriftMode>,

    /// The recovery from lost quorum that was taken up last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery: Option<RecoveryStatus>,

    /// The recovery that is asked for by annotation and refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused_recovery: Option<RefusedRecovery>,

    /// When the change in progress is reported as stuck. Absent when nothing is in progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_deadline: Option<Time>,

    /// Available, Progressing and Degraded; SpecWarnings while the spec asks for what may do harm.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// A recovery from lost quorum: what was asked for, and what was done.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct RecoveryStatus {
    /// The annotation's value. The same value never acts again.
    pub request: String,

    /// The EtcdMember whose data the cluster goes on with.
    pub survivor: String,

    /// How far it is.
    pub phase: RecoveryPhase,

    /// Raft term of the survivor when the request was taken up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term: Option<i64>,

    /// Last index that the survivor knew committed when the request was taken up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<i64>,

    /// The EtcdMembers that were fenced, to be let go with their volumes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<String>,

    /// When it was taken up.
    pub begun: Time,

    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Time>,
}

/// How far a recovery is.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryPhase {
    /// The others' Pods are ended. Taking the annotation off still takes it back.
    Fencing,
    /// The survivor runs once with `--force-new-cluster`, reachable by nobody.
    Rewriting,
    /// The survivor starts as any member does.
    Returning,
    /// The survivor serves; the cluster grows from it.
    Recovered,
    /// It was taken back before anything was changed.
    Cancelled,
}

/// A recovery that is asked for and refused.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct RefusedRecovery {
    /// The annotation's value. The same value is not considered again while it stands.
    pub request: String,

    /// Why, and what to do.
    pub why: String,
}

/// What becomes of members that were made from another spec.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriftMode {
    /// They were there when the cluster was taken over, and wait for the next edit of the spec.
    Accepted,
    /// They follow the spec.
    Rolled,
}

/// The part of the spec that members are made from, as it was when the operator took it up.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ObservedClusterSpec {
    /// Wanted number of members.
    pub replicas: i32,

    /// Wanted version of etcd.
    pub version: String,

    /// Data directory of the members.
    pub storage: StorageSpec,

    /// Requests and limits of the etcd container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,

    /// Affinity of the members' Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,

    /// How the members' Pods are spread.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,

    /// Labels and annotations for every object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub additional_metadata: Option<AdditionalMetadata>,

    /// Tuning of etcd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<EtcdOptions>,

    /// Secrets with which the members' image is pulled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::local_object_references")]
    pub image_pull_secrets: Vec<LocalObjectReference>,

    /// PriorityClass of the members' Pods: who makes room for whom when nodes are full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::priority_class")]
    pub priority_class_name: Option<String>,

    /// Taints that the members' Pods tolerate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,

    /// Labels that a node must have for the members' Pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
}

impl From<&EtcdMemberSpec> for ObservedClusterSpec {
    /// What a member was made from; `replicas` is 0, since a member knows no number.
    fn from(spec: &EtcdMemberSpec) -> Self {
        Self {
            replicas: 0,
            version: spec.version.clone(),
            storage: spec.storage.clone(),
            resources: spec.resources.clone(),
            affinity: spec.affinity.clone(),
            topology_spread_constraints: spec.topology_spread_constraints.clone(),
            additional_metadata: spec.additional_metadata.clone(),
            options: spec.options.clone(),
            image_pull_secrets: spec.image_pull_secrets.clone(),
            priority_class_name: spec.priority_class_name.clone(),
            tolerations: spec.tolerations.clone(),
            node_selector: spec.node_selector.clone(),
        }
    }
}

impl From<&EtcdClusterSpec> for ObservedClusterSpec {
    fn from(spec: &EtcdClusterSpec) -> Self {
        Self {
            replicas: spec.replicas,
            version: spec.version.clone(),
            storage: spec.storage.clone(),
            resources: spec.resources.clone(),
            affinity: spec.affinity.clone(),
            topology_spread_constraints: spec.topology_spread_constraints.clone(),
            additional_metadata: spec.additional_metadata.clone(),
            options: spec.options.clone(),
            image_pull_secrets: spec.image_pull_secrets.clone(),
            priority_class_name: spec.priority_class_name.clone(),
            tolerations: spec.tolerations.clone(),
            node_selector: spec.node_selector.clone(),
        }
    }
}
