//! The operator as users run it: the image, the CRDs and the manifests of `deploy/`, with the rights that they grant and
//! no others.
//!
//! Run `make image`, then `testbed exec -- cargo test --features failpoints --test testbed_deploy`. This operator watches
//! all namespaces, so this file has one test, and no other may run beside it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends at its first surprise; clippy knows that only of the #[test] functions themselves"
)]

mod support;

use std::path::Path;
use std::time::Duration;

use etcd_operator_api::EtcdCluster;
use etcd_operator_testbed::{eventually, object};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{DeleteParams, ListParams, LogParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use support::converged::converged;
use support::{Scene, spec};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const LIMIT: Duration = Duration::from_secs(180);
const HOME: &str = "etcd-operator-system";
const USER: &str = "system:serviceaccount:etcd-operator-system:etcd-operator";

/// GET over plain HTTP: the status line and the body.
async fn get(address: &str, path: &str) -> Result<(String, String), String> {
    let request = format!("GET {path} HTTP/1.0\r\nHost: operator\r\n\r\n");
    let answer = async {
        let mut stream = tokio::net::TcpStream::connect(address).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok::<_, std::io::Error>(text)
    };
    let text = answer.await.map_err(|e| e.to_string())?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(|| format!("no answer: {text:?}"))?;
    Ok((head.lines().next().unwrap_or_default().to_owned(), body.to_owned()))
}

/// Everything of `deploy/` is gone afterwards, and nothing else.
async fn uninstall(scene: &Scene) {
    let client = scene.testbed.client();
    let default = DeleteParams::default();
    Api::<Namespace>::all(client.clone()).delete(HOME, &default).await.unwrap();
    Api::<ClusterRoleBinding>::all(client.clone()).delete("etcd-operator", &default).await.unwrap();
    Api::<ClusterRole>::all(client.clone()).delete("etcd-operator", &default).await.unwrap();
    eventually("the operator's namespace gone", LIMIT, async || {
        let found = Api::<Namespace>::all(client.clone()).get_opt(HOME).await.map_err(|e| e.to_string())?;
        if found.is_none() { Ok(()) } else { Err("it is there".to_owned()) }
    })
    .await
    .unwrap();
}

/// Every line is JSON with time, level and target, and a line about a cluster says which, as one about a member does.
fn every_line_says_whom_it_concerns(log: &str, members: &[String]) {
    let mut about_members = 0;
    for line in log.lines() {
        let value: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        for key in ["timestamp", "level", "target"] {
            assert!(value[key].is_string(), "no {key}: {line}");
        }
        let field = |key: &str| [&value[key], &value["span"][key]].into_iter().find_map(Value::as_str);
        if members.iter().any(|member| line.contains(member.as_str())) {
            about_members += 1;
            assert_eq!(field("cluster"), Some("db"), "{line}");
            assert!(field("namespace").is_some(), "{line}");
        }
        if value["target"] == "etcd_operator_actors::member" {
            assert!(field("member").is_some(), "{line}");
        }
    }
    assert!(about_members > 0, "no line is about a member");
}

// RB-01, RB-04
#[tokio::test]
async fn the_shipped_manifests_run_an_operator_that_is_allowed_all_that_it_does() {
    let scene = Scene::without_operator("deploy").await;
    let client = scene.testbed.client();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let image = root.join("target/image/etcd-operator.tar");
    assert!(image.is_file(), "{} is not there: run `make image`", image.display());
    scene.testbed.load_image(&image).await.unwrap();
    let mark = scene.testbed.audit_log().mark().unwrap();
    let manifest = std::fs::read_to_string(root.join("deploy/kustomize/base/operator.yaml")).unwrap();
    scene.testbed.apply(&manifest).await.unwrap();
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), HOME);
    object(deployments, "etcd-operator", "the Deployment available", LIMIT, |found: Option<&Deployment>| {
        let status = found.and_then(|d| d.status.clone()).unwrap_or_default();
        if status.available_replicas == Some(1) { Ok(()) } else { Err(format!("{status:?}")) }
    })
    .await
    .unwrap();
    let pods: Api<Pod> = Api::namespaced(client.clone(), HOME);
    let pod = pods.list(&ListParams::default()).await.unwrap().items.remove(0);
    let address = pod.status.as_ref().and_then(|s| s.pod_ip.clone()).unwrap();
    for path in ["/healthz", "/readyz"] {
        let (status, body) = get(&format!("{address}:8081"), path).await.unwrap();
        assert!(status.contains(" 200 "), "{path}: {status} {body}");
    }

    // Members' Pods pass the strictest standard too.
    let strict = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.patch(scene.namespace.name(), &PatchParams::default(), &Patch::Merge(strict)).await.unwrap();
    scene.create(&spec::cluster("db", 3)).await;
    converged(&scene, "db", 3, LIMIT).await;
    let members: Vec<_> = scene.members().await.iter().map(ResourceExt::name_any).collect();
    // Departure, repair and an event for each: the rest of what the role is for.
    let services: Api<k8s_openapi::api::core::v1::Service> = scene.api();
    let wrong = Patch::Merge(json!({"spec": {"selector": {"app": "mine"}}}));
    services.patch("db-client", &PatchParams::default(), &wrong).await.unwrap();
    scene.scale("db", 2).await;
    converged(&scene, "db", 2, LIMIT).await;

    let (status, metrics) = get(&format!("{address}:8080"), "/metrics").await.unwrap();
    assert!(status.contains(" 200 ") && metrics.contains("etcd_operator_"), "{status} {metrics}");
    let log = pods.logs(&pod.name_any(), &LogParams::default()).await.unwrap();
    every_line_says_whom_it_concerns(&log, &members);
    let requests = scene.testbed.audit_log().since(mark).unwrap().of_user(USER);
    assert!(requests.writes() > 0, "this is not the user: {:?}", requests.counts());
    let forbidden = requests.filter(|r| r.code == 403);
    assert_eq!(forbidden.total(), 0, "forbidden: {:?}", forbidden.counts());

    // Without the operator the cluster goes on, and an operator that comes back restarts nothing.
    let uids = async || scene.pods().await.iter().map(ResourceExt::uid).collect::<Vec<_>>();
    let before = uids().await;
    uninstall(&scene).await;
    assert_eq!(before, uids().await, "Pods went with the operator");
    scene.testbed.apply(&manifest).await.unwrap();
    scene.scale("db", 3).await;
    converged(&scene, "db", 3, LIMIT).await;
    let now = uids().await;
    assert!(before.iter().all(|uid| now.contains(uid)), "Pods were restarted");

    scene.api::<EtcdCluster>().delete("db", &DeleteParams::default()).await.unwrap();
    eventually("nothing left of the cluster", LIMIT, async || {
        let count = scene.count().await;
        if count == [0, 0, 0, 0] { Ok(()) } else { Err(format!("{count:?}")) }
    })
    .await
    .unwrap();
    uninstall(&scene).await;
    scene.finish().await;
}
