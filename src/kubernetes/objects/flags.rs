//! Owns etcd's command line: which flags there are, in which versions, and a member's values for
//! them. Pure.
//!
//! etcd ends at once when it is given a flag that it does not know. A flag therefore gets onto a
//! command line only through [`KNOWN`], by the version of *that member*, which in the middle of an
//! upgrade is not the cluster's.

use etcd_operator_api::{AutoCompactionMode, EtcdMember, LogLevel, MetricsDetail, names};
use etcd_operator_core::version::EtcdVersion;

use super::address;

/// Where the data volume is mounted.
pub const DATA_DIR: &str = "/var/lib/etcd";
/// Where the Secret of the client port's certificate is mounted.
pub const CLIENT_TLS_DIR: &str = "/etc/etcd/tls/client";
/// Where the Secret of the peer port's certificate is mounted.
pub const PEER_TLS_DIR: &str = "/etc/etcd/tls/peer";
/// The variable that carries `--initial-cluster`. No `ETCD_` prefix: etcd reads those as flags (DN-07).
pub const JOIN_CLUSTER: &str = "JOIN_CLUSTER";
/// The variable that carries `--initial-cluster-state`.
pub const JOIN_STATE: &str = "JOIN_STATE";

/// Why there is no command line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FlagError {
    /// Not a version.
    #[error("EtcdMember {member}: {source}")]
    BadVersion {
        /// The member.
        member: String,
        /// What is wrong.
        source: etcd_operator_core::version::BadVersion,
    },
    /// A version outside of [`KNOWN`].
    #[error(
        "EtcdMember {member}: this build knows the flags of etcd 3.5.11 to 3.7, not of {version}; set a \
         version in that range or run a newer build of the operator"
    )]
    UnknownVersion {
        /// The member.
        member: String,
        /// The version.
        version: EtcdVersion,
    },
    /// This version lacks the flag.
    #[error("EtcdMember {member}: etcd {version} has no flag --{flag}")]
    UnknownFlag {
        /// The member.
        member: String,
        /// The version.
        version: EtcdVersion,
        /// The flag.
        flag: &'static str,
    },
}

/// The minors of etcd 3 whose flags are known.
pub const MINORS: std::ops::RangeInclusive<u32> = 5..=7;

/// One flag and the minors of etcd 3 that know it under this name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flag {
    /// Without the dashes.
    pub name: &'static str,
    /// First minor.
    pub since: u32,
    /// Last minor.
    pub until: u32,
}

const fn always(name: &'static str) -> Flag {
    Flag { name, since: 5, until: 7 }
}

/// Every flag that the operator can write. Read from `embed/config.go` of 3.5.35, 3.6.16 and 3.7.3,
/// and each started with the real binary by `tests/flags.rs`. What 3.5 calls `experimental-*` lost
/// that prefix in 3.6 and its old name in 3.7; a row for such a flag carries both names, as two rows.
pub const KNOWN: &[Flag] = &[
    always("name"),
    always("data-dir"),
    always("listen-peer-urls"),
    always("listen-client-urls"),
    always("advertise-client-urls"),
    always("initial-advertise-peer-urls"),
    always("initial-cluster"),
    always("initial-cluster-token"),
    always("initial-cluster-state"),
    always("listen-metrics-urls"),
    always("quota-backend-bytes"),
    always("auto-compaction-mode"),
    always("auto-compaction-retention"),
    // Deprecated since 3.6 and still there in 3.7.
    always("snapshot-count"),
    always("heartbeat-interval"),
    always("election-timeout"),
    always("max-request-bytes"),
    always("max-txn-ops"),
    // Deprecated since 3.6 and still there in 3.7.
    always("max-snapshots"),
    always("max-wals"),
    always("log-level"),
    always("metrics"),
    // 3.6 still takes the old names, and refuses some together with the new ones.
    Flag { name: "experimental-initial-corrupt-check", since: 5, until: 6 },
    Flag { name: "experimental-corrupt-check-time", since: 5, until: 6 },
    Flag { name: "experimental-compact-hash-check-enabled", since: 5, until: 6 },
    Flag { name: "feature-gates", since: 6, until: 7 },
    Flag { name: "corrupt-check-time", since: 6, until: 7 },
    always("cert-file"),
    always("key-file"),
    always("client-cert-auth"),
    always("trusted-ca-file"),
    always("peer-cert-file"),
    always("peer-key-file"),
    always("peer-trusted-ca-file"),
    always("peer-client-cert-auth"),
    always("peer-auto-tls"),
    always("force-new-cluster"),
];

