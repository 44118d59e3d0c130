//! The stores against an API server in memory, whose watches stay silent, and against made-up events.

use std::{collections::HashSet, sync::Arc, time::Duration};

use futures::stream;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::*;
use crate::fake_api::{FakeApi, Fault};

const GROUP: &str = "/apis/etcd-operator.cozystack.io/v1alpha2";

fn cluster(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "etcd-operator.cozystack.io/v1alpha2", "kind": "EtcdCluster",
        "metadata": {"namespace": namespace, "name": name, "uid": format!("uid-of-{name}")},
        "spec": {"version": "3.6.16"}})
}

fn member(name: &str, cluster: &str, owner: &str) -> Value {
    json!({"apiVersion": "etcd-operator.cozystack.io/v1alpha2", "kind": "EtcdMember",
        "metadata": {"namespace": "ns", "name": name, "uid": format!("uid-of-{name}"), "resourceVersion": "1",
            "ownerReferences": [{"apiVersion": "x", "kind": "EtcdCluster", "name": cluster, "uid": owner,
                "controller": true}]},
        "spec": {"clusterName": cluster, "version": "3.6.16", "storage": {}, "initialCluster": "",
            "clusterToken": "t"}})
}

fn pod(name: &str, member: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "ns", "name": name, "uid": format!("pod-{name}"), "resourceVersion": "1",
            "managedFields": [{"manager": "m"}],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "kept": "yes"},
            "ownerReferences": [{"apiVersion": "x", "kind": "EtcdMember", "name": member,
                "uid": format!("uid-of-{member}"), "controller": true}]},
        "spec": {"nodeName": "n", "containers": [{"name": "etcd", "image": "i", "env": [{"name": "A", "value": "secret"}]}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data-x"}},
                {"name": "tls", "secret": {"secretName": "s"}}]},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "hostIP": "1.2.3.4",
            "containerStatuses": [
                {"name": "etcd", "image": "i", "imageID": "i", "ready": true, "restartCount": 0},
                {"name": "injected", "image": "i", "imageID": "i", "ready": true, "restartCount": 0}]}})
}

/// Stores without watches, to which a test feeds events.
struct Bench {
    stores: Stores,
}

impl Bench {
    fn new(watches: usize) -> Self {
        let shared = Arc::new(Shared::new(watches, None));
        Self { stores: Stores { shared, _watches: Arc::new(JoinSet::new()) } }
    }

    async fn feed<K>(
        &self,
        number: usize,
        scope: Option<&str>,
        cache: fn(&Shared) -> &Cache<K>,
        events: Vec<watcher::Event<Value>>,
    ) where
        K: Watched + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        let shared = self.stores.shared.clone();
        let watch = Watch { shared, cache, scope: scope.map(str::to_owned), number };
        let typed = |value: Value| serde_json::from_value::<Decoded<K>>(value).unwrap();
        let events = events.into_iter().map(move |event| {
            Ok(match event {
                watcher::Event::Init => watcher::Event::Init,
                watcher::Event::InitDone => watcher::Event::InitDone,
                watcher::Event::InitApply(v) => watcher::Event::InitApply(typed(v)),
                watcher::Event::Apply(v) => watcher::Event::Apply(typed(v)),
                watcher::Event::Delete(v) => watcher::Event::Delete(typed(v)),
            })
        });
        watch.follow(stream::iter(events)).await;
    }

    async fn members(&self, events: Vec<watcher::Event<Value>>) {
        self.feed(0, None, |s| &s.members, events).await;
    }
}

fn names(members: &[Arc<EtcdMember>]) -> Vec<&str> {
    members.iter().filter_map(|m| m.metadata.name.as_deref()).collect()
}

use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};

#[tokio::test]
async fn members_are_found_by_the_uid_of_their_cluster_through_every_change() {
    let bench = Bench::new(1);
    bench.members(vec![Init, InitApply(member("b", "c", "one")), InitApply(member("a", "c", "one"))]).await;
    bench.members(vec![Apply(member("z", "c", "two"))]).await;
    assert_eq!(names(&bench.stores.members_of(&"one".into())), ["a", "b"]);
    assert_eq!(names(&bench.stores.members_of(&"two".into())), ["z"]);
    assert_eq!(bench.stores.owners("ns", "c"), BTreeSet::from(["one".into(), "two".into()]));

    let mut moved = member("a", "c", "two");
    moved["metadata"]["resourceVersion"] = json!("2");
    bench.members(vec![Apply(moved), Delete(member("z", "c", "two"))]).await;
    assert_eq!(names(&bench.stores.members_of(&"one".into())), ["b"]);
    assert_eq!(names(&bench.stores.members_of(&"two".into())), ["a"]);
}

