//! Clusters that sleep: `replicas: 0` keeps one member and its volume, and whatever happens meanwhile, nothing that
//! was written is lost and nothing is made in its place.
//!
//! Run as `testbed exec -- cargo test --features failpoints --test testbed_pause`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends at its first surprise; clippy knows that only of the #[test] functions themselves"
)]
#![allow(clippy::print_stdout, reason = "how long it took is for whoever runs it with --nocapture")]

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use etcd_operator_api::{EtcdCluster, EtcdMember, conditions, labels, names};
use etcd_operator_testbed::eventually;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use serde_json::json;
use support::converged::{converged, says};
use support::history::History;
use support::identity::{Identity, identities, pod};
use support::writer::Writer;
use support::{Scene, etcd, trace};

const LIMIT: Duration = Duration::from_secs(180);
/// Longer than the pause between two looks at a cluster for which there is nothing to do.
const QUIET: Duration = Duration::from_secs(35);

/// Waits until the cluster `db` says that it is paused, and checks that it is: one EtcdMember that sleeps, its volume, no
/// Pod. Returns who sleeps.
async fn paused(scene: &Scene) -> (String, Identity) {
    says(scene, "db", [conditions::PROGRESSING, "False", "Paused", "data-db-"]).await;
    says(scene, "db", [conditions::AVAILABLE, "False", "Paused", "data-db-"]).await;
    says(scene, "db", [conditions::DEGRADED, "False", "Paused", "data-db-"]).await;
    assert_eq!(scene.count().await, [1, 0, 1, 2], "members, Pods, PVCs, Services");
    let member = scene.members().await.remove(0);
    assert!(member.spec.dormant && member.metadata.deletion_timestamp.is_none(), "{member:?}");
    let status = scene.get("db").await.status_or_default();
    assert_eq!((status.ready_members, status.broken_members, status.progress_deadline), (0, 0, None));
    let said = conditions::find(&status.conditions, conditions::AVAILABLE).map(|c| c.message.clone());
    let volume = names::pvc(&member.name_any());
    assert!(said.as_ref().is_some_and(|said| said.contains(&volume)), "{said:?} does not name {volume}");
    identities(scene).await.pop_first().expect("one member")
}

/// Waits until there are so many EtcdMembers.
async fn members(scene: &Scene, n: usize) {
    eventually(&format!("{n} EtcdMembers"), LIMIT, async || {
        let now = scene.members().await.len();
        if now == n { Ok(()) } else { Err(format!("{now}")) }
    })
    .await
    .unwrap();
}

// SZ-02, SZ-03, SZ-04, SZ-05
#[tokio::test]
async fn a_paused_cluster_says_so_and_comes_back_as_itself_with_every_key() {
    let scene = Scene::new("pause").await;
    scene.cluster("db", 3).await;
    let id = converged(&scene, "db", 3, LIMIT).await.status_or_default().cluster_id;
    let before = identities(&scene).await;
    let writer = Writer::start(&scene, "db").await;
    eventually("100 keys", LIMIT, async || {
        if writer.count() >= 100 { Ok(()) } else { Err(writer.count().to_string()) }
    })
    .await
    .unwrap();
    scene.scale("db", 0).await;
    let (name, identity) = paused(&scene).await;
    assert_eq!(before.get(&name), Some(&identity), "its UID, its member ID and its volume's UID");
    let status = scene.get("db").await.status_or_default();
    assert_eq!(status.cluster_id, id);

    // While nothing happens nothing is written.
    let objects =
        || async { (scene.get("db").await.resource_version(), scene.members().await[0].resource_version()) };
    let (asleep, written) = (objects().await, writer.count());
    tokio::time::sleep(QUIET).await;
    assert_eq!(objects().await, asleep, "somebody writes to a cluster that sleeps");
    assert_eq!(writer.count(), written, "somebody serves in a cluster that sleeps");

    let start = std::time::Instant::now();
    scene.scale("db", 3).await;
    assert_eq!(converged(&scene, "db", 3, LIMIT).await.status_or_default().cluster_id, id);
    println!("0 to 3 took {:?}", start.elapsed());
    assert_eq!(identities(&scene).await.get(&name), Some(&identity));
    assert!(scene.members().await.iter().all(|m| !m.spec.dormant));
    writer.finish(&scene).await;
    let counts = trace::check(&scene, &[]);
    assert_eq!((counts["member-add"], counts["member-remove"]), (4, 2), "{counts:?}");
    scene.finish().await;
}

