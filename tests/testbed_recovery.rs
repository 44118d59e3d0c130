//! Quorum lost for good, and a person who names the member to go on with: what comes back, what is refused, and an
//! operator that dies at every step of it.
//!
//! Run as `testbed exec -- cargo test --features failpoints --test testbed_recovery`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends at its first surprise; clippy knows that only of the #[test] functions themselves"
)]
#![allow(clippy::print_stdout, reason = "how long it took is for whoever runs it with --nocapture")]

mod support;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use etcd_operator_api::{EtcdCluster, EtcdMember, RecoveryPhase, RecoveryStatus, conditions, labels, names};
use etcd_operator_testbed::{Partition, eventually, object};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams};
use support::converged::{converged, says, says_within};
use support::history::History;
use support::identity::{identities, pod};
use support::{Scene, chain, data, etcd, spec, trace};

const LIMIT: Duration = Duration::from_secs(180);
/// Longer than the pause between two looks at a cluster for which there is nothing to do.
const QUIET: Duration = Duration::from_secs(35);

/// Members of the cluster by name, the leader last.
async fn members(scene: &Scene, cluster: &str) -> Vec<String> {
    let (leader, _) = etcd::leader(scene, cluster).await.unwrap();
    let mut names: Vec<String> = scene.members().await.iter().map(EtcdMember::name_any).collect();
    names.retain(|name| name.starts_with(&format!("{cluster}-")) && *name != leader);
    names.push(leader);
    names
}

async fn put(scene: &Scene, cluster: &str, key: &str, value: &str) {
    etcd::ask(scene, cluster, &["put", key, value]).await.unwrap();
}

/// What the cluster holds under this key, decoded no further than etcdctl's JSON.
async fn holds(scene: &Scene, cluster: &str, key: &str) -> bool {
    let found = etcd::ask(scene, cluster, &["get", key]).await.unwrap();
    found["kvs"].as_array().is_some_and(|kvs| !kvs.is_empty())
}

/// The volumes of these members are lost with their Pods, all at once.
async fn lose(scene: &Scene, cluster: &str, victims: &[String]) {
    // One by one, the first would be replaced before the second is lost.
    scene.annotate(cluster, labels::RECONCILE_PAUSED, Some("true")).await;
    says(scene, cluster, [conditions::PROGRESSING, "False", "ReconcilePaused", ""]).await;
    for name in victims {
        let now = DeleteParams::default().grace_period(0);
        scene.api::<PersistentVolumeClaim>().delete(&names::pvc(name), &now).await.unwrap();
        scene.api::<Pod>().delete(name, &now).await.unwrap();
    }
    says(scene, cluster, [conditions::AVAILABLE, "False", "QuorumLost", ""]).await;
    scene.annotate(cluster, labels::RECONCILE_PAUSED, None).await;
    says(scene, cluster, [conditions::DEGRADED, "True", "VolumeMissing", "nobody is replaced"]).await;
}

async fn recover(scene: &Scene, cluster: &str, request: &str) {
    scene.annotate(cluster, labels::RECOVER_FROM, Some(request)).await;
}

/// Waits for the end of a recovery.
async fn recovered(scene: &Scene, cluster: &str) -> RecoveryStatus {
    let over = |cluster: Option<&EtcdCluster>| {
        let recovery = cluster.and_then(|c| c.status.as_ref()?.recovery.clone());
        let over = recovery.as_ref().is_some_and(|r| r.phase == RecoveryPhase::Recovered);
        if over { Ok(recovery) } else { Err(format!("{:?}", cluster.map(support::converged::words))) }
    };
    object(scene.api::<EtcdCluster>(), cluster, "recovered", LIMIT, over).await.unwrap().expect("just seen")
}

async fn refused(scene: &Scene, cluster: &str, request: &str, words: &str) {
    recover(scene, cluster, request).await;
    says(scene, cluster, [conditions::SPEC_WARNINGS, "True", "RecoveryRefused", words]).await;
}

/// The reasons of Events on the cluster.
async fn told(scene: &Scene, cluster: &str) -> BTreeSet<String> {
    let events = scene.api::<Event>().list(&ListParams::default()).await.unwrap().items;
    let about = |e: &Event| e.regarding.as_ref().is_some_and(|r| r.name.as_deref() == Some(cluster));
    events.into_iter().filter(about).filter_map(|e| e.reason).collect()
}

/// Whether this Pod was made to run once with the flag.
fn is_flagged(pod: &Pod) -> bool {
    let args = pod.spec.iter().flat_map(|s| &s.containers).flat_map(|c| c.args.iter().flatten());
    args.into_iter().any(|arg| arg == "--force-new-cluster=true")
}

