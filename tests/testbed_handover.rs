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

use etcd_operator_testbed::eventually;
use k8s_openapi::api::coordination::v1::Lease;
use support::converged::converged;
use support::writer::Writer;
use support::{Scene, etcd, trace};

const LIMIT: Duration = Duration::from_secs(180);
/// The Lease lasts 15 s from its last renewal; the rest is for the successor's next look at it.
const TAKEOVER: Duration = Duration::from_secs(20);
const FIRST: (&str, &str) = ("POD_UID", "00000000-0000-4000-8000-00000000000a");
const SECOND: (&str, &str) = ("POD_UID", "00000000-0000-4000-8000-00000000000b");

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
