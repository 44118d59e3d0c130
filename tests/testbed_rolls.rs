//! Edits of the spec reach the members that exist: labels in place, all else by restarting one Pod after the other while
//! a client writes.
//!
//! Run as `testbed exec -- cargo test --features failpoints --test testbed_rolls`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends at its first surprise; clippy knows that only of the #[test] functions themselves"
)]
#![allow(clippy::print_stdout, reason = "how long it took is for whoever runs it with --nocapture")]

mod support;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use etcd_operator_api::EtcdMember;
use etcd_operator_testbed::{Testbed, eventually};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use support::converged::converged;
use support::identity::{identities, pod};
use support::roll::Roll;
use support::writer::Writer;
use support::{Scene, etcd, trace};

const LIMIT: Duration = Duration::from_secs(180);
/// Longer than the pause between two looks at a cluster for which there is nothing to do.
const QUIET: Duration = Duration::from_secs(35);
/// The identity that a restarted container keeps, so that it need not wait for its own Lease to expire.
const SAME: (&str, &str) = ("POD_UID", "00000000-0000-4000-8000-0000000000aa");

/// An edit that only other Pods bring about.
fn cpu(request: &str) -> Value {
    json!({"spec": {"resources": {"requests": {"cpu": request, "memory": "96Mi"}}}})
}

/// The CPU request of each member's container.
async fn requests(scene: &Scene) -> BTreeMap<String, String> {
    let of = |pod: Pod| {
        let requests = pod.spec.clone()?.containers[0].resources.clone()?.requests?;
        Some((pod.name_any(), requests.get("cpu")?.0.clone()))
    };
    scene.pods().await.into_iter().filter_map(of).collect()
}

// UP-02
#[tokio::test]
async fn changed_resources_reach_every_member_one_by_one_and_the_leader_last() {
    let scene = Scene::new("roll").await;
    scene.cluster("db", 3).await;
    let id = converged(&scene, "db", 3, LIMIT).await.status_or_default().cluster_id;
    let members = identities(&scene).await;
    let writer = Writer::start(&scene, "db").await;
    let roll = Roll::watch(&scene).await;
    let (leader, _) = etcd::leader(&scene, "db").await.unwrap();
    let start = Instant::now();
    scene.edit("db", cpu("70m")).await;
    assert_eq!(converged(&scene, "db", 3, LIMIT).await.status_or_default().cluster_id, id);
    let took = start.elapsed();
    roll.check(&leader);
    assert_eq!(identities(&scene).await, members);
    assert!(requests(&scene).await.values().all(|cpu| cpu == "70m"), "{:?}", requests(&scene).await);
    let evictions = scene.requests().filter(|r| r.resource.contains("eviction"));
    assert!(evictions.total() >= 3, "they were asked to go: {:?}", scene.requests().counts());
    let gap = writer.finish(&scene).await;
    println!("a roll of three took {took:?}, the longest time without a write was {gap:?}");
    let counts = trace::check(&scene, &[]);
    assert_eq!((counts["member-add"], counts.get("member-remove")), (2, None), "{counts:?}");
    scene.finish().await;
}

/// Every object of the cluster `db` that has labels and annotations from its spec.
async fn all_metadata(scene: &Scene) -> Vec<ObjectMeta> {
    let all = ListParams::default();
    let members = scene.members().await.into_iter().map(|m: EtcdMember| m.metadata);
    let pods = scene.pods().await.into_iter().map(|p| p.metadata);
    let pvcs = scene.api::<PersistentVolumeClaim>().list(&all).await.unwrap().items;
    let services = scene.api::<Service>().list(&all).await.unwrap().items;
    let budgets = scene.api::<PodDisruptionBudget>().list(&all).await.unwrap().items;
    let pvcs = pvcs.into_iter().map(|p| p.metadata);
    let services = services.into_iter().map(|s| s.metadata);
    members.chain(pods).chain(pvcs).chain(services).chain(budgets.into_iter().map(|b| b.metadata)).collect()
}

