//! What a test can count on inside a testbed. Run under `testbed exec`; see the README.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::PathBuf;
use std::time::Duration;

use etcd_operator_testbed::image::Image;
use etcd_operator_testbed::layout::etcd_versions;
use etcd_operator_testbed::{Namespace, OperatorProcess, Partition, Testbed, eventually, object};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod};
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(60);

async fn create_pod(namespace: &Namespace, name: &str, spec: Value) {
    let pod = json!({"metadata": {"name": name}, "spec": spec});
    let pod = serde_json::from_value(pod).unwrap();
    namespace.api::<Pod>().create(&PostParams::default(), &pod).await.unwrap();
}

/// Waits until the Pod is ready and returns its address.
async fn ready(namespace: &Namespace, name: &str) -> String {
    object(namespace.api::<Pod>(), name, &format!("Pod {name} ready"), LIMIT, |pod: Option<&Pod>| {
        let status = pod.and_then(|p| p.status.as_ref()).ok_or("no status")?;
        let ready = status.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
        match &status.pod_ip {
            Some(address) if ready => Ok(address.clone()),
            _ => Err(serde_json::to_string(status).unwrap()),
        }
    })
    .await
    .unwrap()
}

async fn succeeded(namespace: &Namespace, name: &str) {
    object(namespace.api::<Pod>(), name, &format!("Pod {name} succeeded"), LIMIT, |pod: Option<&Pod>| {
        let status = pod.and_then(|p| p.status.as_ref()).ok_or("no status")?;
        match status.phase.as_deref() {
            Some("Succeeded") => Ok(()),
            _ => Err(serde_json::to_string(status).unwrap()),
        }
    })
    .await
    .unwrap();
}

fn etcd(version: &str) -> Value {
    json!({
        "securityContext": {"runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532, "runAsNonRoot": true,
            "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{
            "name": "etcd",
            "image": format!("quay.io/coreos/etcd:v{version}"),
            "command": ["etcd", "--data-dir=/var/lib/etcd/data", "--listen-client-urls=http://0.0.0.0:2379",
                "--advertise-client-urls=http://localhost:2379"],
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
            "readinessProbe": {"httpGet": {"path": "/health", "port": 2379}, "periodSeconds": 1},
            "volumeMounts": [{"name": "data", "mountPath": "/var/lib/etcd"}],
        }],
        "volumes": [{"name": "data", "emptyDir": {}}],
    })
}

#[tokio::test]
#[ignore = "runs inside the testbed"]
async fn a_pod_of_each_etcd_image_becomes_ready_and_reports_its_version() {
    let testbed = Testbed::current().await.unwrap();
    let namespace = Namespace::fresh(&testbed, "images").await.unwrap();
    for version in etcd_versions() {
        create_pod(&namespace, &format!("etcd-{}", version.replace('.', "-")), etcd(version)).await;
    }
    for version in etcd_versions() {
        let address = ready(&namespace, &format!("etcd-{}", version.replace('.', "-"))).await;
        let endpoint = format!("http://{address}:2379");
        let text =
            testbed.etcdctl(version, &[&endpoint], &["endpoint", "status", "-w", "json"]).await.unwrap();
        let status: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(status[0]["Status"]["version"], version, "{text}");
    }
    namespace.finish().await.unwrap();
}