/// The IDs of the members that are lost, which etcd itself removes as it starts with the flag.
async fn ids(scene: &Scene, names: &[String]) -> Vec<String> {
    let all = identities(scene).await;
    names.iter().filter_map(|name| all[name][1].clone()).collect()
}

// MQ-10
#[tokio::test]
async fn a_cluster_comes_back_from_the_member_that_is_named_and_grows_again() {
    let scene = Scene::new("recover").await;
    let clusters = [("a5", "3.5.35"), ("a6", "3.6.16"), ("a7", "3.7.3")];
    for (name, version) in clusters {
        scene.create(&spec::cluster_with(name, 3, |spec| spec.version = version.to_owned())).await;
    }
    for (name, _) in clusters {
        let id = converged(&scene, name, 3, LIMIT).await.status_or_default().cluster_id;
        put(&scene, name, "kept", "1").await;
        let before = identities(&scene).await;
        let all = members(&scene, name).await;
        let [first, second, survivor] = all.as_slice() else { panic!("{all:?}") };
        lose(&scene, name, &[first.clone(), second.clone()]).await;
        let strangers = ids(&scene, &[first.clone(), second.clone()]).await;

        let pods = History::<Pod>::start(scene.api()).await;
        let asked = Instant::now();
        recover(&scene, name, survivor).await;
        let recovery = recovered(&scene, name).await;
        println!("{name}: it serves again {:?} after it was asked for", asked.elapsed());
        assert_eq!((recovery.survivor.as_str(), recovery.request.as_str()), (&**survivor, &**survivor));
        assert_eq!(BTreeSet::from_iter(&recovery.others), BTreeSet::from([first, second]));
        assert!(recovery.term.is_some() && recovery.index.is_some() && recovery.ended.is_some());
        let after = converged(&scene, name, 3, LIMIT).await;
        println!("{name}: three voters {:?} after it was asked for", asked.elapsed());
        assert_eq!(after.status_or_default().cluster_id, id, "it is the same cluster");
        assert!(holds(&scene, name, "kept").await, "what was acknowledged is there");
        put(&scene, name, "new", "1").await;
        etcd::same_data_everywhere(&scene, name).await.unwrap();

        let now = identities(&scene).await;
        assert_eq!(now[survivor], before[survivor], "the survivor is the same member on the same volume");
        assert!(!now.contains_key(first) && !now.contains_key(second));
        let flagged: BTreeSet<_> =
            pods.all().iter().filter(|s| is_flagged(&s.object)).filter_map(|s| s.object.uid()).collect();
        assert_eq!(flagged.len(), 1, "the flag is given once: {flagged:?}");
        let one = pods.first(is_flagged).unwrap();
        let spec = one.object.spec.unwrap();
        assert_eq!(spec.restart_policy.as_deref(), Some("Never"));
        let args = spec.containers[0].args.clone().unwrap();
        for flag in ["--listen-peer-urls=http://127.0.0.1:2380", "--listen-client-urls=http://127.0.0.1:2379"]
        {
            assert!(args.iter().any(|arg| arg == flag), "{args:?}");
        }
        let events = told(&scene, name).await;
        assert!(events.contains("Recovering") && events.contains("Recovered"), "{events:?}");
        let strangers: Vec<&str> = strangers.iter().map(String::as_str).collect();
        trace::check_cluster(&scene, name, &strangers).unwrap();
    }
    // The annotations stand, and never act again.
    let before = (identities(&scene).await, scene.count().await);
    tokio::time::sleep(QUIET).await;
    assert_eq!((identities(&scene).await, scene.count().await), before);
    scene.finish().await;
}