// VC-08, UP-02: nobody is restarted for a label.
#[tokio::test]
async fn labels_and_annotations_reach_every_object_in_place_and_go_when_the_spec_has_them_no_more() {
    let scene = Scene::new("meta").await;
    scene.cluster("db", 3).await;
    converged(&scene, "db", 3, LIMIT).await;
    let roll = Roll::watch(&scene).await;
    let more = json!({"labels": {"team": "blue"}, "annotations": {"example.com/owner": "ann"}});
    scene.edit("db", json!({"spec": {"additionalMetadata": more}})).await;
    let found = async |wanted: (Option<&str>, Option<&str>)| {
        let mut other = Vec::new();
        for meta in all_metadata(&scene).await {
            let label = meta.labels.and_then(|l| l.get("team").cloned());
            let note = meta.annotations.and_then(|a| a.get("example.com/owner").cloned());
            if (label.as_deref(), note.as_deref()) != wanted {
                other.push((meta.name, label, note));
            }
        }
        if other.is_empty() { Ok(()) } else { Err(format!("{other:?}")) }
    };
    let on_all = "labels and annotations on all";
    eventually(on_all, LIMIT, async || found((Some("blue"), Some("ann"))).await).await.unwrap();
    let theirs = Patch::Merge(json!({"metadata": {"labels": {"example.com/theirs": "kept"}}}));
    let pod = scene.pods().await[0].metadata.name.clone().unwrap();
    scene.api::<Pod>().patch(&pod, &PatchParams::default(), &theirs).await.unwrap();
    scene.edit("db", json!({"spec": {"additionalMetadata": {"labels": {"team": null}}}})).await;
    eventually("the label is gone", LIMIT, async || found((None, Some("ann"))).await).await.unwrap();
    scene.edit("db", json!({"spec": {"additionalMetadata": null}})).await;
    eventually("all is gone", LIMIT, async || found((None, None)).await).await.unwrap();
    let labels = scene.api::<Pod>().get(&pod).await.unwrap().metadata.labels.unwrap();
    assert_eq!(labels["example.com/theirs"], "kept", "others' labels are left alone");
    converged(&scene, "db", 3, LIMIT).await;
    assert_eq!((roll.made(), roll.restarted()), (0, vec![]));
    roll.one_permit_at_a_time();
    scene.finish().await;
}

// UP-02, AP-04: the permit on the member outlives the operator.
#[tokio::test]
async fn an_operator_killed_in_the_middle_of_a_roll_ends_it_and_restarts_nobody_twice() {
    let mut scene = Scene::without_operator("kill").await;
    scene.start(&[SAME]).await;
    scene.cluster("db", 3).await;
    converged(&scene, "db", 3, LIMIT).await;
    let members = identities(&scene).await;
    let writer = Writer::start(&scene, "db").await;
    let roll = Roll::watch(&scene).await;
    let (leader, _) = etcd::leader(&scene, "db").await.unwrap();
    scene.edit("db", cpu("70m")).await;
    for n in 1..=3 {
        eventually(&format!("{n} on the way out"), LIMIT, async || {
            let order = roll.restarted();
            if order.len() >= n { Ok(()) } else { Err(format!("{order:?}")) }
        })
        .await
        .unwrap();
        scene.operator().kill().await.unwrap();
        scene.operator().restart_with(&[SAME]).await.unwrap();
    }
    converged(&scene, "db", 3, LIMIT).await;
    roll.check(&leader);
    assert_eq!(identities(&scene).await, members);
    writer.finish(&scene).await;
    trace::check(&scene, &[]);
    scene.finish().await;
}

// UP-02, UP-08: a person decides when; whatever Pod comes next is made from the new spec, and only the others are restarted
// when that is allowed again.
#[tokio::test]
async fn with_on_delete_only_who_is_deleted_takes_up_the_new_spec_and_the_others_when_restarts_are_allowed_again()
 {
    let scene = Scene::new("ondelete").await;
    scene.cluster("db", 3).await;
    converged(&scene, "db", 3, LIMIT).await;
    let old = requests(&scene).await;
    let roll = Roll::watch(&scene).await;
    scene.edit("db", json!({"spec": {"updateStrategy": {"type": "OnDelete"}}})).await;
    scene.edit("db", cpu("70m")).await;
    converged(&scene, "db", 3, LIMIT).await;
    assert_eq!((roll.made(), requests(&scene).await), (0, old.clone()));
    let victim = old.keys().next().unwrap();
    let uid = pod(&scene, victim).await;
    scene.api::<Pod>().delete(victim, &DeleteParams::default()).await.unwrap();
    eventually("another Pod", LIMIT, async || {
        let now = pod(&scene, victim).await;
        if now.is_some() && now != uid { Ok(()) } else { Err(format!("{now:?}")) }
    })
    .await
    .unwrap();
    converged(&scene, "db", 3, LIMIT).await;
    let mut wanted = old.clone();
    wanted.insert(victim.clone(), "70m".to_owned());
    assert_eq!((roll.made(), requests(&scene).await), (1, wanted));
    scene.edit("db", json!({"spec": {"updateStrategy": {"type": "RollingUpdate"}}})).await;
    eventually("all have it", LIMIT, async || {
        let now = requests(&scene).await;
        if now.values().all(|cpu| cpu == "70m") { Ok(()) } else { Err(format!("{now:?}")) }
    })
    .await
    .unwrap();
    converged(&scene, "db", 3, LIMIT).await;
    assert_eq!(roll.made(), 3, "the one that had it already was left alone");
    roll.one_permit_at_a_time();
    scene.finish().await;
}

