//! Builds a cluster's PodDisruptionBudget. Pure.

use std::collections::BTreeMap;

use etcd_operator_api::{AdditionalMetadata, EtcdCluster, labels, names};
use k8s_openapi::{
    api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec},
    apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString},
};

use super::{BuildError, Owner};

/// The budget `<cluster>`: of the Pods of voters, so many stay when others are evicted.
///
/// The floor is a plain number: for a percentage or for maxUnavailable the disruption controller needs the number of
/// Pods that are wanted, which it asks of a scale that a custom resource need not have (SD-02). The policy for
/// Pods that are not Ready is left at the strict default: such a Pod is evicted only while the floor is met without
/// it, for it may hold the one volume that a lost quorum needs (SD-05).
///
/// # Errors
/// If the cluster was not read from the API server.
pub fn disruption_budget(
    cluster: &EtcdCluster,
    min_available: usize,
    extra: Option<&AdditionalMetadata>,
) -> Result<PodDisruptionBudget, BuildError> {
    let owner = Owner::of(cluster)?;
    let name = names::disruption_budget(owner.name);
    let spec = PodDisruptionBudgetSpec {
        min_available: Some(IntOrString::Int(i32::try_from(min_available).unwrap_or(i32::MAX))),
        selector: Some(LabelSelector {
            match_labels: Some(labels::voter_selector(owner.name)),
            ..Default::default()
        }),
        ..Default::default()
    };
    let metadata = owner.meta(name, labels::for_cluster(owner.name), BTreeMap::new(), extra);
    Ok(PodDisruptionBudget { metadata, spec: Some(spec), status: None })
}