// MQ-10
#[tokio::test]
async fn a_request_is_refused_while_it_is_wrong_and_loses_nothing() {
    let scene = Scene::new("norecover").await;
    scene.cluster("db", 5).await;
    converged(&scene, "db", 5, LIMIT).await;
    let all = members(&scene, "db").await;
    let [a, b, c, behind, ahead] = all.as_slice() else { panic!("{all:?}") };
    refused(&scene, "db", behind, "hold a quorum").await;

    // One member misses what the others are told, and then only two of five are left. A member that starts without a
    // quorum answers nobody, so it is cut off and not stopped. It stays cut off from the other one until it was
    // refused: that one was the leader, and what waits in its queues would be taken even after it is none any more.
    let cut_off = scene.api::<Pod>().get(behind).await.unwrap();
    let cut_off = cut_off.status.and_then(|s| s.pod_ip).expect("an address");
    let partition = Partition::of(&cut_off).unwrap();
    for n in 0..20 {
        put(&scene, "db", &format!("late/{n}"), "1").await;
    }
    let victims = [a.clone(), b.clone(), c.clone()];
    let strangers = ids(&scene, &victims).await;
    lose(&scene, "db", &victims).await;
    let before = (identities(&scene).await, pod(&scene, behind).await, pod(&scene, ahead).await);
    // The request of before still stands, in the same words.
    tokio::time::sleep(QUIET).await;
    says(&scene, "db", [conditions::SPEC_WARNINGS, "True", "RecoveryRefused", "hold a quorum"]).await;
    refused(&scene, "db", "db-nobody", "there is no member db-nobody").await;
    refused(&scene, "db", a, "is lost").await;
    let words = format!("name {ahead}");
    refused(&scene, "db", &format!("{behind} please"), &words).await;
    assert!(told(&scene, "db").await.contains("RecoveryRefused"));
    let now = (identities(&scene).await, pod(&scene, behind).await, pod(&scene, ahead).await);
    assert_eq!(now, before, "a request that is refused changes nothing");

    partition.heal().unwrap();
    recover(&scene, "db", ahead).await;
    recovered(&scene, "db").await;
    converged(&scene, "db", 5, LIMIT).await;
    for n in 0..20 {
        assert!(holds(&scene, "db", &format!("late/{n}")).await, "late/{n} was acknowledged");
    }
    let mut strangers = strangers;
    strangers.extend(before.0[behind][1].clone());
    let strangers: Vec<&str> = strangers.iter().map(String::as_str).collect();
    trace::check(&scene, &strangers);
    scene.finish().await;
}

/// The steps of a recovery from the moment at which it is asked for, as far as each is reached once.
const STEPS: [&str; 10] = [
    "cluster-status:after",
    "delete-pod:before",
    "delete-pod:after",
    "delete-member:before",
    "delete-member:after",
    "create-pod:before",
    "create-pod:after",
    "delete-pod:after",
    "create-pod:after",
    "delete-pvc:after",
];

#[tokio::test]
async fn a_recovery_outlives_an_operator_that_dies_at_each_of_its_steps() {
    let mut scene = Scene::new("stubborn").await;
    scene.cluster("db", 3).await;
    let id = converged(&scene, "db", 3, LIMIT).await.status_or_default().cluster_id;
    put(&scene, "db", "kept", "1").await;
    let all = members(&scene, "db").await;
    let [first, second, survivor] = all.as_slice() else { panic!("{all:?}") };
    let before = identities(&scene).await[survivor].clone();
    // Their Pods stay, and their etcds end again and again: they have to be fenced.
    scene.annotate("db", labels::RECONCILE_PAUSED, Some("true")).await;
    says(&scene, "db", [conditions::PROGRESSING, "False", "ReconcilePaused", ""]).await;
    let strangers = ids(&scene, &[first.clone(), second.clone()]).await;
    data::wipe(first);
    data::wipe(second);
    says(&scene, "db", [conditions::AVAILABLE, "False", "QuorumLost", ""]).await;
    scene.annotate("db", labels::RECONCILE_PAUSED, None).await;
    let words = "nobody is replaced";
    says_within(&scene, "db", [conditions::DEGRADED, "True", "DataDirectoryEmpty", words], LIMIT).await;
    scene.stop().await;

    let pods = History::<Pod>::start(scene.api()).await;
    recover(&scene, "db", survivor).await;
    let steps: Vec<String> = STEPS.map(str::to_owned).to_vec();
    chain::run(&mut scene, &steps, "db", 3).await;
    let cluster = scene.get("db").await.status_or_default();
    assert_eq!(cluster.cluster_id, id);
    assert_eq!(cluster.recovery.map(|r| r.phase), Some(RecoveryPhase::Recovered));
    assert!(holds(&scene, "db", "kept").await);
    assert_eq!(identities(&scene).await[survivor], before);
    // While the flag was given nobody else had a Pod.
    let mut there = BTreeSet::new();
    for seen in pods.all() {
        let name = seen.object.name_any();
        if seen.gone {
            there.remove(&name)
        } else {
            there.insert(name.clone())
        };
        if is_flagged(&seen.object) && !seen.gone {
            assert_eq!(there, BTreeSet::from([survivor.clone()]), "Pods beside the flag");
        }
    }
    eventually("the lost members are gone", LIMIT, async || {
        let now = identities(&scene).await;
        if now.contains_key(first) || now.contains_key(second) { Err(format!("{now:?}")) } else { Ok(()) }
    })
    .await
    .unwrap();
    let strangers: Vec<&str> = strangers.iter().map(String::as_str).collect();
    trace::check(&scene, &strangers);
    scene.finish().await;
}
