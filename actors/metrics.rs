//! Owns the operator's own counters. Series of a cluster go when it goes.

use std::sync::{Arc, atomic::AtomicU64};

use etcd_operator_core::{
    membership::{Call, Change, Verdict},
    reason::Reason,
    report::{Report, Verdict as Holds},
};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use crate::ports::ClusterKey;

/// The label set of what concerns one cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClusterLabels {
    namespace: String,
    cluster: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ConditionLabels {
    namespace: String,
    cluster: String,
    condition: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerdictLabels {
    change: &'static str,
    verdict: &'static str,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NameLabel {
    name: &'static str,
}

/// The counters. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    clusters: Gauge,
    conditions: Family<ConditionLabels, Gauge>,
    ready: Family<ClusterLabels, Gauge>,
    verdicts: Family<VerdictLabels, Counter>,
    calls: Family<NameLabel, Counter>,
    actions: Family<NameLabel, Counter>,
    warnings: Family<ReasonLabel, Counter>,
    restarts: Counter<u64, AtomicU64>,
}

impl Metrics {
    /// Counters that are part of `registry`.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let m = &metrics.0;
        let r = registry.sub_registry_with_prefix("etcd_operator");
        r.register("clusters", "Clusters that have a supervisor in this process", m.clusters.clone());
        r.register(
            "cluster_condition",
            "A cluster's condition: 1 true, 0 false, -1 unknown",
            m.conditions.clone(),
        );
        r.register("cluster_ready_members", "Voters that serve linearizable reads", m.ready.clone());
        r.register("guard_verdicts", "What the quorum guards answered", m.verdicts.clone());
        r.register("membership_calls", "Membership calls made to etcd", m.calls.clone());
        r.register("actions", "Effects started on Kubernetes, by decision", m.actions.clone());
        r.register(
            "spec_warnings",
            "Times that a spec was found to ask for what may do harm or cannot be had",
            m.warnings.clone(),
        );
        r.register("actor_restarts", "Actors that failed and were started again", m.restarts.clone());
        metrics
    }

    /// How many supervisors there are.
    pub fn clusters(&self, n: usize) {
        self.0.clusters.set(i64::try_from(n).unwrap_or(i64::MAX));
    }

    /// A cluster's report.
    pub fn reported(&self, key: &ClusterKey, report: &Report) {
        let conditions = [
            ("Available", report.available.verdict),
            ("Progressing", report.progressing.verdict),
            ("Degraded", report.degraded.verdict),
        ];
        let value = |verdict| match verdict {
            Holds::True => 1,
            Holds::False => 0,
            Holds::Unknown => -1,
        };
        for (condition, verdict) in conditions {
            self.0.conditions.get_or_create(&Self::condition(key, condition)).set(value(verdict));
        }
        let warnings = Self::condition(key, "SpecWarnings");
        match &report.spec_warnings {
            Some(said) => drop(self.0.conditions.get_or_create(&warnings).set(value(said.verdict))),
            // The condition is there only while there is a warning.
            None => drop(self.0.conditions.remove(&warnings)),
        }
        if let Some(said) = &report.disruptions {
            let allowed = Self::condition(key, "DisruptionsAllowed");
            self.0.conditions.get_or_create(&allowed).set(value(said.verdict));
        }
        if let Some(ready) = report.ready_members {
            self.0.ready.get_or_create(&Self::cluster(key)).set(i64::try_from(ready).unwrap_or(i64::MAX));
        }
    }

    // MT-04
    /// A cluster is gone: so are its series.
    pub fn cluster_gone(&self, key: &ClusterKey) {
        for condition in ["Available", "Progressing", "Degraded", "DisruptionsAllowed", "SpecWarnings"] {
            self.0.conditions.remove(&Self::condition(key, condition));
        }
        self.0.ready.remove(&Self::cluster(key));
    }

    /// The guard judged.
    pub fn judged(&self, change: &Change, verdict: &Verdict) {
        let (verdict, reason) = match verdict {
            Verdict::Allow(_) => ("allow", ""),
            Verdict::AlreadyDone => ("already-done", ""),
            Verdict::Wait { reason, .. } => ("wait", reason.as_str()),
            Verdict::Refuse(reason) => ("refuse", reason.as_str()),
        };
        let change = match change {
            Change::Add { .. } => "add",
            Change::Promote { .. } => "promote",
            Change::Remove { .. } => "remove",
            Change::Restart { .. } => "restart",
        };
        self.0.verdicts.get_or_create(&VerdictLabels { change, verdict, reason }).inc();
    }

    /// A membership call is about to be made.
    pub fn called(&self, call: &Call) {
        let name = match call {
            Call::Add(_) => "member-add",
            Call::Promote(_) => "member-promote",
            Call::Remove(_) => "member-remove",
            Call::MoveLeader { .. } => "move-leader",
            Call::Restart(_) => "restart",
        };
        self.0.calls.get_or_create(&NameLabel { name }).inc();
    }

    /// An effect on Kubernetes was started.
    pub fn acted(&self, name: &'static str) {
        self.0.actions.get_or_create(&NameLabel { name }).inc();
    }

    /// A spec was found to ask for what may do harm or cannot be had.
    pub fn warned(&self, reason: Reason) {
        self.0.warnings.get_or_create(&ReasonLabel { reason: reason.as_str() }).inc();
    }

    /// An actor failed and will be started again.
    pub fn restarted(&self) {
        self.0.restarts.inc();
    }

    fn cluster(key: &ClusterKey) -> ClusterLabels {
        ClusterLabels { namespace: key.namespace.clone(), cluster: key.name.clone() }
    }

    fn condition(key: &ClusterKey, condition: &'static str) -> ConditionLabels {
        ConditionLabels { namespace: key.namespace.clone(), cluster: key.name.clone(), condition }
    }
}
