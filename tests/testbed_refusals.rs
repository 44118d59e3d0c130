//! Specs that this build does not act on, objects that it cannot read, and kinds that it does not know how to do:
//! each says so, and nothing else suffers.
//!
//! Run as `testbed exec -- cargo test --features failpoints --test testbed_refusals`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends at its first surprise; clippy knows that only of the #[test] functions themselves"
)]

mod support;

use std::time::Duration;

use etcd_operator_api::{EtcdCluster, EtcdDefrag, EtcdSnapshot, conditions};
use etcd_operator_testbed::{eventually, object};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;
use kube::api::PostParams;
use serde_json::{Value, json};
use support::converged::{converged, words};
use support::{Scene, VERSION, broken};

const LIMIT: Duration = Duration::from_secs(120);
/// From an object's creation to the condition that refuses it: one pass of the operator.
const AT_ONCE: Duration = Duration::from_secs(10);

fn cluster(name: &str, spec: Value) -> EtcdCluster {
    let mut all = json!({"version": VERSION, "replicas": 1});
    for (key, value) in spec.as_object().unwrap() {
        all[key] = value.clone();
    }
    let object = json!({"apiVersion": "etcd-operator.cozystack.io/v1alpha2", "kind": "EtcdCluster",
        "metadata": {"name": name}, "spec": all});
    serde_json::from_value(object).unwrap()
}

/// Waits for a condition of the cluster with this reason whose message has these words.
async fn says(scene: &Scene, name: &str, kind: &str, reason: &str, text: &str) {
    let what = format!("{kind} of {name} says {reason}: {text}");
    object(scene.api::<EtcdCluster>(), name, &what, AT_ONCE, |cluster: Option<&EtcdCluster>| {
        let cluster = cluster.ok_or("it is gone")?;
        let status = cluster.status_or_default();
        let found = conditions::find(&status.conditions, kind);
        let right = found.is_some_and(|c| {
            c.reason == reason
                && c.message.contains(text)
                && c.observed_generation == cluster.metadata.generation
        });
        if right { Ok(()) } else { Err(words(cluster)) }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_spec_that_is_not_supported_yet_is_named_and_nothing_is_made_for_it() {
    let scene = Scene::new("refuse").await;
    let secret = json!({"name": "nobody-reads-this"});
    let tls = json!({"client": {"serverSecretRef": secret}});
    let source = json!({"pvc": {"claimName": "backup", "subPath": "a.db"}});
    let cases = [
        ("tls", "spec.tls", json!({"tls": tls})),
        (
            "auth",
            "spec.auth",
            json!({"tls": tls, "auth": {"enabled": true, "rootCredentialsSecretRef": secret}}),
        ),
        ("restore", "spec.bootstrap.restore", json!({"bootstrap": {"restore": {"source": source}}})),
    ];
    for (name, _, spec) in &cases {
        scene.create(&cluster(name, spec.clone())).await;
    }
    for (name, field, _) in &cases {
        for kind in [conditions::AVAILABLE, conditions::PROGRESSING, conditions::DEGRADED] {
            says(&scene, name, kind, "FieldNotSupportedYet", field).await;
        }
        let status = scene.get(name).await.status_or_default();
        assert!(!conditions::is_true(&status.conditions, conditions::AVAILABLE), "{name}");
        assert!(conditions::is_true(&status.conditions, conditions::DEGRADED), "{name}");
    }
    assert_eq!(scene.count().await, [0, 0, 0, 0], "members, Pods, PVCs, Services");
    scene.finish().await;
}

#[tokio::test]
async fn a_version_that_no_flag_table_knows_is_refused_until_it_is_corrected() {
    let scene = Scene::new("version").await;
    scene.create(&cluster("db", json!({"version": "9.9.9"}))).await;
    says(&scene, "db", conditions::AVAILABLE, "InvalidSpec", "9.9.9").await;
    assert_eq!(scene.count().await, [0, 0, 0, 0], "members, Pods, PVCs, Services");
    scene.edit("db", json!({"spec": {"version": VERSION}})).await;
    converged(&scene, "db", 1, LIMIT).await;
    scene.finish().await;
}

fn not_supported(what: &str, found: &[Condition]) -> Result<(), String> {
    let told = found.iter().any(|c| c.reason == "KindNotSupportedYet" && c.status == "False");
    if told { Ok(()) } else { Err(format!("{what}: {found:?}")) }
}

#[tokio::test]
async fn a_snapshot_and_a_defragmentation_say_that_this_build_does_not_do_them() {
    let scene = Scene::new("kinds").await;
    let meta = |kind: &str| json!({"apiVersion": "etcd-operator.cozystack.io/v1alpha2", "kind": kind, "metadata": {"name": "one"}});
    let mut snapshot = meta("EtcdSnapshot");
    snapshot["spec"] = json!({"clusterRef": {"name": "db"}, "destination": {"pvc": {"claimName": "backup"}}});
    let mut defrag = meta("EtcdDefrag");
    defrag["spec"] = json!({"clusterRef": {"name": "db"}, "rule": {"all": true}});
    let create = PostParams::default();
    scene.api::<EtcdSnapshot>().create(&create, &serde_json::from_value(snapshot).unwrap()).await.unwrap();
    scene.api::<EtcdDefrag>().create(&create, &serde_json::from_value(defrag).unwrap()).await.unwrap();
    object(
        scene.api::<EtcdSnapshot>(),
        "one",
        "the snapshot refused",
        AT_ONCE,
        |o: Option<&EtcdSnapshot>| {
            not_supported("EtcdSnapshot", &o.and_then(|o| o.status.clone()).unwrap_or_default().conditions)
        },
    )
    .await
    .unwrap();
    object(
        scene.api::<EtcdDefrag>(),
        "one",
        "the defragmentation refused",
        AT_ONCE,
        |o: Option<&EtcdDefrag>| {
            not_supported("EtcdDefrag", &o.and_then(|o| o.status.clone()).unwrap_or_default().conditions)
        },
    )
    .await
    .unwrap();
    scene.finish().await;
}

// VC-05: an object of an older CRD, with a field that is unknown today and one of another type.
#[tokio::test]
async fn an_object_that_cannot_be_read_stops_nobody_else_and_is_taken_up_once_it_is_corrected() {
    let mut scene = Scene::without_operator("broken").await;
    let good = ["a", "b", "c"];
    // A real object first, so that the broken one has all that the API server adds.
    let stored = scene.create(&cluster("bad", json!({}))).await;
    let mut stored = serde_json::to_value(&stored).unwrap();
    stored["spec"]["replicas"] = json!("one");
    stored["spec"]["podTemplate"] = json!({"labels": {"a": "b"}});
    broken::store(&scene, "etcdclusters", &stored).await;
    for name in good {
        scene.cluster(name, 1).await;
    }
    scene.start(&[]).await;
    for name in good {
        converged(&scene, name, 1, LIMIT).await;
    }
    eventually("a log line about the object that cannot be read", AT_ONCE, async || {
        let log = scene.operator_log();
        let found = log.lines().any(|l| l.contains("does not decode") && l.contains("\"bad\""));
        if found { Ok(()) } else { Err("none".to_owned()) }
    })
    .await
    .unwrap();
    assert_eq!(scene.count().await, [3, 3, 3, 6], "members, Pods, PVCs, Services");

    scene.edit("bad", json!({"spec": {"replicas": 1}})).await;
    let cluster = converged(&scene, "bad", 1, LIMIT).await;
    assert_eq!(cluster.uid(), stored["metadata"]["uid"].as_str().map(str::to_owned));
    scene.finish().await;
}
