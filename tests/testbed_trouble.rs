//! Clusters in trouble that somebody then helps out of: Pods that cannot start, objects in the way or edited by hand,
//! members that all go down at once.
//!
//! Run as `testbed exec -- cargo test --features failpoints --test testbed_trouble`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends at its first surprise; clippy knows that only of the #[test] functions themselves"
)]

mod support;

use std::time::Duration;

use etcd_operator_api::{EtcdCluster, EtcdMember, conditions, labels, names};
use etcd_operator_testbed::image::Image;
use etcd_operator_testbed::{Partition, eventually, object};
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod, Service};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use support::converged::{NOTICED, behind, converged, words};
use support::frozen::Frozen;
use support::history::History;
use support::writer::Writer;
use support::{Scene, VERSION, etcd, spec, trace};

const LIMIT: Duration = Duration::from_secs(180);
async fn says(scene: &Scene, kind: &str, status: &str, reason: &str, text: &str) {
    support::converged::says(scene, "db", [kind, status, reason, text]).await;
}

// AP-08
#[tokio::test]
async fn a_pod_that_no_node_takes_is_reported_and_goes_on_when_a_node_does() {
    let scene = Scene::new("sched").await;
    let pods = History::<Pod>::start(scene.api()).await;
    // Nodes belong to everybody: the label is this test's own.
    let label = format!("test.etcd-operator/{}", scene.namespace.name());
    let affinity = spec::only_nodes_with(&label, "yes");
    scene.create(&spec::cluster_with("db", 2, |spec| spec.affinity = Some(affinity))).await;
    says(&scene, conditions::DEGRADED, "True", "PodUnschedulable", "db-").await;
    says(&scene, conditions::PROGRESSING, "True", "WaitingForSeed", "db-").await;
    let seed = scene.members().await.remove(0).name_any();
    says(&scene, conditions::DEGRADED, "True", "PodUnschedulable", &seed).await;

    let nodes: Api<Node> = Api::all(scene.testbed.client());
    let set = |value: Value| Patch::Merge(json!({"metadata": {"labels": {label.as_str(): value}}}));
    nodes.patch("node2", &PatchParams::default(), &set(json!("yes"))).await.unwrap();
    converged(&scene, "db", 2, LIMIT).await;
    nodes.patch("node2", &PatchParams::default(), &set(Value::Null)).await.unwrap();
    assert_eq!(pods.objects(), 2, "each Pod was made once, however long it waited");
    assert_eq!(scene.members().await[0].name_any(), seed, "the seed that waited is the seed that runs");
    scene.finish().await;
}

// AP-08: the version exists, but no node has its image until it is loaded.
#[tokio::test]
async fn an_image_that_cannot_be_pulled_is_reported_and_the_member_starts_once_it_can() {
    let scene = Scene::new("pull").await;
    let pods = History::<Pod>::start(scene.api()).await;
    // Another one each time: an image stays in the testbed.
    let missing = format!("3.6.{}", 1000 + std::process::id());
    scene.create(&spec::cluster_with("db", 1, |spec| spec.version.clone_from(&missing))).await;
    says(&scene, conditions::DEGRADED, "True", "ImagePullFailed", "db-").await;
    says(&scene, conditions::AVAILABLE, "False", "WaitingForSeed", "").await;
    assert_eq!(scene.count().await, [1, 1, 1, 2], "members, Pods, PVCs, Services");

    let repository = "quay.io/coreos/etcd";
    let program = scene.testbed.etcd_tool("etcd", VERSION).unwrap();
    let image = Image::new(format!("{repository}:v{missing}"))
        .directory("/var/lib/etcd", 0o777)
        .directory("/tmp", 0o1777)
        .file("/usr/local/bin/etcd", program, 0o755);
    let archive = std::env::temp_dir().join(format!("{}.tar", scene.namespace.name()));
    image.write(&archive).unwrap();
    scene.testbed.load_image(&archive).await.unwrap();
    std::fs::remove_file(&archive).unwrap();
    let done = "the cluster available with the image that came late";
    // The kubelet's pauses between two attempts grow to five minutes, and are shorter this early.
    object(scene.api::<EtcdCluster>(), "db", done, LIMIT, |cluster: Option<&EtcdCluster>| {
        let cluster = cluster.ok_or("it is gone")?;
        let available = conditions::is_true(&cluster.status_or_default().conditions, conditions::AVAILABLE);
        if available { Ok(()) } else { Err(words(cluster)) }
    })
    .await
    .unwrap();
    assert_eq!(pods.objects(), 1, "the Pod was made once, however long it waited");
    scene.finish().await;
}

