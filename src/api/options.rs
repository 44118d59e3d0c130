//! Tuning of etcd and extra metadata. Shared by EtcdCluster, EtcdMember and `status.observed`. No I/O.

use std::collections::BTreeMap;

use kube::KubeSchema;
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

/// `--log-level`. Absent means etcd's info.
// A closed set without etcd's panic and fatal: its last words would be missing from the Pod's status. This text is
// what the CRD says of the field.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Everything.
    Debug,
    /// etcd's own default.
    Info,
    /// What may need a look.
    Warn,
    /// What failed.
    Error,
}

/// `--metrics`: extensive adds histograms of each gRPC method. Absent means etcd's basic.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum MetricsDetail {
    /// etcd's own default.
    Basic,
    /// Histograms of each gRPC method too.
    Extensive,
}

/// etcd's tuning flags. A closed set on purpose: a free map could take away flags that membership
/// depends on.
// The bounds are those of `crate::tuning`, which says where each comes from.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("(has(self.electionTimeoutMs) ? self.electionTimeoutMs : 1000) >= 5 * (has(self.heartbeatIntervalMs) ? self.heartbeatIntervalMs : 100)")
        .message("electionTimeoutMs must be at least 5 times heartbeatIntervalMs, or etcd does not start. Absent, they are 1000 and 100")
)]
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

    /// `--heartbeat-interval`, in milliseconds: about the round trip between members. Absent means etcd's
    /// 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub heartbeat_interval_ms: Option<i32>,

    /// `--election-timeout`, in milliseconds: at least 5 times heartbeatIntervalMs, better 10 times. Absent
    /// means etcd's 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 5, max = 50_000))]
    pub election_timeout_ms: Option<i32>,

    /// `--max-request-bytes`: the largest request that etcd takes from a client, from 16 KiB to 10 MiB.
    /// Absent means etcd's 1.5 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 16_384, max = 10_485_760))]
    pub max_request_bytes: Option<i64>,

    /// `--max-txn-ops`: operations in one transaction. Absent means etcd's 128.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65_536))]
    pub max_txn_ops: Option<i32>,

    /// `--max-snapshots`: raft snapshot files that are kept. Absent means etcd's 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub max_snapshots: Option<i32>,

    /// `--max-wals`: write-ahead log files of 64 MB that are kept. Absent means etcd's 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub max_wals: Option<i32>,

    /// `--log-level`. Absent means etcd's info.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_level: Option<LogLevel>,

    /// `--metrics`: extensive adds histograms of each gRPC method. Absent means etcd's basic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<MetricsDetail>,
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
