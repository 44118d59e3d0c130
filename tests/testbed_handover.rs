//! Two operators for the same clusters: one acts, and the other goes on where it left off.
//!
//! Run as `testbed exec -- cargo test --features failpoints --test testbed_handover`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends at its first surprise; clippy knows that only of the #[test] functions themselves"
)]

mod support;

use std::time::{Duration, Instant};

use etcd_operator_testbed::{OperatorProcess, eventually};
use k8s_openapi::api::coordination::v1::Lease;
use support::converged::converged;
use support::frozen::Frozen;
use support::link::Link;
use support::writer::Writer;
use support::{Scene, etcd, trace};

const LIMIT: Duration = Duration::from_secs(180);
/// The Lease lasts 15 s from its last renewal; the rest is for the successor's next look at it.
const TAKEOVER: Duration = Duration::from_secs(20);
const FIRST: (&str, &str) = ("POD_UID", "00000000-0000-4000-8000-00000000000a");
const SECOND: (&str, &str) = ("POD_UID", "00000000-0000-4000-8000-00000000000b");

/// The outcome of a change that was sent and not answered yet, in the operator's log.
const SENT: &str = "\"outcome\":\"sent\"";

/// Who holds the operators' Lease.
async fn holder(scene: &Scene) -> Result<String, String> {
    let lease =
        scene.api::<Lease>().get("aa20b3a9.etcd-operator.cozystack.io").await.map_err(|e| e.to_string())?;
    lease.spec.and_then(|s| s.holder_identity).filter(|h| !h.is_empty()).ok_or_else(|| "nobody".to_owned())
}

async fn held_by(scene: &Scene, who: &str, limit: Duration) -> Duration {
    let start = Instant::now();
    eventually(&format!("{who} holds the Lease"), limit, async || {
        let holder = holder(scene).await?;
        if holder == who { Ok(()) } else { Err(holder) }
    })
    .await
    .unwrap();
    start.elapsed()
}

/// Until the cluster has two voters, on the way to three.
async fn two_voters(scene: &Scene) {
    eventually("two voters", LIMIT, async || {
        let list = etcd::list(scene, "db").await?;
        if list.counts().0 >= 2 { Ok(()) } else { Err(format!("{list:?}")) }
    })
    .await
    .unwrap();
}