#[tokio::test]
async fn a_version_that_cannot_be_pulled_is_corrected_by_an_edit() {
    let scene = Scene::new("fix").await;
    scene.create(&spec::cluster_with("db", 1, |spec| spec.version = "3.6.98".to_owned())).await;
    says(&scene, conditions::DEGRADED, "True", "ImagePullFailed", "db-").await;
    scene.edit("db", json!({"spec": {"version": VERSION}})).await;
    converged(&scene, "db", 1, LIMIT).await;
    scene.finish().await;
}

fn address(pod: &Pod) -> String {
    pod.status.as_ref().and_then(|s| s.pod_ip.clone()).expect("the Pod has an address")
}

fn patch(value: Value) -> Patch<Value> {
    Patch::Merge(value)
}

/// Writes of the operator to objects of this kind in the namespace.
fn writes(scene: &Scene, resource: &str) -> usize {
    scene.requests().filter(|r| r.resource == resource).writes()
}

#[tokio::test]
async fn a_service_edited_by_hand_is_put_right_once() {
    let scene = Scene::new("edit").await;
    scene.cluster("db", 1).await;
    converged(&scene, "db", 1, LIMIT).await;
    let services = scene.api::<Service>();
    let default = PatchParams::default();
    let before = writes(&scene, "services");
    let wrong = json!({"spec": {"selector": {"app": "mine"}, "ports": [{"name": "http", "port": 80, "targetPort": 80}]}});
    services.patch("db-client", &default, &patch(wrong.clone())).await.unwrap();
    converged(&scene, "db", 1, LIMIT).await;
    let mut wrong = wrong;
    wrong["spec"]["publishNotReadyAddresses"] = json!(false);
    services.patch("db", &default, &patch(wrong)).await.unwrap();
    converged(&scene, "db", 1, LIMIT).await;
    let after = writes(&scene, "services") - before;
    assert!((2..=4).contains(&after), "{after} writes for two edits");

    // What others may add to a Service stays, and costs nothing.
    let theirs = json!({"metadata": {"annotations": {"example.com/theirs": "1"}, "labels": {"example.com/theirs": "1"}}});
    services.patch("db-client", &default, &patch(theirs)).await.unwrap();
    // Every later look is a chance to write: one member more makes many.
    scene.scale("db", 2).await;
    converged(&scene, "db", 2, LIMIT).await;
    assert_eq!(writes(&scene, "services") - before, after, "a write about what is not ours");
    let found = services.get("db-client").await.unwrap();
    assert_eq!(found.annotations().get("example.com/theirs").map(String::as_str), Some("1"));
    scene.finish().await;
}

// VC-08's other half: what selectors and adoption stand on is put back wherever it was taken away.
#[tokio::test]
async fn labels_stripped_by_hand_come_back_and_nothing_is_made_a_second_time() {
    let scene = Scene::new("strip").await;
    scene.cluster("db", 1).await;
    converged(&scene, "db", 1, LIMIT).await;
    let made = scene.count().await;
    let member = scene.members().await.remove(0).name_any();
    let strip = json!({"metadata": {"labels": {labels::MANAGED_BY: null, labels::CLUSTER: null}}});
    let default = PatchParams::default();
    scene.api::<Pod>().patch(&member, &default, &patch(strip.clone())).await.unwrap();
    scene.api::<Service>().patch("db", &default, &patch(strip.clone())).await.unwrap();
    scene.api::<Service>().patch("db-client", &default, &patch(strip.clone())).await.unwrap();
    scene.api::<PersistentVolumeClaim>().patch(&names::pvc(&member), &default, &patch(strip)).await.unwrap();
    // Growth asks for all of them: the list that the member is added to, Services, and what is there already.
    scene.scale("db", 2).await;
    converged(&scene, "db", 2, LIMIT).await;
    assert_eq!(made, [1, 1, 1, 2]);
    assert_eq!(scene.count().await, [2, 2, 2, 2], "members, Pods, PVCs, Services");
    scene.finish().await;
}

fn foreign_service(name: &str) -> Service {
    let object =
        json!({"metadata": {"name": name}, "spec": {"selector": {"app": "mine"}, "ports": [{"port": 80}]}});
    serde_json::from_value(object).unwrap()
}