#[tokio::test]
async fn a_relist_takes_out_what_went_unseen_and_tells_only_what_is_different() {
    let bench = Bench::new(1);
    let (a, b) = (member("a", "c", "one"), member("b", "c", "one"));
    bench.members(vec![Init, InitApply(a.clone()), InitApply(b), InitDone]).await;
    bench.stores.feed().next().await;
    let mut new = member("d", "c", "one");
    new["metadata"]["resourceVersion"] = json!("9");
    bench.members(vec![Init, InitApply(a), InitApply(new), InitDone]).await;
    assert_eq!(names(&bench.stores.members_of(&"one".into())), ["a", "d"]);
    let told: HashSet<String> = bench.stores.feed().next().await.into_iter().map(|t| t.name).collect();
    assert_eq!(told, HashSet::from(["b".to_owned(), "d".to_owned()]));
}

#[tokio::test]
async fn a_relist_of_one_namespace_leaves_the_others_alone() {
    let bench = Bench::new(2);
    let in_namespace = |namespace: &str| {
        let mut cluster = cluster(namespace, "c");
        cluster["metadata"]["uid"] = json!(namespace);
        cluster
    };
    let stores = &bench.stores;
    bench.feed(0, Some("a"), |s| &s.clusters, vec![Init, InitApply(in_namespace("a")), InitDone]).await;
    assert!(!stores.is_ready(), "one of two watches is not all");
    bench.feed(1, Some("b"), |s| &s.clusters, vec![Init, InitApply(in_namespace("b")), InitDone]).await;
    assert!(stores.is_ready());
    bench.feed(0, Some("a"), |s| &s.clusters, vec![Init, InitDone]).await;
    assert!(stores.cluster("a", "c").is_none());
    assert!(stores.cluster("b", "c").is_some());
    assert!(stores.cluster_by_uid(&"b".into()).is_some());
}

// VC-05
#[tokio::test]
async fn an_object_that_does_not_decode_stops_no_other_and_recovers() {
    let bench = Bench::new(1);
    let mut bad = member("bad", "c", "one");
    bad["spec"]["replicas"] = json!("many");
    let events = vec![Init, InitApply(bad.clone()), InitApply(member("good", "c", "one")), InitDone];
    bench.members(events).await;
    assert!(bench.stores.is_ready());
    assert_eq!(names(&bench.stores.members_of(&"one".into())), ["good"]);
    let unreadable = bench.stores.unreadable();
    assert_eq!((unreadable.len(), unreadable[0].name.as_str()), (1, "bad"));
    bench.stores.feed().next().await;

    bench.members(vec![Apply(bad)]).await;
    let silence = tokio::time::timeout(Duration::from_millis(10), bench.stores.feed().next()).await;
    assert!(silence.is_err(), "the same trouble is not news");

    bench.members(vec![Apply(member("bad", "c", "one"))]).await;
    assert_eq!(names(&bench.stores.members_of(&"one".into())), ["bad", "good"]);
    assert_eq!(bench.stores.unreadable(), []);
}

// VC-05
#[tokio::test(start_paused = true)]
async fn an_object_that_does_not_decode_is_shown_once_at_the_object() {
    let api = FakeApi::default();
    let mut bad = member("bad", "c", "one");
    bad["spec"]["replicas"] = json!("many");
    api.put(&format!("{GROUP}/etcdmembers/bad"), bad);
    let events = crate::events::Events::start(api.client(), "i".into());
    let stores = Stores::start_telling(api.client(), &[], Some(events));
    stores.ready().await;
    sleep(Duration::from_secs(1)).await;
    let told: Vec<_> = api.take_log().into_iter().filter(|r| r.path.ends_with("/events")).collect();
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].body["reason"], "UnreadableObject");
    assert_eq!(told[0].body["regarding"]["name"], "bad");
}

// VC-05
#[tokio::test]
async fn an_object_that_becomes_unreadable_does_not_look_deleted() {
    let bench = Bench::new(1);
    bench.members(vec![Init, InitApply(member("a", "c", "one")), InitDone]).await;
    let mut bad = member("a", "c", "one");
    bad["spec"]["replicas"] = json!("many");
    bench.members(vec![Apply(bad.clone())]).await;
    assert_eq!(names(&bench.stores.members_of(&"one".into())), ["a"]);
    bench.members(vec![Init, InitApply(bad), InitDone]).await;
    assert_eq!(names(&bench.stores.members_of(&"one".into())), ["a"], "after a relist too");
}

