//! Evictions and drains, with the real disruption controller and the real kubectl. A drain empties a whole node, so
//! these tests are a suite of their own, and one runs at a time.
//!
//! Run as `testbed exec -- cargo test --features failpoints --test testbed_drain`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends at its first surprise; clippy knows that only of the #[test] functions themselves"
)]

mod support;

use std::process::Stdio;
use std::time::Duration;

use etcd_operator_api::{EtcdMember, conditions, labels};
use etcd_operator_testbed::{Node, eventually, object};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt as _;
use kube::api::{EvictParams, Patch, PatchParams};
use serde_json::json;
use support::converged::{converged, says};
use support::history::History;
use support::identity::{identities, pod};
use support::writer::Writer;
use support::{Scene, spec, trace};
use tokio::sync::Mutex;

const LIMIT: Duration = Duration::from_secs(180);

/// A leader that is evicted ends within its grace period, and the next one is elected within seconds.
const LONGEST_GAP: Duration = Duration::from_secs(15);

static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// A node that takes no Pods. It does again when this is dropped, so that a test that fails leaves the others a testbed.
struct Drained(String);

impl Drop for Drained {
    fn drop(&mut self) {
        // The test has failed already if there was anything to do.
        let _ =
            std::process::Command::new("kubectl").args(["uncordon", &self.0]).stdout(Stdio::null()).status();
    }
}

/// Drains a node as a person does, and fails if that does not end.
async fn drain(node: &Node) -> Drained {
    let drained = Drained(node.name());
    let limit = format!("--timeout={}s", LIMIT.as_secs());
    let out = tokio::process::Command::new("kubectl")
        .args(["drain", &drained.0, "--ignore-daemonsets", "--delete-emptydir-data", "--force", &limit])
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap();
    assert!(
        out.status.success(),
        "{} {}",
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
    drained
}

/// Tries to evict a Pod, once, and returns the code of the answer.
async fn evict(scene: &Scene, name: &str) -> u16 {
    match scene.api::<Pod>().evict(name, &EvictParams::default()).await {
        Ok(_) => 201,
        Err(kube::Error::Api(status)) => status.code,
        Err(error) => panic!("{error}"),
    }
}

/// Waits until the disruption controller has counted `expected` Pods and lets `allowed` go.
async fn counted(scene: &Scene, floor: i32, expected: i32, allowed: i32) {
    let what = format!("{expected} Pods counted, {floor} kept, {allowed} allowed");
    object(scene.api::<PodDisruptionBudget>(), "db", &what, LIMIT, |budget: Option<&PodDisruptionBudget>| {
        let budget = budget.ok_or("there is no budget")?;
        let kept = budget.spec.as_ref().and_then(|s| s.min_available.clone());
        let status = budget.status.clone().unwrap_or_default();
        let condition = status.conditions.iter().flatten().find(|c| c.type_ == "DisruptionAllowed");
        let right = kept == Some(IntOrString::Int(floor))
            && (status.expected_pods, status.current_healthy) == (expected, expected)
            && (status.desired_healthy, status.disruptions_allowed) == (floor, allowed)
            && condition.is_some_and(|c| c.reason != "SyncFailed" && (c.status == "True") == (allowed > 0));
        if right { Ok(()) } else { Err(format!("{kept:?} {status:?}")) }
    })
    .await
    .unwrap();
}

// SD-02, SD-04
#[tokio::test]
async fn the_disruption_controller_counts_three_voters_and_lets_one_go_also_after_an_edit() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let scene = Scene::new("budget").await;
    scene.cluster("db", 3).await;
    converged(&scene, "db", 3, LIMIT).await;
    counted(&scene, 2, 3, 1).await;
    says(&scene, "db", [conditions::DISRUPTIONS_ALLOWED, "True", "BudgetLeavesQuorum", ""]).await;
    let edit = json!({"spec": {"minAvailable": null, "maxUnavailable": 3, "unhealthyPodEvictionPolicy": "AlwaysAllow"}});
    let budgets = scene.api::<PodDisruptionBudget>();
    budgets.patch("db", &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
    counted(&scene, 2, 3, 1).await;
    let spec = budgets.get("db").await.unwrap().spec.unwrap();
    assert_eq!((spec.max_unavailable, spec.unhealthy_pod_eviction_policy), (None, None));
    scene.finish().await;
}

// SD-02
#[tokio::test]
async fn every_node_in_turn_is_drained_while_a_client_writes() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let scene = Scene::new("drain").await;
    let apart = spec::one_on_a_node("db");
    scene.create(&spec::cluster_with("db", 3, |spec| spec.affinity = Some(apart))).await;
    converged(&scene, "db", 3, LIMIT).await;
    let before = identities(&scene).await;
    let writer = Writer::start(&scene, "db").await;
    for node in scene.testbed.nodes() {
        let there = scene.pods().await;
        let on_it = |p: &&Pod| p.spec.as_ref().and_then(|s| s.node_name.as_deref()) == Some(&*node.name());
        let evicted = there.iter().find(on_it).expect("one on each node");
        // The last one may still be on its way back: the budget makes this drain wait for it.
        let drained = drain(&node).await;
        assert_ne!(pod(&scene, &evicted.name_any()).await, evicted.uid(), "its Pod was not evicted");
        drop(drained);
        eventually("it has a node again", LIMIT, async || {
            let pod = scene.api::<Pod>().get(&evicted.name_any()).await.map_err(|e| e.to_string())?;
            pod.spec.and_then(|s| s.node_name).map(drop).ok_or_else(|| "none".to_owned())
        })
        .await
        .unwrap();
    }
    converged(&scene, "db", 3, LIMIT).await;
    assert_eq!(identities(&scene).await, before, "everybody is back on its volume");
    let gap = writer.finish(&scene).await;
    assert!(gap < LONGEST_GAP, "no write was acknowledged for {gap:?}");
    let counts = trace::check(&scene, &[]);
    assert_eq!((counts["member-add"], counts.get("member-remove")), (2, None), "{counts:?}");
    scene.finish().await;
}