// SZ-02: the numbers in between, and each time the one volume.
#[tokio::test]
async fn a_cluster_that_is_woken_for_one_and_paused_again_still_grows_to_five() {
    let scene = Scene::new("nap").await;
    scene.cluster("db", 1).await;
    converged(&scene, "db", 1, LIMIT).await;
    let writer = Writer::start(&scene, "db").await;
    scene.scale("db", 0).await;
    let slept = paused(&scene).await;
    scene.scale("db", 1).await;
    converged(&scene, "db", 1, LIMIT).await;
    scene.scale("db", 0).await;
    assert_eq!(paused(&scene).await, slept);
    scene.scale("db", 5).await;
    converged(&scene, "db", 5, LIMIT).await;
    assert_eq!(identities(&scene).await.get(&slept.0), Some(&slept.1));
    writer.finish(&scene).await;
    trace::check(&scene, &[]);
    scene.finish().await;
}

// SZ-03, SZ-05: there is no data yet, and nothing promises any.
#[tokio::test]
async fn a_cluster_that_is_created_paused_makes_no_member_until_one_is_wanted() {
    let scene = Scene::new("none").await;
    scene.cluster("db", 0).await;
    for (kind, status) in [
        (conditions::AVAILABLE, "False"),
        (conditions::PROGRESSING, "False"),
        (conditions::DEGRADED, "False"),
    ] {
        says(&scene, "db", [kind, status, "Paused", "no data yet"]).await;
    }
    assert_eq!(scene.count().await[..3], [0, 0, 0], "members, Pods, PVCs");
    scene.scale("db", 1).await;
    converged(&scene, "db", 1, LIMIT).await;
    assert_eq!(scene.count().await, [1, 1, 1, 2], "members, Pods, PVCs, Services");
    scene.finish().await;
}

// SZ-02, MQ-05: a change of mind while a member is on its way in, and another one while everybody sleeps.
#[tokio::test]
async fn a_growth_that_is_paused_is_taken_up_with_the_resources_asked_for_meanwhile() {
    let scene = Scene::new("half").await;
    scene.cluster("db", 1).await;
    let id = converged(&scene, "db", 1, LIMIT).await.status_or_default().cluster_id;
    let writer = Writer::start(&scene, "db").await;
    scene.scale("db", 3).await;
    members(&scene, 2).await;
    scene.scale("db", 0).await;
    let (name, identity) = paused(&scene).await;
    let resources = json!({"requests": {"cpu": "70m", "memory": "96Mi"}});
    scene.edit("db", json!({"spec": {"resources": resources}})).await;
    eventually("the sleeper has the new resources", LIMIT, async || {
        let has = scene.members().await[0].spec.resources.clone().and_then(|r| r.requests);
        if has.as_ref().is_some_and(|r| r["cpu"].0 == "70m") { Ok(()) } else { Err(format!("{has:?}")) }
    })
    .await
    .unwrap();
    assert_eq!(paused(&scene).await.0, name);
    let pods = History::<Pod>::start(scene.api()).await;
    scene.scale("db", 3).await;
    assert_eq!(converged(&scene, "db", 3, LIMIT).await.status_or_default().cluster_id, id);
    assert_eq!(identities(&scene).await.get(&name), Some(&identity));
    assert_eq!(pods.objects(), 3, "each was started once");
    for pod in scene.pods().await {
        let requests = pod.spec.unwrap().containers[0].resources.clone().unwrap().requests.unwrap();
        assert_eq!(requests["cpu"].0, "70m");
    }
    writer.finish(&scene).await;
    trace::check(&scene, &[]);
    scene.finish().await;
}

