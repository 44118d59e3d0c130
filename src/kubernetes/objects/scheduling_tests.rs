//! Where a member's Pod is wanted, by what the spec says of it.

use std::collections::BTreeMap;

use etcd_operator_api::{EtcdClusterSpec, ObservedClusterSpec};
use serde_json::{Value, json};

use super::*;

fn scheduled(spec: Value) -> Value {
    let mut all = json!({"version": "3.6.16"});
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let spec: EtcdClusterSpec = serde_json::from_value(all).unwrap();
    let target = ObservedClusterSpec::from(&spec);
    let member = EtcdMember::new("db-x7k2p", EtcdMemberSpec::from_target("db", "t", &target));
    let mut pod = serde_json::to_value(scheduling(&member)).unwrap();
    // The containers are not the scheduler's, and always written.
    pod.as_object_mut().unwrap().remove("containers");
    pod
}

fn siblings() -> Value {
    json!({"matchLabels": {"etcd-operator.cozystack.io/cluster": "db"}})
}

// SD-06
#[test]
fn without_a_word_of_the_user_members_prefer_nodes_and_zones_of_their_own() {
    let wanted = json!({
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
            "weight": 100,
            "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname", "labelSelector": siblings()}}]}},
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": siblings()}],
    });
    assert_eq!(scheduled(json!({})), wanted);
    assert_eq!(scheduled(json!({"topologySpreadConstraints": []})), wanted, "an empty list says nothing");
}

// SD-06
#[test]
fn a_users_affinity_or_spreading_replaces_both_of_ours() {
    let hard = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "rack"}]}});
    let spread = json!([{"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}]);
    for spec in [
        json!({"affinity": hard}),
        // The way to have none at all.
        json!({"affinity": {}}),
        json!({"affinity": {"nodeAffinity": {}}}),
        json!({"topologySpreadConstraints": spread}),
        json!({"affinity": hard, "topologySpreadConstraints": spread}),
    ] {
        assert_eq!(scheduled(spec.clone()), spec);
    }
}

// SD-06
#[test]
fn priority_tolerations_and_nodes_reach_the_pod_and_keep_the_spreading() {
    let plain = scheduled(json!({}));
    let spec = json!({
        "priorityClassName": "tenant-critical",
        "tolerations": [{"key": "etcd", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}],
        "nodeSelector": {"disk": "nvme"},
    });
    let mut pod = scheduled(spec.clone());
    for (key, value) in spec.as_object().unwrap() {
        assert_eq!(&pod[key], value);
        pod.as_object_mut().unwrap().remove(key);
    }
    assert_eq!(pod, plain);
    assert_eq!(scheduled(json!({"tolerations": [], "nodeSelector": {}})), plain);
}

// SD-07
#[test]
fn only_the_members_pods_are_kept_apart() {
    let member =
        EtcdMemberSpec::from_target("db", "t", &ObservedClusterSpec::from(&EtcdClusterSpec::new("3.6.16")));
    let selector = super::siblings(&member).unwrap().match_labels.unwrap();
    let matches = |labels: &BTreeMap<String, String>| selector.iter().all(|(k, v)| labels.get(k) == Some(v));
    assert!(matches(&labels::for_member("db", "db-x7k2p")));
    assert!(!matches(&labels::for_member("db2", "db2-x7k2p")), "another cluster's");
    // What a helper Job of this cluster may carry: everything but the label that selectors use.
    let mut helper = labels::for_cluster("db");
    helper.remove(labels::CLUSTER);
    assert!(!matches(&helper));
}