// AP-02
#[tokio::test]
async fn a_pod_is_kept_without_what_nobody_needs() {
    let bench = Bench::new(1);
    bench.feed(0, None, |s| &s.pods, vec![Init, InitApply(pod("p", "m")), InitDone]).await;
    let kept = json!(*bench.stores.pod("ns", "p").unwrap());
    assert_eq!(kept["metadata"]["managedFields"], Value::Null);
    assert_eq!(kept["metadata"]["annotations"], json!({"kept": "yes"}));
    assert_eq!(kept["spec"]["containers"], json!([{"name": "etcd", "image": "i"}]));
    assert_eq!(kept["spec"]["nodeName"], "n");
    assert_eq!(kept["spec"]["volumes"].as_array().unwrap().len(), 1);
    assert_eq!(kept["status"]["podIP"], "10.0.0.1");
    assert_eq!(kept["status"]["containerStatuses"].as_array().unwrap().len(), 1);
    assert!(!kept.to_string().contains("secret"));
}

#[tokio::test]
async fn a_pod_without_its_labels_still_wakes_its_cluster() {
    let bench = Bench::new(2);
    bench.members(vec![Init, InitApply(member("m", "c", "one")), InitDone]).await;
    bench.stores.feed().next().await;
    bench.feed(1, None, |s| &s.pods, vec![Init, InitApply(pod("m", "m")), InitDone]).await;
    let told = bench.stores.feed().next().await.into_iter().next().unwrap();
    assert_eq!((told.kind, told.cluster.as_deref()), (Kind::Pod, Some("c")));
    assert_eq!(told.owner_uid, Some("uid-of-m".into()));
    // Its label `managed-by` was taken off, which the watch shows as a deletion.
    bench.feed(1, None, |s| &s.pods, vec![Delete(pod("m", "m"))]).await;
    assert_eq!(bench.stores.feed().next().await.len(), 1);
}

#[tokio::test]
async fn a_thousand_clusters_leave_nothing_behind_in_the_indexes() {
    let bench = Bench::new(1);
    let all: Vec<Value> =
        (0..1_000).map(|i| member(&format!("m{i}"), &format!("c{i}"), &format!("o{i}"))).collect();
    bench.members(all.iter().cloned().map(Apply).collect()).await;
    assert_eq!(bench.stores.members_of(&"o7".into()).len(), 1);
    bench.members(all.into_iter().map(Delete).collect()).await;
    assert_eq!(bench.stores.cluster_names(), BTreeSet::new());
    assert!(format!("{:?}", bench.stores.shared.members).len() < 400, "an index kept something");
}

// CL-06
#[tokio::test(start_paused = true)]
async fn nothing_is_ready_before_the_last_store_is_filled() {
    for late in
        ["pods", "persistentvolumeclaims", "services", "poddisruptionbudgets", "etcdmembers", "etcdclusters"]
    {
        let api = FakeApi::default();
        api.put(&format!("{GROUP}/etcdclusters/x"), cluster("ns", "x"));
        api.faults(move |seen| {
            if seen.path.ends_with(late) { Fault::Slow(Duration::from_secs(30)) } else { Fault::None }
        });
        let stores = Stores::start(api.client(), &[]);
        let began = tokio::time::Instant::now();
        sleep(Duration::from_secs(29)).await;
        assert!(!stores.is_ready(), "{late}");
        stores.ready().await;
        assert!(began.elapsed() >= Duration::from_secs(30), "{late}");
        assert!(stores.cluster("ns", "x").is_some());
    }
}

// AP-02
#[tokio::test(start_paused = true)]
async fn with_a_namespace_list_no_request_goes_to_any_other() {
    let api = FakeApi::default();
    let stores = Stores::start(api.client(), &["a".into(), "b".into()]);
    stores.ready().await;
    sleep(Duration::from_secs(1)).await;
    let log = api.take_log();
    assert!(!log.is_empty());
    for seen in &log {
        assert!(seen.path.contains("/namespaces/a/") || seen.path.contains("/namespaces/b/"), "{seen:?}");
    }
    let labelled = |seen: &&crate::fake_api::Seen| !seen.path.contains("etcd-operator.cozystack.io");
    for seen in log.iter().filter(labelled) {
        assert!(
            seen.query.contains("labelSelector=app.kubernetes.io%2Fmanaged-by%3Detcd-operator"),
            "{seen:?}"
        );
    }
}

// AP-03
#[tokio::test(start_paused = true)]
async fn refused_lists_are_repeated_ever_more_slowly_and_recover_by_themselves() {
    let api = FakeApi::default();
    api.faults(|_| Fault::Refuse(429));
    let stores = Stores::start(api.client(), &[]);
    sleep(Duration::from_secs(60)).await;
    api.take_log();
    sleep(Duration::from_secs(60)).await;
    let requests = api.take_log().len();
    assert!(requests <= 8 * 6, "{requests} requests of 8 watches in a minute");
    assert_eq!(stores.troubles().len(), 8);
    api.faults(|_| Fault::None);
    tokio::time::timeout(Duration::from_secs(120), stores.ready()).await.unwrap();
    assert_eq!(stores.troubles(), Vec::<String>::new());
}