/// A policy that gives every Pod of a namespace a CPU limit, until it is dropped.
struct Limits(String);

impl Limits {
    async fn set(testbed: &Testbed, namespace: &str) -> Self {
        let kind = |kind: &str, spec: Value| {
            json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
                "metadata": {"name": namespace}, "spec": spec})
        };
        let policy = kind(
            "MutatingAdmissionPolicy",
            json!({
                "matchConstraints": {
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                    "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                        "resources": ["pods"]}],
                },
                "failurePolicy": "Fail",
                "reinvocationPolicy": "Never",
                "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression":
                    "Object{spec: Object.spec{containers: object.spec.containers.map(c, \
                     Object.spec.containers{name: c.name, resources: Object.spec.containers.resources{\
                     limits: {\"cpu\": \"2\"}}})}}"}}],
            }),
        );
        testbed.apply(&policy.to_string()).await.unwrap();
        let binding = kind("MutatingAdmissionPolicyBinding", json!({"policyName": namespace}));
        testbed.apply(&binding.to_string()).await.unwrap();
        Self(namespace.to_owned())
    }
}

impl Drop for Limits {
    fn drop(&mut self) {
        for kind in ["mutatingadmissionpolicybinding", "mutatingadmissionpolicy"] {
            // The test has failed already if there was anything to do.
            let _ = std::process::Command::new("kubectl").args(["delete", kind, &self.0]).output();
        }
    }
}

/// Whether a Pod that is made now would get the limit.
async fn is_limited(scene: &Scene) -> Result<(), String> {
    let probe =
        json!({"metadata": {"name": "probe"}, "spec": {"containers": [{"name": "c", "image": "busybox:1"}]}});
    let only_ask = PostParams { dry_run: true, ..PostParams::default() };
    let probe: Pod = serde_json::from_value(probe).unwrap();
    let made = scene.api::<Pod>().create(&only_ask, &probe).await.map_err(|e| e.to_string())?;
    let limits = made.spec.and_then(|s| s.containers.into_iter().next()?.resources?.limits);
    limits.map(drop).ok_or_else(|| "no limit".to_owned())
}

// UP-08: what counts is spec against spec.
#[tokio::test]
async fn what_an_admission_policy_does_to_pods_is_no_reason_to_restart_them() {
    let mut scene = Scene::without_operator("mutate").await;
    let limits = Limits::set(&scene.testbed, scene.namespace.name()).await;
    eventually("the policy is in force", LIMIT, async || is_limited(&scene).await).await.unwrap();
    scene.start(&[SAME]).await;
    scene.cluster("db", 1).await;
    converged(&scene, "db", 1, LIMIT).await;
    let roll = Roll::watch(&scene).await;
    // Neither over time nor after a restart.
    scene.operator().kill().await.unwrap();
    scene.operator().restart_with(&[SAME]).await.unwrap();
    tokio::time::sleep(QUIET).await;
    converged(&scene, "db", 1, LIMIT).await;
    assert_eq!(roll.made(), 0);
    // And an edit of what the policy changes as well is over after one restart.
    scene.edit("db", cpu("70m")).await;
    converged(&scene, "db", 1, LIMIT).await;
    tokio::time::sleep(QUIET).await;
    converged(&scene, "db", 1, LIMIT).await;
    assert_eq!(roll.made(), 1);
    drop(limits);
    scene.finish().await;
}
