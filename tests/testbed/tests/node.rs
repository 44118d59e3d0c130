//! Losing a node and getting it back. Apart from the other tests, whose Pods it would take along.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use etcd_operator_testbed::{Testbed, object};
use k8s_openapi::api::core::v1::Node;
use kube::Api;

async fn wait_for_ready(testbed: &Testbed, name: &str, wanted: bool) {
    let what = format!("{name} ready: {wanted}");
    object(
        Api::<Node>::all(testbed.client()),
        name,
        &what,
        Duration::from_secs(60),
        |node: Option<&Node>| {
            let conditions =
                node.and_then(|n| n.status.as_ref()?.conditions.as_ref()).ok_or("no conditions")?;
            let ready = conditions.iter().find(|c| c.type_ == "Ready").ok_or("no condition Ready")?;
            if (ready.status == "True") == wanted { Ok(()) } else { Err(format!("{ready:?}")) }
        },
    )
    .await
    .unwrap();
}

#[tokio::test]
#[ignore = "runs inside the testbed"]
async fn a_killed_node_is_lost_and_comes_back() {
    let testbed = Testbed::current().await.unwrap();
    let node = testbed.nodes().pop().unwrap();
    let name = node.name();
    let pod = serde_json::json!({
        "metadata": {"name": "lost-and-found"},
        "spec": {"nodeName": name, "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "sleep", "image": "busybox:1", "command": ["sleep", "3600"]}]},
    });
    let pods = Api::<k8s_openapi::api::core::v1::Pod>::namespaced(testbed.client(), "default");
    pods.create(&kube::api::PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let restarts = |wanted: i32| {
        object(pods.clone(), "lost-and-found", "the container runs", Duration::from_secs(60), move |pod| {
            let status =
                pod.and_then(|p: &k8s_openapi::api::core::v1::Pod| p.status.as_ref()).ok_or("no status")?;
            let container = status.container_statuses.iter().flatten().next().ok_or("no container")?;
            let runs = container.state.as_ref().is_some_and(|s| s.running.is_some());
            if runs && container.restart_count == wanted { Ok(()) } else { Err(format!("{container:?}")) }
        })
    };
    restarts(0).await.unwrap();
    node.kill().await.unwrap();
    wait_for_ready(&testbed, &name, false).await;
    node.start().await.unwrap();
    wait_for_ready(&testbed, &name, true).await;
    restarts(1).await.unwrap();
    pods.delete("lost-and-found", &kube::api::DeleteParams::default()).await.unwrap();
}
