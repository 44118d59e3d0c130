//! The status tells the truth within seconds, whatever the operator is busy with or failing at.

use etcd_operator_core::{reason::Reason, view::SpecWarning};
use etcd_operator_kubernetes::failure::ApiFailure;

use crate::world::{Fault, World, secs};

/// Everything but the status itself.
const EFFECTS: [&str; 11] = [
    "PutService",
    "CreateMember",
    "DeleteMember",
    "CreatePvc",
    "CreatePod",
    "PatchPod",
    "DeletePod",
    "DeletePvc",
    "RecordJoin",
    "Release",
    "WriteMemberStatus",
];

// MQ-10
#[tokio::test(start_paused = true)]
async fn a_cluster_whose_members_are_all_silent_is_unreachable_within_seconds() {
    let world = World::with_formed(3).await;
    world.run_for(secs(100)).await;
    world.mute("c", true);
    let took = world.until("it is told", secs(60), |w| w.available("c") == "ClusterUnreachable").await;
    assert!(took <= secs(15), "{took:?}");
    let pods = world.at(|s| s.truth.pods.len());
    let looks = |w: &World| w.at(|s| s.journal.looks.len());
    let before = looks(&world);
    world.run_for(secs(3_600)).await;
    // AP-03: once in ten seconds for each member, less a fifth of jitter.
    let an_hour = looks(&world) - before;
    assert!(an_hour <= 3 * 500, "{an_hour} looks in an hour");
    assert_eq!(world.at(|s| s.truth.pods.len()), pods, "nothing is rebuilt without being asked");
    world.mute("c", false);
    let took = world.until("it is told", secs(60), |w| w.available("c") == "QuorumHealthy").await;
    assert!(took <= secs(15), "{took:?}");
}

// MQ-10
#[tokio::test(start_paused = true)]
async fn a_lost_quorum_is_told_within_seconds() {
    let world = World::with_formed(3).await;
    world.run_for(secs(100)).await;
    let members = world.members("c");
    world.hold(&members[0]);
    world.hold(&members[2]);
    let took = world.until("it is told", secs(60), |w| w.available("c") == "QuorumLost").await;
    assert!(took <= secs(15), "{took:?}");
}

// MQ-10, MT-02
#[tokio::test(start_paused = true)]
async fn the_status_stays_true_while_every_other_write_fails() {
    for fault in [
        Fault::Api(ApiFailure::Forbidden("no".into())),
        Fault::Api(ApiFailure::Unreachable("refused".into())),
        Fault::LostRequest(secs(10)),
        Fault::Never,
    ] {
        let world = World::with_formed(3).await;
        world.fault(&EFFECTS, u32::MAX, fault.clone());
        world.scale("c", 5);
        world.run_for(secs(100)).await;
        world.mute("c", true);
        let took = world.until("it is told", secs(60), |w| w.available("c") == "ClusterUnreachable").await;
        assert!(took <= secs(15), "{fault:?}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn writes_that_are_refused_are_told_with_the_servers_words() {
    let world = World::with_formed(1).await;
    world.fault(&["CreateMember"], u32::MAX, Fault::Api(ApiFailure::Forbidden("etcdmembers".into())));
    world.scale("c", 3);
    world.until("it is told", secs(60), |w| w.degraded("c") == "ObjectRefused").await;
    assert!(world.status("c").unwrap().degraded.message.contains("etcdmembers"));
    world.clear_faults();
    world.until_settled("c", 3, secs(180)).await;
    world.until("it is over", secs(120), |w| w.degraded("c") == "Reconciled").await;
}

// MT-02: a quota or a policy refuses a member's Pod.
#[tokio::test(start_paused = true)]
async fn a_refused_pod_is_told_with_the_servers_words_and_the_member() {
    let world = World::with_formed(1).await;
    let words = "exceeded quota: pods=1".to_owned();
    world.fault(&["CreatePod"], u32::MAX, Fault::Api(ApiFailure::Forbidden(words.clone())));
    world.scale("c", 2);
    let took = world.until("it is told", secs(60), |w| w.degraded("c") == "ObjectRefused").await;
    assert!(took <= secs(15), "{took:?}");
    let told = world.status("c").unwrap().degraded.message;
    let newcomer = world.members("c").pop().unwrap();
    assert!(told.contains(&words) && told.contains(&newcomer), "{told}");
    assert_eq!(world.available("c"), "QuorumAvailable", "one of two wanted serves");
    world.clear_faults();
    world.until_settled("c", 2, secs(180)).await;
    world.until("it is over", secs(120), |w| w.degraded("c") == "Reconciled").await;
}

// MT-03
#[tokio::test(start_paused = true)]
async fn a_situation_that_does_not_change_is_written_once() {
    let world = World::with_formed(3).await;
    world.hold(&world.members("c")[0].clone());
    world.run_for(secs(60)).await;
    let before = world.done().len();
    world.run_for(secs(3_600)).await;
    assert_eq!(world.done().len(), before, "{:?}", world.done().split_off(before));
}

// AP-07
#[tokio::test(start_paused = true)]
async fn a_status_converges_while_somebody_else_writes_the_cluster_every_second() {
    let world = World::with_cluster(3).await;
    for _ in 0..120 {
        world.run_for(secs(1)).await;
        world.edit_cluster("c", |_| {});
    }
    assert!(world.is_settled("c", 3), "{:?}", world.status("c"));
}

// MT-03: by Event, log and metric, under the one reason that the condition gives.
#[tokio::test(start_paused = true)]
async fn a_spec_that_may_do_harm_is_told_once_and_again_after_it_has_changed() {
    let world = World::with_formed(1).await;
    let told =
        |w: &World| w.at(|s| s.journal.told.iter().filter(|t| t.contains("MemoryLimitTooSmall")).count());
    let metric = r#"cluster_condition{namespace="ns",cluster="c",condition="SpecWarnings"} 1"#;
    let warnings = |words: &'static str| {
        let warning = SpecWarning { reason: Reason::MemoryLimitTooSmall, words: words.into() };
        world.edit_cluster("c", |c| c.warnings = vec![warning]);
    };
    assert!(!world.metrics().contains("SpecWarnings"));
    warnings("64Mi is too small");
    world.run_for(secs(600)).await;
    assert_eq!((told(&world), world.counter("spec_warnings")), (1, 1));
    assert!(world.metrics().contains(metric), "{}", world.metrics());
    warnings("32Mi is too small");
    world.run_for(secs(600)).await;
    assert_eq!((told(&world), world.counter("spec_warnings")), (2, 2));
    world.edit_cluster("c", |c| c.warnings = vec![]);
    world.run_for(secs(60)).await;
    assert_eq!(told(&world), 2);
    assert!(!world.metrics().contains("SpecWarnings"), "it is over");
}