// SD-05
#[tokio::test]
async fn the_only_member_is_not_evicted_and_the_condition_says_what_to_do() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let scene = Scene::new("single").await;
    scene.cluster("db", 1).await;
    converged(&scene, "db", 1, LIMIT).await;
    counted(&scene, 1, 1, 0).await;
    says(&scene, "db", [conditions::DISRUPTIONS_ALLOWED, "False", "BudgetBlocksDrain", "--disable-eviction"])
        .await;
    let name = scene.pods().await[0].name_any();
    let before = pod(&scene, &name).await;
    assert_eq!(evict(&scene, &name).await, 429);
    assert_eq!(pod(&scene, &name).await, before, "it stays");
    scene.finish().await;
}

/// The resource version of the first state, at or after `from`, for which `is` holds.
fn first<
    K: kube::Resource
        + Clone
        + std::fmt::Debug
        + Send
        + Sync
        + k8s_openapi::serde::de::DeserializeOwned
        + 'static,
>(
    history: &History<K>,
    name: &str,
    is: impl Fn(&K) -> bool,
) -> u64
where
    K::DynamicType: Default,
{
    let states = history.of(name);
    states.iter().find(|s| is(&s.object)).unwrap_or_else(|| panic!("{name} was never so")).version()
}

// SD-03
#[tokio::test]
async fn a_voter_is_labelled_after_the_floor_rose_and_the_floor_falls_after_one_has_lost_its_label() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let scene = Scene::new("order").await;
    scene.cluster("db", 3).await;
    converged(&scene, "db", 3, LIMIT).await;
    let pods = History::<Pod>::start(scene.api()).await;
    let budgets = History::<PodDisruptionBudget>::start(scene.api()).await;
    let old = identities(&scene).await;
    scene.scale("db", 4).await;
    converged(&scene, "db", 4, LIMIT).await;
    let new = scene.members().await.into_iter().map(|m| m.name_any()).find(|m| !old.contains_key(m)).unwrap();
    let floor = |n| {
        move |b: &PodDisruptionBudget| {
            b.spec.as_ref().and_then(|s| s.min_available.clone()) == Some(IntOrString::Int(n))
        }
    };
    let labelled = |p: &Pod| p.labels().get(labels::ROLE).is_some_and(|role| role == labels::ROLE_VOTER);
    assert!(!labelled(&pods.of(&new)[0].object), "a learner has no label");
    assert!(first(&budgets, "db", floor(3)) < first(&pods, &new, labelled), "the floor first");

    let shrinking = History::<PodDisruptionBudget>::start(scene.api()).await;
    scene.scale("db", 3).await;
    converged(&scene, "db", 3, LIMIT).await;
    let left: Vec<String> = scene
        .api::<EtcdMember>()
        .list(&Default::default())
        .await
        .unwrap()
        .items
        .iter()
        .map(|m| m.name_any())
        .collect();
    let victim = old.keys().chain([&new]).find(|m| !left.contains(m)).unwrap();
    let states = pods.of(victim);
    let bare =
        states.iter().rev().take_while(|s| !labelled(&s.object)).last().expect("it lost its label").version();
    let stays = states.iter().any(|s| {
        !labelled(&s.object) && s.version() >= bare && s.object.metadata.deletion_timestamp.is_none()
    });
    assert!(stays, "it lost its label only as it ended: {states:#?}");
    assert!(bare < first(&shrinking, "db", floor(2)), "the label first");
    trace::check(&scene, &[]);
    scene.finish().await;
}
