//! Nodes that are lost and come back, with members on them. They take every other Pod along, so these tests are a suite
//! of their own, and one runs at a time.
//!
//! Run as `testbed exec -- cargo test --features failpoints --test testbed_nodes`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends at its first surprise; clippy knows that only of the #[test] functions themselves"
)]

mod support;

use std::time::Duration;

use etcd_operator_api::conditions;
use etcd_operator_testbed::{Node, Testbed, eventually, object};
use k8s_openapi::api::core::v1::{Node as KubeNode, Pod};
use kube::{Api, api::DeleteParams};
use support::converged::{NOTICED, converged, says, says_within};
use support::history::History;
use support::identity::identities;
use support::writer::Writer;
use support::{Scene, etcd, spec, trace};
use tokio::sync::Mutex;

const LIMIT: Duration = Duration::from_secs(180);

/// From the end of a Node object to the end of the Pods bound to it: Kubernetes' Pod collector looks every 20 s, leaves a
/// Node that it misses 40 s to come back, and deletes the Pods at the look after that.
const COLLECTED: Duration = Duration::from_secs(80);

static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// Nodes that are down. Starts them when it is dropped, so that a test that fails leaves the others a testbed.
struct Down(Vec<Node>);

impl Down {
    async fn all(nodes: Vec<Node>) -> Self {
        let down = Self(nodes);
        futures::future::try_join_all(down.0.iter().map(Node::kill)).await.unwrap();
        down
    }

    async fn start(mut self) {
        let nodes = std::mem::take(&mut self.0);
        futures::future::try_join_all(nodes.iter().map(Node::start)).await.unwrap();
    }
}

impl Drop for Down {
    fn drop(&mut self) {
        let nodes = std::mem::take(&mut self.0);
        // This runtime is blocked by us, so another one does it.
        let work = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(futures::future::join_all(nodes.iter().map(Node::start)))
        });
        // The test has failed already if there was anything to do.
        let _ = work.join();
    }
}

/// Waits until every node is ready.
async fn all_ready(testbed: &Testbed) {
    for node in testbed.nodes() {
        let api = Api::<KubeNode>::all(testbed.client());
        object(api, &node.name(), "the node is ready", LIMIT, |node: Option<&KubeNode>| {
            let conditions =
                node.and_then(|n| n.status.as_ref()?.conditions.as_ref()).ok_or("no conditions")?;
            let ready = conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True");
            if ready { Ok(()) } else { Err(format!("{conditions:?}")) }
        })
        .await
        .unwrap();
    }
}

/// A cluster of three, one on each node.
async fn three_on_three_nodes(scene: &Scene) {
    let apart = spec::one_on_a_node("db");
    scene.create(&spec::cluster_with("db", 3, |spec| spec.affinity = Some(apart))).await;
    converged(scene, "db", 3, LIMIT).await;
}

async fn node_of(scene: &Scene, member: &str) -> Node {
    scene.testbed.node_of(&scene.api::<Pod>().get(member).await.unwrap()).unwrap()
}

async fn writes_go_on(writer: &Writer) {
    let before = writer.count();
    eventually("more writes", LIMIT, async || {
        let now = writer.count();
        if now > before { Ok(()) } else { Err(format!("{now}")) }
    })
    .await
    .unwrap();
}