// MQ-13: names are taken, never objects.
#[tokio::test]
async fn a_foreign_service_of_our_name_is_named_and_left_alone_until_it_is_gone() {
    let scene = Scene::new("svc").await;
    let services = scene.api::<Service>();
    for name in ["db", "db-client"] {
        services.create(&PostParams::default(), &foreign_service(name)).await.unwrap();
    }
    let theirs = services.get("db").await.unwrap();
    scene.cluster("db", 1).await;
    says(&scene, conditions::DEGRADED, "True", "ForeignObject", "Service db").await;
    assert_eq!(scene.count().await, [0, 0, 0, 2], "members, Pods, PVCs, Services");
    assert_eq!(services.get("db").await.unwrap().resource_version(), theirs.resource_version());
    services.delete("db", &DeleteParams::default()).await.unwrap();
    // Members go on without the client Service; only clients have to wait.
    says(&scene, conditions::DEGRADED, "True", "ForeignObject", "Service db-client").await;
    services.delete("db-client", &DeleteParams::default()).await.unwrap();
    converged(&scene, "db", 1, LIMIT).await;
    scene.finish().await;
}

#[tokio::test]
async fn a_foreign_volume_of_our_name_is_never_mounted() {
    let mut scene = Scene::without_operator("pvc").await;
    let env = [
        ("ETCD_OPERATOR_FAILPOINTS", "create-pvc:before"),
        ("POD_UID", "00000000-0000-4000-8000-00000000000c"),
    ];
    scene.start(&env).await;
    scene.cluster("db", 1).await;
    let status = scene.operator().wait(NOTICED).await.unwrap();
    assert!(!status.success(), "it was to end before it made the volume");
    let member = scene.members().await.remove(0).name_any();
    let name = names::pvc(&member);
    let theirs = json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    let pvcs = scene.api::<PersistentVolumeClaim>();
    let theirs = pvcs.create(&PostParams::default(), &serde_json::from_value(theirs).unwrap()).await.unwrap();

    scene.operator().restart_with(&env[1..]).await.unwrap();
    says(&scene, conditions::DEGRADED, "True", "ForeignObject", &name).await;
    assert_eq!(scene.count().await, [1, 0, 1, 2], "members, Pods, PVCs, Services");
    let now = pvcs.get(&name).await.unwrap();
    assert_eq!((now.uid(), now.owner_references().len(), now.labels().len()), (theirs.uid(), 0, 0));
    pvcs.delete(&name, &DeleteParams::default()).await.unwrap();
    converged(&scene, "db", 1, LIMIT).await;
    scene.finish().await;
}

// MQ-13: the old cluster's member is held by somebody else's finalizer while the name is used again.
#[tokio::test]
async fn a_name_used_again_before_the_old_objects_are_gone_gives_a_cluster_of_its_own() {
    let scene = Scene::new("again").await;
    // One member, so that the old cluster goes on serving by itself as long as its Pod runs.
    scene.cluster("db", 1).await;
    let old = converged(&scene, "db", 1, LIMIT).await;
    let held = scene.members().await.remove(0).name_any();
    let members = scene.api::<EtcdMember>();
    let default = PatchParams::default();
    let hold = json!({"metadata": {"finalizers": [labels::MEMBER_FINALIZER, "example.com/held"]}});
    members.patch(&held, &default, &patch(hold)).await.unwrap();
    let volumes = scene.api::<PersistentVolumeClaim>();
    let old_volumes: Vec<_> =
        volumes.list(&ListParams::default()).await.unwrap().items.iter().map(ResourceExt::uid).collect();

    scene.api::<EtcdCluster>().delete("db", &DeleteParams::background()).await.unwrap();
    eventually("the old EtcdCluster gone", LIMIT, async || {
        match scene.api::<EtcdCluster>().get_opt("db").await.map_err(|e| e.to_string())? {
            None => Ok(()),
            Some(_) => Err("it is there".to_owned()),
        }
    })
    .await
    .unwrap();
    scene.cluster("db", 1).await;
    eventually("the new cluster available beside the held member", LIMIT, async || {
        let cluster = scene.get("db").await;
        if conditions::is_true(&cluster.status_or_default().conditions, conditions::AVAILABLE) {
            Ok(())
        } else {
            Err(words(&cluster))
        }
    })
    .await
    .unwrap();
    let now = members.get(&held).await.unwrap();
    assert_eq!(now.finalizers(), ["example.com/held"], "the operator has let go of it");
    let clients = behind(&scene, "db-client").await.unwrap();
    assert!(!clients.contains(&held), "clients of the new cluster reach the old one: {clients:?}");
    members.patch(&held, &default, &patch(json!({"metadata": {"finalizers": null}}))).await.unwrap();
    eventually("nothing of the old cluster left", LIMIT, async || {
        let count = scene.count().await;
        if count == [1, 1, 1, 2] { Ok(()) } else { Err(format!("{count:?}")) }
    })
    .await
    .unwrap();
    let new = converged(&scene, "db", 1, LIMIT).await;
    assert_ne!(old.status_or_default().cluster_id, new.status_or_default().cluster_id);
    assert_ne!(old.status_or_default().cluster_token, new.status_or_default().cluster_token);
    for volume in volumes.list(&ListParams::default()).await.unwrap() {
        assert!(!old_volumes.contains(&volume.uid()), "an old volume is in use");
    }
    scene.finish().await;
}

