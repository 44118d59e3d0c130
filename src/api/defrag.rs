//! EtcdDefrag: one pass of defragmentation over a cluster, made once. No I/O.

use k8s_openapi::api::core::v1::LocalObjectReference;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which cluster, and which of its members are worth it.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "etcd-operator.cozystack.io",
    version = "v1alpha2",
    kind = "EtcdDefrag",
    plural = "etcddefrags",
    singular = "etcddefrag",
    namespaced,
    status = "EtcdDefragStatus",
    derive = "PartialEq",
    shortname = "etcdd",
    category = "etcd",
    doc = "One pass of defragmentation over an EtcdCluster in the same namespace, made once.",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterRef.name"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Defragmented", type_ = "integer", json_path = ".status.defragmented"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].reason"#
    )
)]
#[x_kube(validation = Rule::new("has(self.clusterRef.name) && size(self.clusterRef.name) > 0")
    .message("clusterRef.name must name the EtcdCluster to defragment"))]
pub struct EtcdDefragSpec {
    /// The EtcdCluster, in the same namespace.
    #[schemars(schema_with = "crate::schema::local_object_reference")]
    pub cluster_ref: LocalObjectReference,

    /// Which members are defragmented. Absent means those with more than 200Mi to give back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<DefragRule>,

    /// Seconds after its end at which this object is deleted. Absent means it stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ttl_seconds_after_finished: Option<i32>,
}

/// When a member is worth defragmenting. What a pass can give back is the database's size minus what is in use.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!(has(self.all) && self.all) || (!has(self.freeSpaceAbove) && !has(self.quotaUsageAbove) && !has(self.minReclaim))")
        .message("rule.all does not go together with freeSpaceAbove, quotaUsageAbove or minReclaim"),
    validation = Rule::new("!has(self.freeSpaceAbove) || quantity(string(self.freeSpaceAbove)).isGreaterThan(quantity('0'))")
        .message("rule.freeSpaceAbove must be greater than 0"),
    validation = Rule::new("!has(self.minReclaim) || quantity(string(self.minReclaim)).isGreaterThan(quantity('0'))")
        .message("rule.minReclaim must be greater than 0"),
    validation = Rule::new("!has(self.minReclaim) || has(self.quotaUsageAbove)")
        .message("rule.minReclaim means something only together with quotaUsageAbove"),
    validation = Rule::new("!(has(self.minReclaim) && has(self.freeSpaceAbove)) || quantity(string(self.minReclaim)).compareTo(quantity(string(self.freeSpaceAbove))) <= 0")
        .message("rule.minReclaim must not be larger than freeSpaceAbove")
)]
pub struct DefragRule {
    /// Defragment every member.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,

    /// Defragment a member that can give back more than this. Absent means 200Mi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::quantity")]
    pub free_space_above: Option<Quantity>,

    /// When the database uses more than this part of its quota ("1%" to "100%"), minReclaim is enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^([1-9][0-9]?|100)%$"))]
    pub quota_usage_above: Option<String>,

    /// What a member must be able to give back under quota pressure. Absent means 32Mi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::quantity")]
    pub min_reclaim: Option<Quantity>,
}

/// How far a pass is. Complete and Failed are final.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefragPhase {
    /// Not begun.
    Pending,
    /// Going from member to member.
    Running,
    /// Every member was looked at. Final.
    Complete,
    /// Stopped before the end. Final.
    Failed,
}

/// What became of one member.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefragOutcome {
    /// Not looked at yet.
    Pending,
    /// Not worth it by the rule.
    Skipped,
    /// Done.
    Defragmented,
    /// etcd refused, or did not answer.
    Failed,
}

/// The member's part in raft when its turn came.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum MemberRole {
    /// It led.
    Leader,
    /// It followed.
    Follower,
}

/// What became of one member.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct MemberDefragStatus {
    /// Name of the EtcdMember.
    pub name: String,

    /// Leader or follower.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<MemberRole>,

    /// What became of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<DefragOutcome>,

    /// Why, in one CamelCase word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,

    /// Size of the database before, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub db_size_before: Option<i64>,

    /// Size of the database after, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub db_size_after: Option<i64>,

    /// What was given back, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaimed_bytes: Option<i64>,

    /// When its turn ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
}

/// What became of the pass.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct EtcdDefragStatus {
    /// How far it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<DefragPhase>,

    /// When it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,

    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Time>,

    /// Members that were defragmented.
    pub defragmented: i32,

    /// Each member's outcome.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub members: Vec<MemberDefragStatus>,

    /// Ready, and why a pass waits.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
}
