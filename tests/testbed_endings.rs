//! Clusters that end: let go of with a word to nobody, whoever was away when it happened.
//!
//! Run as `testbed exec -- cargo test --features failpoints --test testbed_endings`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends at its first surprise; clippy knows that only of the #[test] functions themselves"
)]

mod support;

use std::time::Duration;

use etcd_operator_api::EtcdCluster;
use etcd_operator_testbed::{Namespace, eventually};
use k8s_openapi::api::core::v1::Namespace as KubeNamespace;
use kube::Api;
use kube::api::DeleteParams;
use support::converged::converged;
use support::{Scene, trace};

const LIMIT: Duration = Duration::from_secs(180);

// MQ-07's exception: the whole cluster goes, and nobody is left to be told.
#[tokio::test]
async fn a_cluster_deleted_while_no_operator_runs_is_let_go_by_the_next_one_without_a_word_to_etcd() {
    let mut scene = Scene::new("gone").await;
    scene.cluster("db", 3).await;
    converged(&scene, "db", 3, LIMIT).await;
    let before = trace::check(&scene, &[]);
    scene.stop().await;
    scene.api::<EtcdCluster>().delete("db", &DeleteParams::background()).await.unwrap();
    eventually("every EtcdMember is to go", LIMIT, async || {
        let members = scene.members().await;
        let going = members.iter().filter(|m| m.metadata.deletion_timestamp.is_some()).count();
        if going == 3 { Ok(()) } else { Err(format!("{going} of {}", members.len())) }
    })
    .await
    .unwrap();
    scene.start(&[]).await;
    eventually("nothing left of the cluster", LIMIT, async || {
        let count = scene.count().await;
        if count == [0, 0, 0, 0] { Ok(()) } else { Err(format!("{count:?}")) }
    })
    .await
    .unwrap();
    assert_eq!(trace::check(&scene, &[]), before, "the membership was changed for a cluster that is gone");
    scene.finish().await;
}

#[tokio::test]
async fn a_namespace_deleted_with_a_cluster_in_it_ends_and_nothing_is_made_in_it_again_and_again() {
    let mut scene = Scene::without_operator("end").await;
    // The Lease outlives the namespace, as that of an operator for many namespaces does.
    let elsewhere = Namespace::fresh(&scene.testbed, "lease").await.unwrap();
    scene.lease_in(&elsewhere);
    scene.expect_refusals();
    scene.start(&[]).await;
    scene.cluster("db", 3).await;
    converged(&scene, "db", 3, LIMIT).await;
    let namespaces = Api::<KubeNamespace>::all(scene.testbed.client());
    let name = scene.namespace.name().to_owned();
    namespaces.delete(&name, &DeleteParams::default()).await.unwrap();
    eventually("the namespace gone", LIMIT, async || {
        match namespaces.get_opt(&name).await.map_err(|e| e.to_string())? {
            None => Ok(()),
            Some(namespace) => {
                let conditions = namespace.status.and_then(|s| s.conditions).unwrap_or_default();
                let held = conditions.into_iter().filter(|c| c.status == "True");
                Err(held.filter_map(|c| c.message).collect::<Vec<_>>().join("; "))
            }
        }
    })
    .await
    .unwrap();
    // Pods and Services may go before the EtcdCluster does. Each of the three members and the supervisor tries again
    // after pauses that double from 0.25 s to 60 s: nine times in two minutes.
    let refused = scene.requests().filter(|r| r.code == 403 && r.resource != "events");
    assert!(refused.total() <= 4 * 9, "refused in a namespace that ends: {:?}", refused.counts());
    scene.finish().await;
    elsewhere.finish().await.unwrap();
}
