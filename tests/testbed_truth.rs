//! What the status says while the operator itself cannot do what it wants.
//!
//! Run as `testbed exec -- cargo test --features failpoints --test testbed_truth`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends at its first surprise; clippy knows that only of the #[test] functions themselves"
)]

mod support;

use std::time::Duration;

use etcd_operator_api::{EtcdCluster, conditions, labels};
use etcd_operator_testbed::eventually;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};
use support::converged::{converged, says};
use support::identity::identities;
use support::writer::Writer;
use support::{QUOTA, Scene, quota, spec, trace};

const LIMIT: Duration = Duration::from_secs(180);

// MQ-10, MT-02, AP-05: no member runs, none is let in again, and the neighbour is in trouble of its own.
#[tokio::test]
async fn a_cluster_of_which_nobody_runs_says_so_while_its_pods_are_refused() {
    let mut scene = Scene::new("truth").await;
    scene.expect_refusals();
    scene.cluster("db", 3).await;
    converged(&scene, "db", 3, LIMIT).await;
    let writer = Writer::start(&scene, "db").await;
    scene.create(&spec::cluster_with("other", 1, |spec| spec.version = "3.6.96".to_owned())).await;
    says(&scene, "other", [conditions::DEGRADED, "True", "ImagePullFailed", "other-"]).await;

    let quotas = quota(&scene, 1).await;
    let before = identities(&scene).await;
    let ours = ListParams::default().labels(&format!("{}=db", labels::CLUSTER));
    scene.api::<Pod>().delete_collection(&DeleteParams::default(), &ours).await.unwrap();
    says(&scene, "db", [conditions::AVAILABLE, "False", "ClusterUnreachable", ""]).await;
    says(&scene, "db", [conditions::DEGRADED, "True", "ObjectRefused", "exceeded quota"]).await;
    says(&scene, "db", [conditions::AVAILABLE, "False", "ClusterUnreachable", ""]).await;
    says(&scene, "other", [conditions::DEGRADED, "True", "ImagePullFailed", "other-"]).await;
    let status = scene.get("db").await.status_or_default();
    assert_eq!((status.ready_members, status.broken_members), (0, 3));
    assert_eq!(identities(&scene).await, before, "nobody was replaced for it");

    quotas.delete(QUOTA, &DeleteParams::default()).await.unwrap();
    scene.api::<EtcdCluster>().delete("other", &DeleteParams::background()).await.unwrap();
    converged(&scene, "db", 3, LIMIT).await;
    let now = identities(&scene).await;
    assert!(now.iter().all(|(name, who)| before.get(name) == Some(who)), "{before:?}, then {now:?}");
    writer.finish(&scene).await;
    let counts = trace::check(&scene, &[]);
    assert_eq!((counts["member-add"], counts.get("member-remove")), (2, None), "{counts:?}");
    scene.finish().await;
}

/// Lets no Pod be made in the namespace any more, and returns when the API server acts on it.
async fn forbid_pods(scene: &Scene, message: &str) {
    let name = scene.namespace.name();
    let policy: Value = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
                "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                    "resources": ["pods"]}],
            },
            "validations": [{"expression": "false", "message": message}],
        },
    });
    let binding: Value = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    });
    scene.testbed.apply(&policy.to_string()).await.unwrap();
    scene.testbed.apply(&binding.to_string()).await.unwrap();
    let pod =
        json!({"metadata": {"name": "probe"}, "spec": {"containers": [{"name": "c", "image": "busybox:1"}]}});
    let pod: Pod = serde_json::from_value(pod).unwrap();
    let only_ask = PostParams { dry_run: true, ..PostParams::default() };
    eventually("the policy is in force", LIMIT, async || {
        match scene.api::<Pod>().create(&only_ask, &pod).await {
            Err(kube::Error::Api(status)) if status.message.contains(message) => Ok(()),
            other => Err(format!("{:?}", other.map(drop))),
        }
    })
    .await
    .unwrap();
}

async fn allow_pods(scene: &Scene) {
    let (client, name) = (scene.testbed.client(), scene.namespace.name());
    let default = DeleteParams::default();
    let bindings = Api::<ValidatingAdmissionPolicyBinding>::all(client.clone());
    bindings.delete(name, &default).await.unwrap();
    Api::<ValidatingAdmissionPolicy>::all(client).delete(name, &default).await.unwrap();
}

// MT-02: the person who has to act reads the policy's own words.
#[tokio::test]
async fn a_pod_that_a_policy_refuses_is_told_in_its_words_and_made_as_soon_as_it_may() {
    let mut scene = Scene::new("policy").await;
    scene.expect_refusals();
    scene.cluster("db", 1).await;
    converged(&scene, "db", 1, LIMIT).await;
    let writer = Writer::start(&scene, "db").await;
    forbid_pods(&scene, "no more Pods today").await;
    scene.scale("db", 2).await;
    says(&scene, "db", [conditions::DEGRADED, "True", "ObjectRefused", "no more Pods today"]).await;
    says(&scene, "db", [conditions::AVAILABLE, "True", "QuorumAvailable", "1 of 2"]).await;
    allow_pods(&scene).await;
    converged(&scene, "db", 2, LIMIT).await;
    writer.finish(&scene).await;
    let counts = trace::check(&scene, &[]);
    assert_eq!((counts["member-add"], counts["member-promote"]), (1, 1), "{counts:?}");
    scene.finish().await;
}