/// Waits until this operator has said that it sends this change, and returns at that very moment.
async fn sends(operator: &OperatorProcess, change: &str) {
    let change = format!("\"change\":\"{change}\"");
    let is_it = |line: &str| line.contains(&change) && line.contains(SENT);
    let sent = async {
        while !operator.log().unwrap().lines().any(is_it) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(LIMIT, sent).await.unwrap_or_else(|_| panic!("no {change} was sent"));
}

fn sent(log: &str) -> usize {
    log.lines().filter(|l| l.contains("\"etcd_operator::membership\"") && l.contains(SENT)).count()
}

fn writes(log: &str) -> usize {
    log.lines().filter(|l| l.contains("\"etcd_operator::membership\"")).count()
}

// AP-06
#[tokio::test]
async fn the_second_operator_waits_and_takes_over_when_the_first_is_killed_in_the_middle_of_a_growth() {
    let mut scene = Scene::without_operator("two").await;
    scene.start(&[FIRST]).await;
    held_by(&scene, FIRST.1, TAKEOVER).await;
    let second = scene.another(&[SECOND]);
    scene.cluster("db", 1).await;
    converged(&scene, "db", 1, LIMIT).await;
    let writer = Writer::start(&scene, "db").await;
    scene.scale("db", 3).await;
    two_voters(&scene).await;
    assert_eq!(writes(&second.log().unwrap()), 0, "it acts without the Lease");

    let mut first = scene.operator.replace(second).unwrap();
    first.kill().await.unwrap();
    held_by(&scene, SECOND.1, TAKEOVER).await;
    converged(&scene, "db", 3, LIMIT).await;
    assert_eq!(scene.count().await, [3, 3, 3, 2], "members, Pods, PVCs, Services");
    writer.finish(&scene).await;
    let counts = trace::check(&scene, &[]);
    assert_eq!((counts["member-add"], counts["member-promote"]), (2, 2), "{counts:?}");
    scene.finish().await;
}

#[tokio::test]
async fn an_operator_that_ends_when_asked_hands_its_lease_over_at_once() {
    let mut scene = Scene::without_operator("hand").await;
    scene.start(&[FIRST]).await;
    held_by(&scene, FIRST.1, TAKEOVER).await;
    let second = scene.another(&[SECOND]);
    let first = scene.operator.replace(second).unwrap();
    assert!(first.stop().await.unwrap().success());
    let took = held_by(&scene, SECOND.1, TAKEOVER).await;
    assert!(took < Duration::from_secs(8), "a Lease that was given back was taken after {took:?}");
    scene.finish().await;
}

#[tokio::test]
async fn a_restarted_container_resumes_its_own_lease_at_once() {
    let mut scene = Scene::without_operator("same").await;
    scene.start(&[FIRST]).await;
    held_by(&scene, FIRST.1, TAKEOVER).await;
    scene.cluster("db", 1).await;
    converged(&scene, "db", 1, LIMIT).await;
    scene.operator().restart_with(&[FIRST]).await.unwrap();
    let start = Instant::now();
    scene.scale("db", 2).await;
    eventually("the restarted operator at work", Duration::from_secs(10), async || {
        let count = scene.count().await;
        if count[0] == 2 { Ok(()) } else { Err(format!("{count:?}")) }
    })
    .await
    .unwrap();
    assert!(start.elapsed() < Duration::from_secs(10));
    converged(&scene, "db", 2, LIMIT).await;
    trace::check(&scene, &[]);
    scene.finish().await;
}

// AP-06: it stands still from the moment at which it sends a change until its successor has done all there was to do.
#[tokio::test]
async fn an_operator_that_wakes_after_its_lease_ran_out_in_the_middle_of_a_change_does_nothing_and_ends() {
    let mut scene = Scene::without_operator("froze").await;
    let link = Link::open(&scene.testbed, scene.namespace.name(), 2).await;
    scene.start(&[FIRST, link.variable()]).await;
    held_by(&scene, FIRST.1, TAKEOVER).await;
    let second = scene.another(&[SECOND]);
    scene.cluster("db", 1).await;
    converged(&scene, "db", 1, LIMIT).await;
    let writer = Writer::start(&scene, "db").await;
    let mut first = scene.operator.replace(second).unwrap();
    scene.scale("db", 3).await;
    sends(&first, "member-promote").await;
    let frozen = Frozen::operator(&first);
    held_by(&scene, SECOND.1, 2 * TAKEOVER).await;
    converged(&scene, "db", 3, LIMIT).await;

    let (before, woken) = (sent(&first.log().unwrap()), scene.testbed.audit_log().mark().unwrap());
    drop(frozen);
    let status = first.wait(LIMIT).await.unwrap();
    assert!(!status.success(), "an operator that lost its Lease ends, to be started anew");
    assert_eq!(sent(&first.log().unwrap()), before, "it sent a change after it woke");
    let namespace = scene.namespace.name();
    let late = scene.testbed.audit_log().since(woken).unwrap().of_source(link.source());
    // A write that was on its way when it froze arrives now, and the API server refuses it: the object is another one.
    // Only the Event about what it had done before is still told.
    let late = late.filter(|r| r.namespace == namespace && r.code < 400 && r.resource != "events");
    assert_eq!(late.writes(), 0, "it wrote after it woke: {:?}", late.counts());

    converged(&scene, "db", 3, LIMIT).await;
    assert_eq!(scene.count().await, [3, 3, 3, 2], "members, Pods, PVCs, Services");
    writer.finish(&scene).await;
    let counts = trace::check(&scene, &[]);
    assert_eq!((counts["member-add"], counts["member-promote"]), (2, 2), "{counts:?}");
    scene.finish().await;
}

// AP-06: it could still reach etcd, and must not.
#[tokio::test]
async fn an_operator_cut_off_from_the_api_server_stops_in_time_and_its_successor_goes_on() {
    let mut scene = Scene::without_operator("alone").await;
    let link = Link::open(&scene.testbed, scene.namespace.name(), 3).await;
    scene.start(&[FIRST, link.variable()]).await;
    held_by(&scene, FIRST.1, TAKEOVER).await;
    let second = scene.another(&[SECOND]);
    scene.cluster("db", 1).await;
    converged(&scene, "db", 1, LIMIT).await;
    let writer = Writer::start(&scene, "db").await;
    let mut first = scene.operator.replace(second).unwrap();
    scene.scale("db", 3).await;
    two_voters(&scene).await;
    link.cut();
    let status = first.wait(LIMIT).await.unwrap();
    assert!(!status.success(), "an operator that lost its Lease ends, to be started anew");
    let log = first.log().unwrap();
    let (_, after) = log.split_once("the Lease is no longer ours").expect("it knows why it ends");
    assert_eq!(sent(after), 0, "it sent a change after its Lease was over: {after}");

    held_by(&scene, SECOND.1, TAKEOVER).await;
    converged(&scene, "db", 3, LIMIT).await;
    assert_eq!(scene.count().await, [3, 3, 3, 2], "members, Pods, PVCs, Services");
    writer.finish(&scene).await;
    let counts = trace::check(&scene, &[]);
    assert_eq!((counts["member-add"], counts["member-promote"]), (2, 2), "{counts:?}");
    scene.finish().await;
}
