//! What a spec may not say, beyond what the API server can check. Pure.
//!
//! The CRD's rules refuse most mistakes before they are stored. These functions see what rules cannot express, what
//! was stored under an older CRD, and what this build does not do yet.

use crate::names::check_cluster_name;
use crate::{AutoCompactionMode, EtcdCluster, EtcdClusterSpec, EtcdOptions, StorageMedium, bytes, tuning};

/// A field that this build does not act on yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// Path of the field.
    pub field: &'static str,
    /// One sentence for a condition: what is missing and what to do.
    pub why: &'static str,
}

/// A field that says something impossible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// Path of the field.
    pub field: &'static str,
    /// One sentence for a condition: what is wrong and what to do.
    pub why: String,
}

/// etcd before this has neither /livez nor /readyz, which the probes ask for.
const OLDEST: (u64, u64, u64) = (3, 5, 11);
/// Newest minor release whose flags are known.
const NEWEST_MINOR: u64 = 7;

impl EtcdClusterSpec {
    /// Every field that asks for what this build does not do yet. Empty means that all of it can be done.
    #[must_use]
    pub fn unsupported(&self) -> Vec<Unsupported> {
        let mut found = Vec::new();
        let mut add = |is: bool, field, why| {
            if is {
                found.push(Unsupported { field, why });
            }
        };
        add(
            self.tls.is_some(),
            "spec.tls",
            "this build does not set up TLS yet; create the cluster without tls",
        );
        add(
            self.auth.as_ref().is_some_and(|auth| auth.enabled),
            "spec.auth.enabled",
            "this build does not turn on authentication yet; create the cluster without auth",
        );
        add(
            self.bootstrap.as_ref().is_some_and(|bootstrap| bootstrap.restore.is_some()),
            "spec.bootstrap.restore",
            "this build does not restore snapshots yet; create the cluster without bootstrap",
        );
        found
    }

    /// Everything in the spec that cannot work. Empty means that nothing was found.
    #[must_use]
    pub fn invalid(&self) -> Vec<Invalid> {
        let mut found = Vec::new();
        let mut add = |field, why: Option<String>| found.extend(why.map(|why| Invalid { field, why }));
        add("spec.version", bad_version(&self.version));
        add(
            "spec.replicas",
            (self.replicas < 0).then(|| "replicas is negative; set it to 0 or more".to_owned()),
        );
        add(
            "spec.replicas",
            (self.replicas == 0 && self.storage.medium == StorageMedium::Memory).then(|| {
                "replicas is 0 and storage.medium is Memory: a pause would throw the data away; set replicas to 1 or more, or delete the cluster"
                    .to_owned()
            }),
        );
        add("spec.storage.size", bad_size(self));
        if let Some(options) = &self.options {
            add("spec.options.autoCompactionRetention", bad_retention(options));
            for (field, why) in tuning::invalid(options) {
                add(field, Some(why));
            }
        }
        found
    }
}

impl EtcdCluster {
    /// Everything in the object that cannot work: its name, and [`EtcdClusterSpec::invalid`].
    #[must_use]
    pub fn invalid(&self) -> Vec<Invalid> {
        let name = self.metadata.name.as_deref().unwrap_or_default();
        let name =
            check_cluster_name(name).err().map(|e| Invalid { field: "metadata.name", why: e.to_string() });
        name.into_iter().chain(self.spec.invalid()).collect()
    }
}

fn bad_version(version: &str) -> Option<String> {
    let parts: Option<Vec<u64>> = version
        .split('.')
        .map(|part| part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse().ok()).flatten())
        .collect();
    let Some([major, minor, patch]) = parts.as_deref() else {
        return Some(format!("{version:?} is not a version; write three numbers, such as 3.6.16"));
    };
    let version_is = (*major, *minor, *patch);
    if version_is < OLDEST {
        return Some(format!(
            "etcd {version} is older than 3.5.11 and lacks the health endpoints that the operator needs; choose 3.5.11 or newer"
        ));
    }
    if *major != 3 || *minor > NEWEST_MINOR {
        return Some(format!(
            "this build knows etcd 3.5, 3.6 and 3.7, but not {version}; choose one of those"
        ));
    }
    None
}

fn bad_size(spec: &EtcdClusterSpec) -> Option<String> {
    let size = &spec.storage.size;
    match bytes(size) {
        None => Some(format!("{:?} is not a quantity; write a size such as 10Gi", size.0)),
        // No provisioner makes a volume of nothing, and a tmpfs of 0 would have no limit.
        Some(value) if value <= 0 => Some(format!("storage.size is {}; it must be greater than 0", size.0)),
        Some(_) => None,
    }
}

fn bad_retention(options: &EtcdOptions) -> Option<String> {
    let text = options.auto_compaction_retention.as_deref()?;
    let bare = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if options.auto_compaction_mode == Some(AutoCompactionMode::Revision) {
        return (!bare || text.parse::<i64>().is_err()).then(|| {
            format!("autoCompactionRetention {text:?} must be a number of revisions, because autoCompactionMode is revision")
        });
    }
    let hours = if bare { text.parse::<f64>().ok() } else { hours(text) };
    match hours {
        None => Some(format!(
            "autoCompactionRetention {text:?} is not a duration; write for example 30m, 1h30m or 8"
        )),
        Some(hours) if hours > LONGEST_HOURS => Some(format!(
            "autoCompactionRetention {text:?} is longer than etcd can count (292 years); choose a shorter one"
        )),
        Some(_) => None,
    }
}

/// A Go duration holds 2^63 nanoseconds at most.
const LONGEST_HOURS: f64 = 9_223_372_036.0 / 3600.0;