struct CommandLine<'a> {
    member: &'a str,
    version: EtcdVersion,
    args: Vec<String>,
}

impl CommandLine<'_> {
    fn push(&mut self, flag: &'static str, value: impl AsRef<str>) -> Result<(), FlagError> {
        let known =
            KNOWN.iter().any(|row| row.name == flag && (row.since..=row.until).contains(&self.version.minor));
        if !known {
            return Err(FlagError::UnknownFlag {
                member: self.member.to_owned(),
                version: self.version,
                flag,
            });
        }
        self.args.push(format!("--{flag}={}", value.as_ref()));
        Ok(())
    }
}

/// The member's command line, without the program's name.
///
/// # Errors
/// For a version that this build has no flags for.
pub fn args(member: &EtcdMember) -> Result<Vec<String>, FlagError> {
    let mut line = start(member, ANYBODY)?;
    corruption_checks(&mut line)?;
    options(&mut line, member)?;
    tls(&mut line, member)?;
    Ok(line.args)
}

/// The command line with which the survivor of a recovery starts once. Neither clients nor peers reach it: what it were
/// told before it is known to stand alone could be lost. Metrics and health stay, for the probes.
///
/// # Errors
/// See [`args`].
pub fn recovery_args(member: &EtcdMember) -> Result<Vec<String>, FlagError> {
    let mut line = start(member, NOBODY)?;
    line.push("force-new-cluster", "true")?;
    // Without the checks for corruption, which would ask peers that are gone.
    options(&mut line, member)?;
    tls(&mut line, member)?;
    Ok(line.args)
}

/// Every address of both families. Go's listener opens a wildcard of either family as one socket
/// for both where the kernel can, and `0.0.0.0` alone still works where IPv6 was disabled at boot,
/// which `[::]` does not. DN-06 in `tests/flags.rs` shows that an IPv6 client is served.
const ANYBODY: &str = "0.0.0.0";
/// Only whoever is in the same Pod.
const NOBODY: &str = "127.0.0.1";

/// Identity, addresses and the join instruction. Clients and peers are listened for at `host`.
fn start<'a>(member: &'a EtcdMember, host: &str) -> Result<CommandLine<'a>, FlagError> {
    let name = member.metadata.name.as_deref().unwrap_or_default();
    let version: EtcdVersion = member
        .spec
        .version
        .parse()
        .map_err(|source| FlagError::BadVersion { member: name.to_owned(), source })?;
    if version.major != 3 || !MINORS.contains(&version.minor) || version < EtcdVersion::OLDEST {
        return Err(FlagError::UnknownVersion { member: name.to_owned(), version });
    }
    let mut line = CommandLine { member: name, version, args: Vec::new() };
    line.push("name", name)?;
    line.push("data-dir", data_dir(member))?;
    line.push("listen-peer-urls", listen(address::peer_scheme(member), host, names::PEER_PORT))?;
    line.push("listen-client-urls", listen(address::client_scheme(member), host, names::CLIENT_PORT))?;
    line.push("advertise-client-urls", address::client_url(member))?;
    line.push("initial-advertise-peer-urls", address::peer_url(member))?;
    // The kubelet fills these in at each start of the container, from the Pod's annotations.
    line.push("initial-cluster", format!("$({JOIN_CLUSTER})"))?;
    line.push("initial-cluster-token", &member.spec.cluster_token)?;
    line.push("initial-cluster-state", format!("$({JOIN_STATE})"))?;
    line.push("listen-metrics-urls", listen(names::Scheme::Http, ANYBODY, names::METRICS_PORT))?;
    Ok(line)
}

fn data_dir(member: &EtcdMember) -> String {
    match address::data_dir_subpath(member) {
        Some(subpath) => format!("{DATA_DIR}/{subpath}"),
        None => DATA_DIR.to_owned(),
    }
}

fn listen(scheme: names::Scheme, host: &str, port: u16) -> String {
    format!("{}://{host}:{port}", scheme.as_str())
}

