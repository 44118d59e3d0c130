//! The gate against an API server in memory.

use std::time::Duration;

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde_json::json;

use super::*;
use crate::{
    fake_api::{FakeApi, Fault},
    lease::{LeaseLoop, LeaseSettings},
};

const POD: &str = "/api/v1/namespaces/ns/pods/p";

fn pod() -> Pod {
    Pod {
        metadata: ObjectMeta { namespace: Some("ns".into()), name: Some("p".into()), ..Default::default() },
        ..Default::default()
    }
}

fn open(api: &FakeApi) -> Writer {
    Writer::new(api.client(), Ownership::without_lease())
}

async fn created(writer: &Writer) -> Pod {
    match writer.create_pod(&pod()).await.unwrap() {
        Created::New(pod) => pod,
        Created::Exists => panic!("it exists"),
    }
}

#[tokio::test]
async fn a_second_create_of_the_same_name_is_a_value() {
    let api = FakeApi::default();
    let writer = open(&api);
    created(&writer).await;
    assert_eq!(writer.create_pod(&pod()).await, Ok(Created::Exists));
}

#[tokio::test]
async fn a_patch_of_an_object_that_changed_is_refused() {
    let api = FakeApi::default();
    let writer = open(&api);
    let read = Target::of(&created(&writer).await).unwrap();
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    let patched = writer.patch_pod(&read, patch.clone()).await.unwrap();
    assert_eq!(patched.metadata.labels.as_ref().unwrap()["a"], "b");
    let stale = writer.patch_pod(&read, patch).await;
    assert!(matches!(stale, Err(ApiFailure::Conflict(_))), "{stale:?}");
}

#[tokio::test]
async fn a_delete_hits_only_the_object_and_version_that_was_read() {
    let api = FakeApi::default();
    let writer = open(&api);
    let read = Target::of(&created(&writer).await).unwrap();
    for wrong in [
        Target { uid: "other".into(), ..read.clone() },
        Target { resource_version: "0".into(), ..read.clone() },
    ] {
        let refused = writer.delete_pod(&wrong).await;
        assert!(matches!(refused, Err(ApiFailure::Conflict(_))), "{refused:?}");
        assert!(api.get(POD).is_some());
    }
    assert_eq!(writer.delete_pod(&read).await, Ok(Deleted::Requested));
    assert_eq!(writer.delete_pod(&read).await, Ok(Deleted::Gone));
}

#[tokio::test(start_paused = true)]
async fn a_write_without_an_answer_is_ambiguous_and_is_not_repeated() {
    let api = FakeApi::default();
    let writer = open(&api);
    for fault in [Fault::LoseReply, Fault::ApplyThen(504), Fault::ApplyThen(500), Fault::ApplyThen(503)] {
        api.with(std::collections::BTreeMap::clear);
        api.take_log();
        api.faults(move |_| fault);
        let outcome = writer.create_pod(&pod()).await;
        assert!(matches!(outcome, Err(ApiFailure::Ambiguous(_))), "{fault:?}: {outcome:?}");
        assert_eq!(api.take_log().len(), 1, "{fault:?}");
        assert!(api.get(POD).is_some(), "the test means it to have landed");
    }
}

// AP-06
#[tokio::test(start_paused = true)]
async fn nothing_is_sent_once_ownership_ends_sooner_than_the_call_may_take() {
    let api = FakeApi::default();
    let settings = LeaseSettings { namespace: "o".into(), name: "l".into(), identity: "a".into() };
    let seat = LeaseLoop::start(api.client(), settings);
    let writer = Writer::new(api.client(), seat.acquired().await);
    let read = Target::of(&created(&writer).await).unwrap();

    api.faults(|seen| if seen.path.contains("leases") { Fault::Hang } else { Fault::None });
    tokio::time::sleep(Duration::from_secs(8)).await;
    api.take_log();
    assert!(seat.ownership().is_some(), "the Lease itself has not run out yet");
    assert_eq!(writer.delete_pod(&read).await, Err(ApiFailure::NotOwner));
    assert_eq!(writer.create_pod(&pod()).await, Err(ApiFailure::NotOwner));
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(writer.patch_pod(&read, patch).await, Err(ApiFailure::NotOwner));
    let sent = api.take_log();
    assert!(sent.iter().all(|r| r.path.contains("leases")), "{sent:?}");
}

const MEMBER: &str = "/apis/etcd-operator.cozystack.io/v1alpha2/namespaces/ns/etcdmembers/m";

fn member() -> EtcdMember {
    serde_json::from_value(json!({
        "apiVersion": "etcd-operator.cozystack.io/v1alpha2", "kind": "EtcdMember",
        "metadata": {"namespace": "ns", "name": "m", "finalizers": ["a/b", MEMBER_FINALIZER, "c/d"]},
        "spec": {"clusterName": "c", "version": "3.6.16", "storage": {}, "initialCluster": "", "clusterToken": "t"},
    }))
    .unwrap()
}

// CL-08
#[tokio::test]
async fn our_finalizer_is_taken_off_and_nobody_elses() {
    let api = FakeApi::default();
    let writer = open(&api);
    let Created::New(read) = writer.create_member(&member()).await.unwrap() else { panic!("it exists") };
    assert_eq!(writer.release_member(&read).await, Ok(Deleted::Requested));
    assert_eq!(api.get(MEMBER).unwrap()["metadata"]["finalizers"], json!(["a/b", "c/d"]));
    api.take_log();
    let again: EtcdMember = serde_json::from_value(api.get(MEMBER).unwrap()).unwrap();
    assert_eq!(writer.release_member(&again).await, Ok(Deleted::Requested));
    assert!(api.take_log().is_empty(), "there was nothing to take off");
}

// CL-08
#[tokio::test]
async fn a_finalizer_that_came_meanwhile_is_not_lost() {
    let api = FakeApi::default();
    let writer = open(&api);
    let Created::New(read) = writer.create_member(&member()).await.unwrap() else { panic!("it exists") };
    let mut edited = api.get(MEMBER).unwrap();
    edited["metadata"]["finalizers"] = json!(["a/b", MEMBER_FINALIZER, "c/d", "late/one"]);
    api.put(MEMBER, edited.clone());
    let raced = writer.release_member(&read).await;
    assert!(matches!(raced, Err(ApiFailure::Conflict(_))), "{raced:?}");
    assert_eq!(api.get(MEMBER).unwrap()["metadata"]["finalizers"], edited["metadata"]["finalizers"]);
}

#[tokio::test]
async fn a_status_patch_carries_the_version_and_only_what_changed() {
    let api = FakeApi::default();
    let writer = open(&api);
    let Created::New(read) = writer.create_member(&member()).await.unwrap() else { panic!("it exists") };
    api.take_log();
    let mut status = read.status_or_default();
    status.member_id = Some("00000000000000ab".into());
    let change = crate::patch::diff_of(read.status.as_ref(), &status).unwrap().unwrap();
    writer.patch_member_status(&Target::of(&read).unwrap(), change).await.unwrap();
    let sent = api.take_log().remove(0);
    assert!(sent.path.ends_with("/status"), "{}", sent.path);
    assert_eq!(sent.body["metadata"]["resourceVersion"], json!(read.metadata.resource_version));
    assert_eq!(sent.body["status"]["memberID"], "00000000000000ab");
    assert_eq!(sent.body["spec"], Value::Null);
}

#[tokio::test]
async fn an_object_that_was_never_read_cannot_be_written_to() {
    assert!(Target::of(&pod()).is_err());
}