/// Hours in a Go duration made of ms, s, m and h parts.
fn hours(text: &str) -> Option<f64> {
    let mut rest = text;
    let mut total = 0.0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(end);
        let shape =
            number.split_once('.').is_none_or(|(a, b)| !a.is_empty() && !b.is_empty() && !b.contains('.'));
        if number.is_empty() || !shape {
            return None;
        }
        let number: f64 = number.parse().ok()?;
        let (unit, tail) = [("ms", 3_600_000.0), ("s", 3600.0), ("m", 60.0), ("h", 1.0)]
            .into_iter()
            .find_map(|(unit, per_hour)| after.strip_prefix(unit).map(|tail| (per_hour, tail)))?;
        total += number / unit;
        rest = tail;
    }
    (!text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AuthSpec, BootstrapSpec, EtcdClusterTls, RestoreSpec, SnapshotLocation};
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

    fn spec() -> EtcdClusterSpec {
        EtcdClusterSpec::new("3.6.16")
    }

    fn fields(spec: &EtcdClusterSpec) -> Vec<&'static str> {
        spec.unsupported().into_iter().map(|u| u.field).collect()
    }

    #[test]
    fn a_plain_spec_is_supported_and_valid() {
        assert_eq!(spec().unsupported(), []);
        assert_eq!(EtcdCluster::new("db", spec()).invalid(), []);
    }

    #[test]
    fn what_is_not_built_yet_is_named_field_by_field() {
        let mut s = spec();
        s.tls = Some(EtcdClusterTls::default());
        assert_eq!(fields(&s), ["spec.tls"]);
        s = spec();
        s.auth = Some(AuthSpec { enabled: true, ..Default::default() });
        assert_eq!(fields(&s), ["spec.auth.enabled"]);
        s = spec();
        s.bootstrap =
            Some(BootstrapSpec { restore: Some(RestoreSpec { source: SnapshotLocation::default() }) });
        assert_eq!(fields(&s), ["spec.bootstrap.restore"]);
    }

    // SZ-06
    #[test]
    fn a_cluster_in_memory_cannot_be_paused() {
        let mut s = spec();
        s.storage.medium = StorageMedium::Memory;
        assert_eq!(s.invalid(), []);
        s.replicas = 0;
        assert_eq!(s.invalid().iter().map(|i| i.field).collect::<Vec<_>>(), ["spec.replicas"]);
        s.storage.medium = StorageMedium::Volume;
        assert_eq!((s.invalid(), s.unsupported()), (vec![], vec![]));
    }

    #[test]
    fn auth_that_is_off_and_a_bootstrap_that_is_empty_are_supported() {
        let mut s = spec();
        s.auth = Some(AuthSpec::default());
        s.bootstrap = Some(BootstrapSpec::default());
        assert_eq!(s.unsupported(), []);
    }

    #[test]
    fn versions_outside_of_what_the_operator_knows_are_refused_with_advice() {
        for good in ["3.5.11", "3.5.30", "3.6.0", "3.6.16", "3.7.0"] {
            assert_eq!(bad_version(good), None, "{good}");
        }
        for bad in [
            "3.5.10", "3.4.99", "2.3.8", "3.8.0", "4.0.0", "9.9.9", "3.6", "v3.6.1", "", "3.6.x", "3.6.1.2",
            "3.+6.1",
        ] {
            let why = bad_version(bad).unwrap_or_else(|| panic!("{bad:?} was accepted"));
            assert!(why.contains("; choose") || why.contains("; write"), "{why}");
        }
    }

    #[test]
    fn sizes_that_make_no_volume_are_refused() {
        for bad in ["", "0", "-1Gi", "ten", "0.0Gi"] {
            let mut s = spec();
            s.storage.size = Quantity(bad.to_owned());
            assert_eq!(s.invalid().len(), 1, "{bad:?}");
        }
    }

    #[test]
    fn a_retention_must_fit_its_mode() {
        let check = |mode, text: &str| {
            bad_retention(&EtcdOptions {
                auto_compaction_mode: mode,
                auto_compaction_retention: Some(text.to_owned()),
                ..Default::default()
            })
        };
        for good in ["0", "8", "30m", "1h30m", "1.5h", "500ms", "72h"] {
            assert_eq!(check(None, good), None, "{good}");
            assert_eq!(check(Some(AutoCompactionMode::Periodic), good), None, "{good}");
        }
        for bad in ["", "h", "1d", "1h30", "-1h", "1.h", "1..5h", "1us", "9999999999h"] {
            assert!(check(None, bad).is_some(), "{bad:?}");
        }
        assert_eq!(check(Some(AutoCompactionMode::Revision), "1000"), None);
        for bad in ["1h", "99999999999999999999", ""] {
            assert!(check(Some(AutoCompactionMode::Revision), bad).is_some(), "{bad:?}");
        }
    }

    #[test]
    fn options_that_etcd_would_not_start_with_are_refused_field_by_field() {
        let mut s = spec();
        s.options = Some(EtcdOptions {
            heartbeat_interval_ms: Some(0),
            max_wals: Some(-1),
            max_request_bytes: Some(1),
            ..Default::default()
        });
        let found: Vec<_> = s.invalid().into_iter().map(|i| i.field).collect();
        assert_eq!(
            found,
            ["spec.options.heartbeatIntervalMs", "spec.options.maxRequestBytes", "spec.options.maxWals"]
        );
    }

    #[test]
    fn a_name_that_an_older_crd_let_through_is_refused_here() {
        let found = EtcdCluster::new("a.b", spec()).invalid();
        assert_eq!(found.iter().map(|i| i.field).collect::<Vec<_>>(), ["metadata.name"]);
    }
}