#[tokio::test]
#[ignore = "runs inside the testbed"]
async fn a_volume_of_either_class_binds_and_is_writable_by_the_user_of_etcd() {
    let testbed = Testbed::current().await.unwrap();
    let namespace = Namespace::fresh(&testbed, "volumes").await.unwrap();
    let claims = namespace.api::<PersistentVolumeClaim>();
    for class in ["testbed-local", "testbed-net"] {
        let claim = json!({
            "metadata": {"name": class},
            "spec": {"storageClassName": class, "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}}},
        });
        claims.create(&PostParams::default(), &serde_json::from_value(claim).unwrap()).await.unwrap();
        let spec = json!({
            "restartPolicy": "Never",
            "securityContext": {"runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532},
            "containers": [{
                "name": "writer", "image": "busybox:1", "command": ["sh", "-c", "echo x >/data/x && cat /data/x"],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            }],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": class}}],
        });
        create_pod(&namespace, class, spec).await;
    }
    for class in ["testbed-local", "testbed-net"] {
        succeeded(&namespace, class).await;
    }
    namespace.finish().await.unwrap();
}

#[tokio::test]
#[ignore = "runs inside the testbed"]
async fn a_claim_of_the_net_class_grows_and_one_of_the_local_class_does_not() {
    let testbed = Testbed::current().await.unwrap();
    let namespace = Namespace::fresh(&testbed, "growth").await.unwrap();
    let claims = namespace.api::<PersistentVolumeClaim>();
    for (name, class) in [("data", "testbed-net"), ("fixed", "testbed-local")] {
        let claim = json!({
            "metadata": {"name": name},
            "spec": {"storageClassName": class, "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}}},
        });
        claims.create(&PostParams::default(), &serde_json::from_value(claim).unwrap()).await.unwrap();
    }
    let capacity = |claim: Option<&PersistentVolumeClaim>, wanted: &str| {
        let status = claim.and_then(|c| c.status.as_ref()).ok_or("no status")?;
        let size = status.capacity.as_ref().and_then(|c| c.get("storage")).map(|q| q.0.clone());
        if size.as_deref() == Some(wanted) { Ok(()) } else { Err(format!("capacity {size:?}")) }
    };
    object(claims.clone(), "data", "1Gi bound", LIMIT, |c: Option<&_>| capacity(c, "1Gi")).await.unwrap();
    let patch = Patch::Merge(json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}}));
    let refused = claims.patch("fixed", &PatchParams::default(), &patch).await.unwrap_err();
    assert!(matches!(&refused, kube::Error::Api(e) if e.code == 403 || e.code == 422), "{refused}");
    claims.patch("data", &PatchParams::default(), &patch).await.unwrap();
    object(claims, "data", "2Gi bound", LIMIT, |c: Option<&_>| capacity(c, "2Gi")).await.unwrap();
    namespace.finish().await.unwrap();
}

#[tokio::test]
#[ignore = "runs inside the testbed"]
async fn a_partitioned_pod_is_cut_off_from_pods_only_and_until_it_is_healed() {
    let testbed = Testbed::current().await.unwrap();
    let namespace = Namespace::fresh(&testbed, "partition").await.unwrap();
    let version = etcd_versions().last().unwrap();
    create_pod(&namespace, "server", etcd(version)).await;
    let address = ready(&namespace, "server").await;
    // Prints again and again whether a connection to the server is made.
    let ask = format!(
        "while :; do nc -w 1 {address} 2379 </dev/null >/dev/null 2>&1 && echo reached || echo lost; sleep 0.3; done"
    );
    let client = json!({
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "client", "image": "busybox:1", "command": ["sh", "-c", ask]}],
    });
    create_pod(&namespace, "client", client).await;
    let pods = namespace.api::<Pod>();
    let last = async |wanted: &str| {
        let said = pods.logs("client", &kube::api::LogParams::default()).await.map_err(|e| e.to_string())?;
        let tail: Vec<_> = said.lines().rev().take(2).collect();
        if tail.len() == 2 && tail.iter().all(|l| *l == wanted) { Ok(()) } else { Err(tail.join(", ")) }
    };
    eventually("the server reached", LIMIT, async || last("reached").await).await.unwrap();
    let partition = Partition::of(&address).unwrap();
    eventually("the server lost", LIMIT, async || last("lost").await).await.unwrap();
    let endpoint = format!("http://{address}:2379");
    testbed.etcdctl(version, &[&endpoint], &["get", "x"]).await.expect("the host still reaches it");
    partition.heal().unwrap();
    eventually("the server reached again", LIMIT, async || last("reached").await).await.unwrap();
    namespace.finish().await.unwrap();
}

#[tokio::test]
#[ignore = "runs inside the testbed"]
async fn requests_of_the_operator_are_counted_apart_from_those_of_the_test() {
    let testbed = Testbed::current().await.unwrap();
    let namespace = Namespace::fresh(&testbed, "audit").await.unwrap();
    let log = testbed.audit_log();
    let mark = log.mark().unwrap();
    let operator = testbed.operator_client().await.unwrap();
    let own = kube::Api::<ConfigMap>::namespaced(operator, namespace.name());
    for name in ["a", "b"] {
        let map = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        own.create(&PostParams::default(), &map).await.unwrap();
    }
    own.get("a").await.unwrap();
    namespace.api::<ConfigMap>().get("a").await.unwrap();
    let here = log.since(mark).unwrap().of_operator().filter(|r| r.namespace == namespace.name());
    let expected = [("create configmaps".to_owned(), 2), ("get configmaps".to_owned(), 1)];
    assert_eq!(here.counts(), expected.into());
    assert_eq!(here.writes(), 2);
    namespace.finish().await.unwrap();
}

