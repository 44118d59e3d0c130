//! Manifests to begin with, written into `deploy/examples` by the binary `crdgen`. No I/O.

use k8s_openapi::api::core::v1::{
    Affinity, LocalObjectReference, PodAffinityTerm, PodAntiAffinity, ResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::{
    AutoCompactionMode, DefragRule, EtcdCluster, EtcdClusterSpec, EtcdDefrag, EtcdDefragSpec, EtcdOptions,
    EtcdSnapshot, EtcdSnapshotSpec, PvcSnapshotLocation, SnapshotLocation, labels,
};

/// The version that the tests run most.
const VERSION: &str = "3.6.16";

/// One file of `deploy/examples`.
#[derive(Clone, Debug, PartialEq)]
pub struct Example {
    /// Its file name.
    pub file: &'static str,
    /// What it shows, for the file's head.
    pub about: &'static str,
    /// The manifest.
    pub manifest: serde_json::Value,
}

/// All examples.
///
/// # Errors
/// If a manifest cannot be written as JSON, which the tests rule out.
pub fn all() -> Result<Vec<Example>, serde_json::Error> {
    Ok(vec![
        Example {
            file: "etcdcluster.yaml",
            about: "Three members on 1Gi volumes of the default StorageClass.",
            manifest: serde_json::to_value(cluster("example"))?,
        },
        Example {
            file: "etcdcluster-tuned.yaml",
            about: "Five members, one per node, with resources, a larger quota and compaction every hour.",
            manifest: serde_json::to_value(tuned_cluster("example-tuned"))?,
        },
        Example {
            file: "etcdsnapshot.yaml",
            about: "A snapshot of the cluster `example` into a volume. This build stores the object and says\n\
                    KindNotSupportedYet; it does not take the snapshot yet.",
            manifest: serde_json::to_value(snapshot("example"))?,
        },
        Example {
            file: "etcddefrag.yaml",
            about: "Defragment members of the cluster `example` that can give back 200Mi or more. This build\n\
                    stores the object and says KindNotSupportedYet; it does not defragment yet.",
            manifest: serde_json::to_value(defrag("example"))?,
        },
    ])
}

/// A three-member cluster with every default.
#[must_use]
pub fn cluster(name: &str) -> EtcdCluster {
    EtcdCluster::new(name, EtcdClusterSpec::new(VERSION))
}

fn tuned_cluster(name: &str) -> EtcdCluster {
    let quantity = |text: &str| Quantity(text.to_owned());
    let mut spec = EtcdClusterSpec::new(VERSION);
    spec.replicas = 5;
    spec.storage.size = quantity("10Gi");
    spec.resources = Some(ResourceRequirements {
        requests: Some([("cpu".to_owned(), quantity("500m")), ("memory".to_owned(), quantity("1Gi"))].into()),
        limits: Some([("memory".to_owned(), quantity("2Gi"))].into()),
        ..Default::default()
    });
    spec.options = Some(EtcdOptions {
        quota_backend_bytes: Some(8 << 30),
        auto_compaction_mode: Some(AutoCompactionMode::Periodic),
        auto_compaction_retention: Some("1h".to_owned()),
        ..Default::default()
    });
    spec.affinity = Some(Affinity {
        pod_anti_affinity: Some(PodAntiAffinity {
            required_during_scheduling_ignored_during_execution: Some(vec![PodAffinityTerm {
                label_selector: Some(LabelSelector {
                    match_labels: Some(labels::cluster_selector(name)),
                    ..Default::default()
                }),
                topology_key: "kubernetes.io/hostname".to_owned(),
                ..Default::default()
            }]),
            ..Default::default()
        }),
        ..Default::default()
    });
    EtcdCluster::new(name, spec)
}

fn snapshot(cluster: &str) -> EtcdSnapshot {
    EtcdSnapshot::new(
        &format!("{cluster}-1"),
        EtcdSnapshotSpec {
            cluster_ref: LocalObjectReference { name: cluster.to_owned() },
            destination: SnapshotLocation {
                s3: None,
                pvc: Some(PvcSnapshotLocation {
                    claim_name: "etcd-snapshots".to_owned(),
                    sub_path: Some(cluster.to_owned()),
                }),
            },
        },
    )
}

fn defrag(cluster: &str) -> EtcdDefrag {
    EtcdDefrag::new(
        &format!("{cluster}-1"),
        EtcdDefragSpec {
            cluster_ref: LocalObjectReference { name: cluster.to_owned() },
            rule: Some(DefragRule {
                free_space_above: Some(Quantity("200Mi".to_owned())),
                ..Default::default()
            }),
            ttl_seconds_after_finished: Some(3600),
        },
    )
}
