//! EtcdCluster: what a user writes. Types, defaults and the CEL rules between fields. No I/O.
//!
//! Every immutable part has two rules here, at its parent: one compares presence, one compares the
//! value. A rule on the part itself would not run when the part is absent on either side, and
//! immutability could be walked around by removing and adding.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, LocalObjectReference, ResourceRequirements, Toleration, TopologySpreadConstraint,
};
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::cluster_status::EtcdClusterStatus;
use crate::{
    AdditionalMetadata, AuthSpec, BootstrapSpec, EtcdClusterTls, EtcdOptions, StorageSpec, UpdateStrategy,
};

/// What the cluster should be.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "etcd-operator.cozystack.io",
    version = "v1alpha2",
    kind = "EtcdCluster",
    plural = "etcdclusters",
    singular = "etcdcluster",
    namespaced,
    status = "EtcdClusterStatus",
    derive = "PartialEq",
    shortname = "etcdc",
    category = "etcd",
    doc = "One etcd cluster, kept alive by the operator through etcd's own membership API.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.readyMembers",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Version", type_ = "string", json_path = ".spec.version"),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.readyMembers"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Available",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Available")].status"#
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Available")].reason"#
    ),
    printcolumn(
        name = "Progress",
        type_ = "string",
        priority = 1,
        json_path = r#".status.conditions[?(@.type=="Progressing")].reason"#
    ),
    printcolumn(name = "Leader", type_ = "string", priority = 1, json_path = ".status.leader"),
    printcolumn(name = "DB Size", type_ = "integer", priority = 1, json_path = ".status.dbSizeBytes"),
    printcolumn(name = "Cluster ID", type_ = "string", priority = 1, json_path = ".status.clusterID"),
    validation = (
        "size(self.metadata.name) <= 56",
        "metadata.name may have at most 56 characters, because the Service <name>-client may have 63"
    ),
    validation = (
        "!self.metadata.name.contains('.')",
        "metadata.name must not contain a dot, because Services and Pod host names carry it"
    )
)]
#[x_kube(
    validation = Rule::new("!(has(self.replicas) && self.replicas == 0 && has(self.storage) && has(self.storage.medium) && self.storage.medium == 'Memory')")
        .message("replicas 0 does not go together with storage.medium Memory: pausing would throw the data away. Delete the cluster instead"),
    validation = Rule::new("!(has(self.storage) && has(self.storage.medium) && self.storage.medium == 'Memory') || (has(self.storage.size) && quantity(string(self.storage.size)).isGreaterThan(quantity('0')))")
        .message("storage.size must be greater than 0 with storage.medium Memory: it is the limit of the tmpfs"),
    validation = Rule::new("has(self.tls) == has(oldSelf.tls)")
        .message("tls cannot be added to or removed from an existing cluster. Create a new cluster"),
    validation = Rule::new("!has(self.tls) || !has(oldSelf.tls) || self.tls == oldSelf.tls")
        .message("tls cannot be changed on an existing cluster. Create a new cluster"),
    validation = Rule::new("has(self.auth) == has(oldSelf.auth)")
        .message("auth cannot be added to or removed from an existing cluster. Create a new cluster"),
    validation = Rule::new("!has(self.auth) || !has(oldSelf.auth) || self.auth == oldSelf.auth")
        .message("auth cannot be changed on an existing cluster. Create a new cluster"),
    validation = Rule::new("!(has(self.auth) && has(self.auth.enabled) && self.auth.enabled) || (has(self.tls) && has(self.tls.client))")
        .message("auth.enabled needs tls.client: a password must not cross a plain connection"),
    validation = Rule::new("!(has(self.auth) && has(self.auth.enabled) && self.auth.enabled) || has(self.auth.rootCredentialsSecretRef)")
        .message("auth.enabled needs auth.rootCredentialsSecretRef: the Secret with the password of root"),
    validation = Rule::new("has(self.bootstrap) == has(oldSelf.bootstrap)")
        .message("bootstrap cannot be added to or removed from an existing cluster: it is read once, when the cluster begins"),
    validation = Rule::new("!has(self.bootstrap) || !has(oldSelf.bootstrap) || self.bootstrap == oldSelf.bootstrap")
        .message("bootstrap cannot be changed on an existing cluster: it is read once, when the cluster begins"),
    validation = Rule::new("!(has(self.bootstrap) && has(self.bootstrap.restore)) || !(has(self.storage) && has(self.storage.medium) && self.storage.medium == 'Memory')")
        .message("bootstrap.restore does not go together with storage.medium Memory: each restart of the first Pod would restore again. Use a volume")
)]
pub struct EtcdClusterSpec {
    /// How many members the cluster should have. Odd numbers make sense. 0 pauses the cluster: its data
    /// stays, its Pods go.
    #[serde(default = "default_replicas")]
    #[schemars(range(min = 0))]
    pub replicas: i32,

    /// Version of etcd, such as 3.6.16.
    #[schemars(regex(pattern = r"^\d+\.\d+\.\d+$"))]
    pub version: String,

    /// The data directory of each member.
    #[serde(default)]
    pub storage: StorageSpec,

    /// Seconds after which a change that does not come to its end is reported as stuck. The operator does
    /// not stop trying.
    #[serde(default = "default_progress_deadline")]
    #[schemars(range(min = 1))]
    pub progress_deadline_seconds: i32,

    /// TLS. Absent means plain connections. Fixed when the cluster is created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<EtcdClusterTls>,

    /// etcd's own authentication. Fixed when the cluster is created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<AuthSpec>,

    /// How the cluster begins. Fixed when the cluster is created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap: Option<BootstrapSpec>,

    /// Requests and limits of the etcd container. Absent means requests of 100m CPU and 128Mi memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,

    /// Labels and annotations for every object made for this cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub additional_metadata: Option<AdditionalMetadata>,

    /// Affinity of the members' Pods. With neither this nor topologySpreadConstraints, Pods prefer nodes and
    /// zones that have no other member of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,

    /// How the members' Pods are spread over nodes and zones. See affinity for what happens without.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,

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

    /// How a changed spec reaches members that run. Absent means RollingUpdate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_strategy: Option<UpdateStrategy>,
}

/// Three: the smallest cluster that survives the loss of a member.
pub(crate) fn default_replicas() -> i32 {
    3
}

/// Ten minutes, the Go operator's value.
pub(crate) fn default_progress_deadline() -> i32 {
    600
}

impl EtcdClusterSpec {
    /// A spec with every default: three members of this version of etcd on 1Gi volumes.
    #[must_use]
    pub fn new(version: impl Into<String>) -> Self {
        Self {
            replicas: default_replicas(),
            version: version.into(),
            storage: StorageSpec::default(),
            progress_deadline_seconds: default_progress_deadline(),
            tls: None,
            auth: None,
            bootstrap: None,
            resources: None,
            additional_metadata: None,
            affinity: None,
            topology_spread_constraints: Vec::new(),
            options: None,
            image_pull_secrets: Vec::new(),
            priority_class_name: None,
            tolerations: Vec::new(),
            node_selector: BTreeMap::new(),
            update_strategy: None,
        }
    }
}

impl EtcdCluster {
    /// The status, or an empty one when none was written yet.
    #[must_use]
    pub fn status_or_default(&self) -> EtcdClusterStatus {
        self.status.clone().unwrap_or_default()
    }
}
