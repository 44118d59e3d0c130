//! Tuning of etcd and extra metadata. Shared by EtcdCluster, EtcdMember and `status.observed`. No I/O.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How etcd decides what to compact by itself.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum AutoCompactionMode {
    /// Keep what is younger than the retention.
    Periodic,
    /// Keep as many revisions as the retention says.
    Revision,
}

/// etcd's tuning flags. A closed set on purpose: a free map could take away flags that membership
/// depends on.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct EtcdOptions {
    /// `--quota-backend-bytes`: size of the database, in bytes, at which etcd stops taking writes.
    /// Absent or 0 means etcd's own default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub quota_backend_bytes: Option<i64>,

    /// `--auto-compaction-mode`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_compaction_mode: Option<AutoCompactionMode>,

    /// `--auto-compaction-retention`: a duration made of ms, s, m and h parts, or a bare number (hours in
    /// mode periodic, revisions in mode revision).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$|^[0-9]+$"))]
    pub auto_compaction_retention: Option<String>,

    /// `--snapshot-count`: committed raft entries that etcd keeps in memory before it writes a raft
    /// snapshot. Nothing to do with EtcdSnapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub snapshot_count: Option<i64>,
}

/// Labels and annotations put on every object that the operator makes for a cluster. The operator's own
/// keys win, and keys under `etcd-operator.cozystack.io/` are dropped.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
pub struct AdditionalMetadata {
    /// Extra labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,

    /// Extra annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}