// DN-05
#[tokio::test]
async fn members_that_all_came_back_under_new_addresses_are_found_again() {
    let mut scene = Scene::new("moved").await;
    scene.cluster("db", 3).await;
    let before = converged(&scene, "db", 3, LIMIT).await;
    let writer = Writer::start(&scene, "db").await;
    let old: Vec<_> = etcd::endpoints(&scene, "db", false).await.into_values().collect();
    scene.stop().await;
    // Without its operator nobody makes a Pod again, so that the operator comes back to find none.
    scene.api::<Pod>().delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    eventually("no Pod", LIMIT, async || {
        let pods = scene.pods().await.len();
        if pods == 0 { Ok(()) } else { Err(format!("{pods} Pods")) }
    })
    .await
    .unwrap();
    scene.start(&[]).await;
    // The status is that of the operator's former life, so etcd itself is asked.
    eventually("three voters that serve", Duration::from_secs(60), async || {
        let serving = etcd::endpoints(&scene, "db", true).await.len();
        let list = etcd::list(&scene, "db").await?;
        if (serving, list.counts()) == (3, (3, 0)) { Ok(()) } else { Err(format!("{serving} of {list:?}")) }
    })
    .await
    .unwrap();
    let after = converged(&scene, "db", 3, LIMIT).await;
    assert_eq!(before.status_or_default().cluster_id, after.status_or_default().cluster_id);
    let new: Vec<_> = etcd::endpoints(&scene, "db", false).await.into_values().collect();
    assert_ne!(old, new, "the addresses are the same; this run proves nothing");
    writer.finish(&scene).await;
    assert_eq!(scene.count().await, [3, 3, 3, 2], "members, Pods, PVCs, Services");
    scene.finish().await;
}

// MQ-10, MQ-11: nobody serves, and nothing is removed for it.
#[tokio::test]
async fn a_cluster_without_quorum_says_so_within_seconds_and_comes_back_by_itself() {
    let scene = Scene::new("quorum").await;
    scene.cluster("db", 3).await;
    let before = converged(&scene, "db", 3, LIMIT).await;
    let members: Vec<_> = scene.members().await.iter().map(ResourceExt::uid).collect();
    let writer = Writer::start(&scene, "db").await;
    let cut: Vec<_> =
        scene.pods().await.iter().take(2).map(|p| Partition::of(&address(p)).unwrap()).collect();
    says(&scene, conditions::AVAILABLE, "False", "QuorumLost", "").await;
    says(&scene, conditions::DEGRADED, "True", "QuorumLost", "").await;
    assert_eq!(scene.count().await, [3, 3, 3, 2], "members, Pods, PVCs, Services");
    for partition in cut {
        partition.heal().unwrap();
    }
    let after = converged(&scene, "db", 3, LIMIT).await;
    assert_eq!(before.status_or_default().cluster_id, after.status_or_default().cluster_id);
    let now: Vec<_> = scene.members().await.iter().map(ResourceExt::uid).collect();
    assert_eq!(members, now, "no EtcdMember was replaced");
    writer.finish(&scene).await;
    let counts = trace::check(&scene, &[]);
    assert_eq!(counts.get("member-remove"), None, "{counts:?}");
    scene.finish().await;
}

// MQ-10, MT-02: all processes stand still, as those of a machine that swaps.
#[tokio::test]
async fn a_cluster_whose_members_all_stopped_answering_is_called_unreachable_within_seconds() {
    let scene = Scene::new("still").await;
    scene.cluster("db", 1).await;
    converged(&scene, "db", 1, LIMIT).await;
    let member = scene.members().await.remove(0).name_any();
    let frozen = Frozen::all(&[member]);
    says(&scene, conditions::AVAILABLE, "False", "ClusterUnreachable", "").await;
    let status = scene.get("db").await.status_or_default();
    assert_eq!(status.ready_members, 0);
    drop(frozen);
    converged(&scene, "db", 1, LIMIT).await;
    assert_eq!(scene.count().await, [1, 1, 1, 2], "members, Pods, PVCs, Services");
    scene.finish().await;
}