// SZ-04, LS-08: what slept on it cannot wake, and nobody else is made in its place.
#[tokio::test]
async fn a_volume_that_is_deleted_while_its_member_sleeps_is_told_and_nothing_starts_over_it() {
    let scene = Scene::new("gone").await;
    scene.cluster("db", 1).await;
    let id = converged(&scene, "db", 1, LIMIT).await.status_or_default().cluster_id;
    scene.scale("db", 0).await;
    let (name, _) = paused(&scene).await;
    let pods = History::<Pod>::start(scene.api()).await;
    let (volumes, volume) = (scene.api::<PersistentVolumeClaim>(), names::pvc(&name));
    volumes.delete(&volume, &DeleteParams::default()).await.unwrap();
    says(&scene, "db", [conditions::DEGRADED, "True", "VolumeMissing", &volume]).await;
    scene.scale("db", 3).await;
    eventually("the member awake", LIMIT, async || {
        if scene.members().await[0].spec.dormant { Err("asleep".to_owned()) } else { Ok(()) }
    })
    .await
    .unwrap();
    says(&scene, "db", [conditions::DEGRADED, "True", "VolumeMissing", "nobody is replaced"]).await;
    says(&scene, "db", [conditions::AVAILABLE, "False", "ClusterUnreachable", ""]).await;
    assert_eq!(pods.objects(), 0, "something was started");
    assert_eq!(scene.count().await, [1, 0, 0, 2], "members, Pods, PVCs, Services");
    assert_eq!(scene.get("db").await.status_or_default().cluster_id, id);
    scene.finish().await;
}

/// Pods' UIDs by member.
async fn pod_uids(scene: &Scene) -> BTreeMap<String, Option<String>> {
    scene.pods().await.into_iter().map(|p| (p.name_any(), p.uid())).collect()
}

// A person says stop, and still sees what is.
#[tokio::test]
async fn an_operator_told_to_keep_its_hands_off_changes_nothing_and_its_status_stays_true() {
    let scene = Scene::new("hands").await;
    scene.cluster("db", 3).await;
    converged(&scene, "db", 3, LIMIT).await;
    let writer = Writer::start(&scene, "db").await;
    scene.annotate("db", labels::RECONCILE_PAUSED, Some("true")).await;
    says(&scene, "db", [conditions::PROGRESSING, "False", "ReconcilePaused", ""]).await;
    let (leader, _) = etcd::leader(&scene, "db").await.unwrap();
    let victim = identities(&scene).await.into_keys().find(|name| *name != leader).unwrap();
    let old = pod_uids(&scene).await;
    scene.api::<Pod>().delete(&victim, &DeleteParams::default()).await.unwrap();
    scene.edit("db", json!({"spec": {"replicas": 1, "resources": {"requests": {"cpu": "60m"}}}})).await;
    says(&scene, "db", [conditions::AVAILABLE, "True", "QuorumAvailable", "2 of 3"]).await;
    says(&scene, "db", [conditions::DEGRADED, "True", "MembersUnhealthy", &victim]).await;
    tokio::time::sleep(QUIET).await;
    let mut rest = old.clone();
    rest.remove(&victim);
    assert_eq!(pod_uids(&scene).await, rest);
    assert_eq!(scene.members().await.len(), 3);
    assert!(scene.members().await.iter().all(|m: &EtcdMember| m.metadata.deletion_timestamp.is_none()));

    scene.annotate("db", labels::RECONCILE_PAUSED, None).await;
    let cluster: EtcdCluster = converged(&scene, "db", 1, LIMIT).await;
    assert_eq!(cluster.spec.replicas, 1);
    let left = pod(&scene, &scene.members().await[0].name_any()).await;
    assert!(left.is_some() && !old.values().any(|uid| *uid == left), "it has the new resources");
    writer.finish(&scene).await;
    trace::check(&scene, &[]);
    scene.finish().await;
}
