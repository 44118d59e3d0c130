//! Decides how a PodDisruptionBudget stands, and the one patch that puts it right. Pure.

use etcd_operator_core::view::BudgetState;
use k8s_openapi::{
    api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec},
    apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString},
};
use serde_json::{Map, Value, json};

use crate::{drift, objects::is_controlled_by};

/// How the budget stands, `wanted` being what the builder makes, with any floor, of its cluster with UID `owner`.
pub fn state(live: Option<&PodDisruptionBudget>, wanted: &PodDisruptionBudget, owner: &str) -> BudgetState {
    let Some(live) = live else { return BudgetState::Absent };
    if !is_controlled_by(&live.metadata, owner) {
        return BudgetState::Foreign;
    }
    let floor = live.spec.as_ref().and_then(|spec| spec.min_available.clone());
    let number = match floor {
        Some(IntOrString::Int(n)) => usize::try_from(n).ok(),
        // A part of the Pods that there happen to be is no floor.
        Some(IntOrString::String(_)) | None => None,
    };
    let right = number.is_some() && !is_edited(live, wanted);
    BudgetState::Present { min_available: number.unwrap_or(0), right }
}

/// Whether anything of ours but the floor itself is not as it should be.
pub fn is_edited(live: &PodDisruptionBudget, wanted: &PodDisruptionBudget) -> bool {
    let mut same_floor = wanted.clone();
    if let (Some(spec), Some(has)) = (&mut same_floor.spec, &live.spec) {
        spec.min_available.clone_from(&has.min_available);
    }
    repair(live, &same_floor).is_some()
}

/// The merge patch that puts our fields right; none if they are. What must not stand beside the floor goes in the same
/// patch: the API server refuses both at once (SD-04).
pub fn repair(live: &PodDisruptionBudget, wanted: &PodDisruptionBudget) -> Option<Value> {
    let (none, empty) = (PodDisruptionBudgetSpec::default(), PodDisruptionBudgetSpec::default());
    let (has, wants) = (live.spec.as_ref().unwrap_or(&none), wanted.spec.as_ref().unwrap_or(&empty));
    let mut spec = Map::new();
    if has.min_available != wants.min_available {
        spec.insert("minAvailable".into(), json!(wants.min_available));
    }
    if has.max_unavailable.is_some() {
        spec.insert("maxUnavailable".into(), Value::Null);
    }
    // Absent and IfHealthyBudget are the same.
    if has.unhealthy_pod_eviction_policy.as_deref().is_some_and(|policy| policy != "IfHealthyBudget") {
        spec.insert("unhealthyPodEvictionPolicy".into(), Value::Null);
    }
    let (nobody, nothing) = (LabelSelector::default(), LabelSelector::default());
    let selects = has.selector.as_ref().unwrap_or(&nobody);
    let labels = wants.selector.as_ref().unwrap_or(&nothing).match_labels.as_ref();
    if selects.match_labels.as_ref() != labels || selects.match_expressions.is_some() {
        let exactly = drift::exactly(selects.match_labels.as_ref(), labels);
        spec.insert("selector".into(), json!({ "matchLabels": exactly, "matchExpressions": null }));
    }
    let metadata = drift::metadata(&live.metadata, &wanted.metadata);
    let mut patch = Map::new();
    if !spec.is_empty() {
        patch.insert("spec".into(), Value::Object(spec));
    }
    patch.extend(metadata.map(|metadata| ("metadata".to_owned(), metadata)));
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{objects, patch};

    fn wanted(floor: usize) -> PodDisruptionBudget {
        let cluster = serde_json::from_value(json!({
            "apiVersion": "etcd-operator.cozystack.io/v1alpha2", "kind": "EtcdCluster",
            "metadata": {"name": "c", "namespace": "ns", "uid": "cluster-uid"},
            "spec": {"version": "3.6.16"},
        }));
        objects::disruption_budget(&cluster.unwrap(), floor, None).unwrap()
    }

    fn state_of(live: &Value) -> BudgetState {
        state(Some(&serde_json::from_value(live.clone()).unwrap()), &wanted(9), "cluster-uid")
    }

    #[test]
    fn a_floor_is_seen_as_it_is_and_what_others_add_is_no_edit() {
        let mut live = json!(wanted(2));
        live["metadata"]["labels"]["example.com/team"] = json!("a");
        live["spec"]["unhealthyPodEvictionPolicy"] = json!("IfHealthyBudget");
        live["status"] =
            json!({"currentHealthy": 3, "desiredHealthy": 2, "disruptionsAllowed": 1, "expectedPods": 3});
        assert_eq!(state_of(&live), BudgetState::Present { min_available: 2, right: true });
        assert_eq!(state(None, &wanted(2), "cluster-uid"), BudgetState::Absent);
        live["metadata"]["ownerReferences"][0]["uid"] = json!("a former cluster of this name");
        assert_eq!(state_of(&live), BudgetState::Foreign);
    }

    #[test]
    fn another_floor_alone_is_one_field_and_no_edit_of_the_rest() {
        let live = wanted(2);
        assert!(!is_edited(&live, &wanted(3)));
        assert_eq!(repair(&live, &wanted(3)), Some(json!({"spec": {"minAvailable": 3}})));
        assert_eq!(repair(&live, &wanted(2)), None);
    }

    // SD-04, SD-05
    #[test]
    fn every_edit_is_put_right_by_one_patch_and_none_follows() {
        let edits = [
            json!({"spec": {"minAvailable": null, "maxUnavailable": 1}}),
            json!({"spec": {"maxUnavailable": "30%"}}),
            json!({"spec": {"minAvailable": "50%"}}),
            json!({"spec": {"minAvailable": null}}),
            json!({"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}}),
            json!({"spec": {"selector": null}}),
            json!({"spec": {"selector": {"matchLabels": {"extra": "key"}}}}),
            json!({"spec": {"selector": {"matchLabels": {"etcd-operator.cozystack.io/role": null}}}}),
            json!({"spec": {"selector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}}),
            json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": null}}}),
        ];
        for edit in edits {
            let mut live = json!(wanted(2));
            patch::apply(&mut live, &edit);
            let seen = state_of(&live);
            assert!(matches!(seen, BudgetState::Present { right: false, .. }), "{edit}: {seen:?}");
            let read: PodDisruptionBudget = serde_json::from_value(live.clone()).unwrap();
            patch::apply(&mut live, &repair(&read, &wanted(2)).unwrap());
            assert_eq!(live["spec"], json!(wanted(2))["spec"], "{edit}");
            assert_eq!(state_of(&live), BudgetState::Present { min_available: 2, right: true }, "{edit}");
        }
    }
}