// LS-10, MQ-08, MQ-09: the leader's node, for longer than Kubernetes waits before it evicts.
#[tokio::test]
async fn a_lost_node_costs_the_cluster_one_member_until_it_is_back_and_a_reboot_less_than_that() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let scene = Scene::new("node").await;
    three_on_three_nodes(&scene).await;
    let before = identities(&scene).await;
    let pods = History::<Pod>::start(scene.api()).await;
    let writer = Writer::start(&scene, "db").await;
    let (leader, _) = etcd::leader(&scene, "db").await.unwrap();
    let down = Down::all(vec![node_of(&scene, &leader).await]).await;
    says(&scene, "db", [conditions::DEGRADED, "True", "MembersUnhealthy", &leader]).await;
    says(&scene, "db", [conditions::AVAILABLE, "True", "QuorumAvailable", "2 of 3"]).await;
    object(scene.api::<Pod>(), &leader, "the Pod is to be evicted", LIMIT, |pod: Option<&Pod>| {
        let pod = pod.ok_or("it is gone")?;
        pod.metadata.deletion_timestamp.as_ref().map(drop).ok_or_else(|| "it stays".to_owned())
    })
    .await
    .unwrap();
    // The status was true all the time, and is about the member still.
    says(&scene, "db", [conditions::DEGRADED, "True", "MembersUnhealthy", &leader]).await;
    writes_go_on(&writer).await;
    assert_eq!(identities(&scene).await, before, "nobody was replaced for it");
    assert_eq!(pods.objects(), 3, "no second Pod while the first may run");
    down.start().await;
    all_ready(&scene.testbed).await;
    converged(&scene, "db", 3, LIMIT).await;
    assert_eq!(identities(&scene).await, before, "back on its volume");

    let (other, _) = etcd::leader(&scene, "db").await.unwrap();
    Down::all(vec![node_of(&scene, &other).await]).await.start().await;
    eventually("the container started again", LIMIT, async || {
        let status = scene.api::<Pod>().get(&other).await.map_err(|e| e.to_string())?.status;
        let container = status.and_then(|s| s.container_statuses?.pop()).ok_or("no container")?;
        if container.restart_count > 0 && container.ready { Ok(()) } else { Err(format!("{container:?}")) }
    })
    .await
    .unwrap();
    converged(&scene, "db", 3, LIMIT).await;
    assert_eq!(identities(&scene).await, before, "back on its volume");
    writer.finish(&scene).await;
    let counts = trace::check(&scene, &[]);
    assert_eq!((counts["member-add"], counts.get("member-remove")), (2, None), "{counts:?}");
    scene.finish().await;
}

// MQ-10, MT-02: nobody runs and nobody can report it.
#[tokio::test]
async fn a_cluster_that_lost_every_node_says_so_and_comes_back_with_them() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let scene = Scene::new("dark").await;
    three_on_three_nodes(&scene).await;
    let before = identities(&scene).await;
    let id = scene.get("db").await.status_or_default().cluster_id;
    let writer = Writer::start(&scene, "db").await;
    let down = Down::all(scene.testbed.nodes()).await;
    says(&scene, "db", [conditions::AVAILABLE, "False", "ClusterUnreachable", ""]).await;
    says(&scene, "db", [conditions::DEGRADED, "True", "QuorumLost", ""]).await;
    assert_eq!(scene.get("db").await.status_or_default().ready_members, 0);
    assert_eq!(identities(&scene).await, before, "nobody was replaced for it");
    assert_eq!(scene.count().await, [3, 3, 3, 2], "members, Pods, PVCs, Services");
    down.start().await;
    all_ready(&scene.testbed).await;
    converged(&scene, "db", 3, LIMIT).await;
    assert_eq!(scene.get("db").await.status_or_default().cluster_id, id);
    assert_eq!(identities(&scene).await, before, "back on their volumes");
    writer.finish(&scene).await;
    let counts = trace::check(&scene, &[]);
    assert_eq!((counts["member-add"], counts.get("member-remove")), (2, None), "{counts:?}");
    scene.finish().await;
}

// LS-10: for whoever has said for how long a node may be gone. Its volume is on that node and on no other.
#[tokio::test]
async fn a_member_whose_node_is_gone_for_good_is_replaced_after_the_time_that_was_set() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let mut scene = Scene::without_operator("gone").await;
    scene.start(&[("ETCD_OPERATOR_REPLACE_LOST_NODE_AFTER", "60s")]).await;
    scene.cluster("db", 3).await;
    converged(&scene, "db", 3, LIMIT).await;
    let writer = Writer::start(&scene, "db").await;
    let victim = scene.pods().await.remove(0).metadata.name.unwrap();
    let node = node_of(&scene, &victim).await;
    let name = node.name();
    let down = Down::all(vec![node]).await;
    Api::<KubeNode>::all(scene.testbed.client()).delete(&name, &DeleteParams::default()).await.unwrap();
    let told = [conditions::DEGRADED, "True", "PodUnschedulable", "node affinity"];
    says_within(&scene, "db", told, COLLECTED + NOTICED).await;
    eventually("it is replaced", LIMIT, async || {
        let names: Vec<_> = scene.members().await.into_iter().filter_map(|m| m.metadata.name).collect();
        if names.contains(&victim) || names.len() < 3 { Err(format!("{names:?}")) } else { Ok(()) }
    })
    .await
    .unwrap();
    converged(&scene, "db", 3, LIMIT).await;
    writes_go_on(&writer).await;
    writer.finish(&scene).await;
    let counts = trace::check(&scene, &[]);
    assert_eq!((counts["member-add"], counts["member-remove"]), (3, 1), "{counts:?}");
    down.start().await;
    all_ready(&scene.testbed).await;
    scene.finish().await;
}