#[tokio::test]
#[ignore = "runs inside the testbed"]
async fn an_image_made_here_runs_on_every_node() {
    let testbed = Testbed::current().await.unwrap();
    let namespace = Namespace::fresh(&testbed, "own-image").await.unwrap();
    let archive = std::env::temp_dir().join(format!("{}.tar", namespace.name()));
    Image::new("testbed-own-image:dev")
        .file("/bin/busybox", "/bin/busybox", 0o755)
        .entrypoint(["/bin/busybox", "true"])
        .user("65532:65532")
        .write(&archive)
        .unwrap();
    testbed.load_image(&archive).await.unwrap();
    std::fs::remove_file(archive).unwrap();
    for node in testbed.nodes() {
        let spec = json!({"nodeName": node.name(), "restartPolicy": "Never",
            "containers": [{"name": "own", "image": "testbed-own-image:dev"}]});
        create_pod(&namespace, &format!("own-{}", node.name()), spec).await;
    }
    for node in testbed.nodes() {
        succeeded(&namespace, &format!("own-{}", node.name())).await;
    }
    namespace.finish().await.unwrap();
}

#[tokio::test]
#[ignore = "runs inside the testbed"]
async fn an_operator_process_can_be_killed_and_started_again_with_one_log() {
    let testbed = Testbed::current().await.unwrap();
    let script =
        "echo life; test -r \"$KUBECONFIG\" || exit 9; trap 'exit 7' TERM; while :; do sleep 0.1; done";
    let mut operator = OperatorProcess::start(&testbed, "/bin/sh", &["-c", script], &[]).unwrap();
    let log = operator.log_path().to_owned();
    let lives = async |wanted: usize| {
        let seen = std::fs::read_to_string(&log).map_err(|e| e.to_string())?.lines().count();
        if seen == wanted { Ok(()) } else { Err(format!("{seen} lives")) }
    };
    eventually("one life", LIMIT, async || lives(1).await).await.unwrap();
    operator.kill().await.unwrap();
    operator.restart().await.unwrap();
    eventually("two lives", LIMIT, async || lives(2).await).await.unwrap();
    // The trap is set a moment after the line is written.
    let status = operator.stop().await.unwrap();
    assert!(matches!(status.code(), Some(7) | None), "{status}");
}

#[test]
#[ignore = "runs inside the testbed"]
fn a_test_that_fails_keeps_its_namespace_and_writes_down_what_it_held() {
    let (send, receive) = std::sync::mpsc::channel();
    let failing = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let testbed = Testbed::current().await.unwrap();
            let namespace = Namespace::fresh(&testbed, "failing").await.unwrap();
            let secret = json!({"metadata": {"name": "s"}, "stringData": {"password": "hunter2"}});
            let secret = serde_json::from_value(secret).unwrap();
            let secrets = namespace.api::<k8s_openapi::api::core::v1::Secret>();
            secrets.create(&PostParams::default(), &secret).await.unwrap();
            send.send(namespace.name().to_owned()).unwrap();
            panic!("as planned");
        });
    });
    assert!(failing.join().is_err());
    let name = receive.recv().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let testbed = Testbed::current().await.unwrap();
        let folder: PathBuf = testbed.keep(&name).unwrap();
        let secrets = std::fs::read_to_string(folder.join("secrets.yaml")).unwrap();
        assert!(
            secrets.contains("name: s") && !secrets.contains("hunter2") && !secrets.contains("aHVudGVyMg")
        );
        std::fs::remove_dir_all(folder).unwrap();
        let namespaces = kube::Api::<k8s_openapi::api::core::v1::Namespace>::all(testbed.client());
        namespaces.delete(&name, &kube::api::DeleteParams::default()).await.expect("it was kept");
    });
}