/// How often the leader compares the whole database with every follower's. All of it is read each time:
/// etcd's documentation advises a couple of hours, and Kubermatic runs its etcds with 4.
const CORRUPT_CHECK_TIME: &str = "4h";

/// Every check for diverging data that this version has, for every member (LS-11). A member compares itself
/// with its peers before it serves anybody, and ends if it differs. The leader compares what was compacted each
/// minute, which costs next to nothing, and everything now and then, which finds what is never compacted; on a
/// difference it raises the CORRUPT alarm.
fn corruption_checks(line: &mut CommandLine<'_>) -> Result<(), FlagError> {
    if line.version.minor == 5 {
        line.push("experimental-initial-corrupt-check", "true")?;
        line.push("experimental-compact-hash-check-enabled", "true")?;
        line.push("experimental-corrupt-check-time", CORRUPT_CHECK_TIME)
    } else {
        line.push("feature-gates", "InitialCorruptCheck=true,CompactHashCheck=true")?;
        line.push("corrupt-check-time", CORRUPT_CHECK_TIME)
    }
}

fn options(line: &mut CommandLine<'_>, member: &EtcdMember) -> Result<(), FlagError> {
    let Some(options) = &member.spec.options else { return Ok(()) };
    // 0 is etcd's word for its own default, which is what the absent flag means too.
    if let Some(bytes) = options.quota_backend_bytes.filter(|bytes| *bytes > 0) {
        line.push("quota-backend-bytes", bytes.to_string())?;
    }
    if let Some(mode) = options.auto_compaction_mode {
        let mode = match mode {
            AutoCompactionMode::Periodic => "periodic",
            AutoCompactionMode::Revision => "revision",
        };
        line.push("auto-compaction-mode", mode)?;
    }
    if let Some(retention) = &options.auto_compaction_retention {
        line.push("auto-compaction-retention", retention)?;
    }
    if let Some(count) = options.snapshot_count {
        line.push("snapshot-count", count.to_string())?;
    }
    let numbers = [
        ("heartbeat-interval", options.heartbeat_interval_ms.map(i64::from)),
        ("election-timeout", options.election_timeout_ms.map(i64::from)),
        ("max-request-bytes", options.max_request_bytes),
        ("max-txn-ops", options.max_txn_ops.map(i64::from)),
        ("max-snapshots", options.max_snapshots.map(i64::from)),
        ("max-wals", options.max_wals.map(i64::from)),
    ];
    for (flag, value) in numbers {
        if let Some(value) = value {
            line.push(flag, value.to_string())?;
        }
    }
    if let Some(level) = options.log_level {
        let level = match level {
            LogLevel::Debug => "debug",
            LogLevel::Info => "info",
            LogLevel::Warn => "warn",
            LogLevel::Error => "error",
        };
        line.push("log-level", level)?;
    }
    if let Some(detail) = options.metrics {
        let detail = match detail {
            MetricsDetail::Basic => "basic",
            MetricsDetail::Extensive => "extensive",
        };
        line.push("metrics", detail)?;
    }
    Ok(())
}

fn tls(line: &mut CommandLine<'_>, member: &EtcdMember) -> Result<(), FlagError> {
    let Some(tls) = &member.spec.tls else { return Ok(()) };
    if tls.client_server_secret_ref.is_some() {
        line.push("cert-file", format!("{CLIENT_TLS_DIR}/tls.crt"))?;
        line.push("key-file", format!("{CLIENT_TLS_DIR}/tls.key"))?;
        if tls.client_mtls {
            line.push("client-cert-auth", "true")?;
            line.push("trusted-ca-file", format!("{CLIENT_TLS_DIR}/ca.crt"))?;
        }
    }
    if tls.peer_secret_ref.is_some() {
        line.push("peer-cert-file", format!("{PEER_TLS_DIR}/tls.crt"))?;
        line.push("peer-key-file", format!("{PEER_TLS_DIR}/tls.key"))?;
        line.push("peer-trusted-ca-file", format!("{PEER_TLS_DIR}/ca.crt"))?;
        line.push("peer-client-cert-auth", "true")?;
    } else if tls.peer_auto_tls {
        line.push("peer-auto-tls", "true")?;
    }
    Ok(())
}
