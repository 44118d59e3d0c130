//! Owns where a member's Pod is wanted: what the spec says, and a soft spreading where it says nothing. Pure.

use etcd_operator_api::{EtcdMember, EtcdMemberSpec, labels};
use k8s_openapi::{
    api::core::v1::{
        Affinity, PodAffinityTerm, PodAntiAffinity, PodSpec, TopologySpreadConstraint,
        WeightedPodAffinityTerm,
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};

/// The heaviest preference that Kubernetes knows.
const WEIGHT: i32 = 100;

/// The part of a Pod's spec that the scheduler reads.
///
/// Without affinity and spreading of the user's own, members prefer nodes and zones that have no other
/// member of the cluster (SD-06). Only prefer: a hard rule would leave a member Pending on a small
/// Kubernetes. Whoever sets one of the two gets exactly what he wrote.
pub(super) fn scheduling(member: &EtcdMember) -> PodSpec {
    let spec = &member.spec;
    let mut pod = PodSpec {
        affinity: spec.affinity.clone(),
        topology_spread_constraints: some(spec.topology_spread_constraints.clone()),
        priority_class_name: spec.priority_class_name.clone(),
        tolerations: some(spec.tolerations.clone()),
        node_selector: (!spec.node_selector.is_empty()).then(|| spec.node_selector.clone()),
        ..Default::default()
    };
    if pod.affinity.is_none() && pod.topology_spread_constraints.is_none() {
        pod.affinity = Some(apart(spec));
        pod.topology_spread_constraints = Some(vec![over_zones(spec)]);
    }
    pod
}

pub(super) fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

/// The members' Pods and no others: helper Jobs do not carry this label (SD-07).
fn siblings(spec: &EtcdMemberSpec) -> Option<LabelSelector> {
    let match_labels = Some(labels::cluster_selector(&spec.cluster_name));
    Some(LabelSelector { match_labels, ..Default::default() })
}

fn apart(spec: &EtcdMemberSpec) -> Affinity {
    let term = PodAffinityTerm {
        label_selector: siblings(spec),
        topology_key: labels::HOSTNAME.to_owned(),
        ..Default::default()
    };
    let preferred = vec![WeightedPodAffinityTerm { weight: WEIGHT, pod_affinity_term: term }];
    Affinity {
        pod_anti_affinity: Some(PodAntiAffinity {
            preferred_during_scheduling_ignored_during_execution: Some(preferred),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn over_zones(spec: &EtcdMemberSpec) -> TopologySpreadConstraint {
    TopologySpreadConstraint {
        label_selector: siblings(spec),
        max_skew: 1,
        topology_key: labels::ZONE.to_owned(),
        when_unsatisfiable: "ScheduleAnyway".to_owned(),
        ..Default::default()
    }
}

#[cfg(test)]
#[path = "scheduling_tests.rs"]
mod tests;
