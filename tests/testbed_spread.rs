//! Where members run when nobody says so, and who leaves when they have to share: on three nodes in three zones.
//!
//! Run as `testbed exec -- cargo test --features failpoints --test testbed_spread`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends at its first surprise; clippy knows that only of the #[test] functions themselves"
)]

mod support;

use std::collections::BTreeSet;
use std::time::Duration;

use etcd_operator_api::{EtcdOptions, LogLevel, MetricsDetail, labels};
use k8s_openapi::api::core::v1::Toleration;
use kube::ResourceExt as _;
use support::converged::converged;
use support::writer::Writer;
use support::{Scene, spec, trace};

/// Two members more, one learner after the other, take half a minute when the testbed is shared.
const LIMIT: Duration = Duration::from_secs(180);

/// The nodes and the zones that the cluster's Pods run in, by the Pods' own words.
async fn places(scene: &Scene) -> (BTreeSet<String>, BTreeSet<String>) {
    let pods = scene.pods().await;
    let nodes = pods.iter().filter_map(|pod| pod.spec.as_ref()?.node_name.clone()).collect();
    let zones = pods.iter().filter_map(|pod| pod.labels().get(labels::ZONE).cloned()).collect();
    (nodes, zones)
}

// SD-06, MQ-09
#[tokio::test]
async fn three_members_have_a_node_and_a_zone_each_also_after_five_had_to_share() {
    let scene = Scene::new("spread").await;
    scene.cluster("db", 3).await;
    converged(&scene, "db", 3, LIMIT).await;
    let (nodes, zones) = places(&scene).await;
    assert_eq!((nodes.len(), zones.len()), (3, 3), "{nodes:?} {zones:?}");
    let writer = Writer::start(&scene, "db").await;
    scene.scale("db", 5).await;
    converged(&scene, "db", 5, LIMIT).await;
    scene.scale("db", 3).await;
    converged(&scene, "db", 3, LIMIT).await;
    let (nodes, zones) = places(&scene).await;
    assert_eq!((nodes.len(), zones.len()), (3, 3), "two that shared a node left: {nodes:?} {zones:?}");
    writer.finish(&scene).await;
    trace::check(&scene, &[]);
    scene.finish().await;
}

// LS-11
#[tokio::test]
async fn a_cluster_with_every_option_of_etcds_process_forms_and_serves() {
    let scene = Scene::new("options").await;
    let cluster = spec::cluster_with("db", 3, |spec| {
        spec.options = Some(EtcdOptions {
            heartbeat_interval_ms: Some(200),
            election_timeout_ms: Some(2_000),
            max_request_bytes: Some(16_384),
            max_txn_ops: Some(1),
            max_snapshots: Some(1),
            max_wals: Some(1),
            log_level: Some(LogLevel::Debug),
            metrics: Some(MetricsDetail::Extensive),
            ..Default::default()
        });
        spec.priority_class_name = Some("system-cluster-critical".to_owned());
        spec.tolerations = vec![Toleration { operator: Some("Exists".to_owned()), ..Default::default() }];
        spec.node_selector = [("kubernetes.io/os".to_owned(), "linux".to_owned())].into();
    });
    scene.create(&cluster).await;
    converged(&scene, "db", 3, LIMIT).await;
    for pod in scene.pods().await {
        let pod = pod.spec.unwrap();
        assert_eq!(pod.priority_class_name.as_deref(), Some("system-cluster-critical"));
        assert!(
            pod.tolerations
                .iter()
                .flatten()
                .any(|t| t.operator.as_deref() == Some("Exists") && t.key.is_none())
        );
        assert_eq!(pod.node_selector.unwrap()["kubernetes.io/os"], "linux");
    }
    scene.finish().await;
}
