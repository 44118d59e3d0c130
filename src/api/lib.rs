//! The wire types of `etcd-operator.cozystack.io/v1alpha2`: what a user writes, what the operator
//! writes, and every name, label and reason that both can see.
//!
//! Owns: field names, defaults, CEL rules, object names, labels, condition helpers, the one [`Reason`]
//! enum, and the two checks of a spec that the API server cannot make ([`EtcdCluster::invalid`],
//! [`EtcdClusterSpec::unsupported`]).
//! Decides nothing about a cluster, and does no I/O.
//!
//! Field names, types, defaults, label keys and object names are fixed: objects of the Go operator of
//! the same group are taken over as they are. New fields are optional and off by default.

// Two lints stand in the way of kube's derives, in the modules that use them:
// KubeSchema copies each struct, with its `pub`, into the body of a function, where it reaches nobody; and several
// printcolumn(...) in one attribute look like duplicates to clippy.
mod check;
#[allow(unreachable_pub, clippy::duplicated_attributes, reason = "see above")]
mod cluster;
mod cluster_status;
pub mod conditions;
mod crd;
#[allow(unreachable_pub, clippy::duplicated_attributes, reason = "see above")]
mod defrag;
pub mod examples;
mod ids;
pub mod labels;
#[allow(unreachable_pub, reason = "see above")]
mod location;
#[allow(clippy::duplicated_attributes, reason = "see above")]
mod member;
pub mod names;
#[allow(unreachable_pub, reason = "see above")]
mod options;
mod quantity;
mod reason;
mod schema;
#[allow(clippy::duplicated_attributes, reason = "see above")]
mod snapshot;
#[allow(unreachable_pub, reason = "see above")]
mod storage;
#[allow(unreachable_pub, reason = "see above")]
mod tls;
mod tuning;
mod update_strategy;
mod warnings;

pub use check::{Invalid, Unsupported};
pub use cluster::{EtcdCluster, EtcdClusterSpec};
pub use cluster_status::{
    DriftMode, EtcdClusterStatus, ObservedClusterSpec, RecoveryPhase, RecoveryStatus, RefusedRecovery,
};
pub use crd::{CrdError, crd_file_name, crds};
pub use defrag::{
    DefragOutcome, DefragPhase, DefragRule, EtcdDefrag, EtcdDefragSpec, EtcdDefragStatus, MemberDefragStatus,
    MemberRole,
};
pub use ids::{format_id, parse_id};
pub use location::{BootstrapSpec, PvcSnapshotLocation, RestoreSpec, S3SnapshotLocation, SnapshotLocation};
pub use member::{EtcdMember, EtcdMemberSpec, EtcdMemberStatus, EtcdMemberTls};
pub use options::{AdditionalMetadata, AutoCompactionMode, EtcdOptions, LogLevel, MetricsDetail};
pub use quantity::bytes;
pub use reason::{Reason, UnknownReason};
pub use snapshot::{EtcdSnapshot, EtcdSnapshotSpec, EtcdSnapshotStatus, SnapshotArtifact, SnapshotPhase};
pub use storage::{StorageMedium, StorageSpec};
pub use tls::{
    AuthSpec, ClientCertManagerTls, ClientTls, EtcdClusterTls, IssuerKind, IssuerReference,
    PeerCertManagerTls, PeerTls,
};
pub use update_strategy::{UpdateStrategy, UpdateStrategyType};

/// API group of all four kinds.
pub const GROUP: &str = "etcd-operator.cozystack.io";
/// The one version that is served and stored.
pub const VERSION: &str = "v1alpha2";
/// `apiVersion` of all four kinds.
pub const API_VERSION: &str = "etcd-operator.cozystack.io/v1alpha2";
