//! EtcdClusters as the tests write them. No I/O.

use etcd_operator_api::{EtcdCluster, EtcdClusterSpec, labels};
use k8s_openapi::api::core::v1::{
    Affinity, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodAffinityTerm,
    PodAntiAffinity,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::VERSION;

/// A cluster with every default but for the number of replicas.
pub fn cluster(name: &str, replicas: i32) -> EtcdCluster {
    cluster_with(name, replicas, |_| {})
}

/// A cluster with a changed spec.
pub fn cluster_with(name: &str, replicas: i32, change: impl FnOnce(&mut EtcdClusterSpec)) -> EtcdCluster {
    let mut spec = EtcdClusterSpec::new(VERSION);
    spec.replicas = replicas;
    change(&mut spec);
    EtcdCluster::new(name, spec)
}

/// No two members of this cluster on one node.
pub fn one_on_a_node(cluster: &str) -> Affinity {
    let term = PodAffinityTerm {
        label_selector: Some(LabelSelector {
            match_labels: Some([(labels::CLUSTER.to_owned(), cluster.to_owned())].into()),
            ..Default::default()
        }),
        topology_key: "kubernetes.io/hostname".to_owned(),
        ..Default::default()
    };
    Affinity {
        pod_anti_affinity: Some(PodAntiAffinity {
            required_during_scheduling_ignored_during_execution: Some(vec![term]),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Only nodes on which this label has this value.
pub fn only_nodes_with(label: &str, value: &str) -> Affinity {
    let requirement = NodeSelectorRequirement {
        key: label.to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![value.to_owned()]),
    };
    let term = NodeSelectorTerm { match_expressions: Some(vec![requirement]), ..Default::default() };
    Affinity {
        node_affinity: Some(NodeAffinity {
            required_during_scheduling_ignored_during_execution: Some(NodeSelector {
                node_selector_terms: vec![term],
            }),
            ..Default::default()
        }),
        ..Default::default()
    }
}
