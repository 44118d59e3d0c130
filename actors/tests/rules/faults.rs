//! Rule 4: a fault of our own ends one actor, which is started again; everybody else lives on.

use etcd_operator_core::time::Time;

use crate::world::{Fault, Rule, World, secs};

/// The pauses between panics, in whole seconds.
fn pauses(panics: &[Time]) -> Vec<u64> {
    panics.windows(2).map(|w| w[1].since(w[0]).as_secs()).collect()
}

const DOUBLING: [u64; 19] =
    [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300, 300, 300, 300, 300, 300, 300, 300];

async fn survives_twenty_panics(point: &'static str) {
    let mut world = World::with_formed(3).await;
    world.create_cluster("other", 1);
    world.until_settled("other", 1, secs(30)).await;
    let member = (point == "MemberTurn").then(|| world.members("c")[0].clone());
    let rule = Rule { verbs: vec![point], cluster: Some("c".into()), member, times: 20, fault: Fault::Panic };
    world.at(|s| s.faults.rules.push(rule));
    world.until("the first panic", secs(60), |w| w.at(|s| !s.journal.panics.is_empty())).await;
    // The neighbours do not feel it.
    world.scale("other", 3);
    world.until_settled("other", 3, secs(30)).await;
    let told = |w: &World| w.degraded("c") == "OperatorFault";
    // A supervisor that fails in each turn cannot write the status; the log and the metric tell.
    if point != "SupervisorTurn" {
        world.until("it is told", secs(30), told).await;
    }
    world.until("twenty panics", secs(6_000), |w| w.at(|s| s.journal.panics.len()) == 20).await;
    let panics = world.at(|s| s.journal.panics.clone());
    // A turn that fails comes at once after the start, or, the guard's, with the next question.
    for (pause, least) in pauses(&panics).into_iter().zip(DOUBLING) {
        let late = if point == "GuardList" { 40 } else { 1 };
        assert!((least..=least + late).contains(&pause), "{:?}", pauses(&panics));
    }
    assert!(world.operator_lives());
    world.until("it is told", secs(301), told).await;
    world.until("it is started again", secs(301), |w| w.counter("actor_restarts") == 20).await;
    world.run_for(secs(301)).await;
    world.scale("c", 4);
    world.until_settled("c", 4, secs(60)).await;
    world.until("the fault is over", secs(120), |w| w.degraded("c") == "Reconciled").await;
    world.stop_operator().await;
}

// CL-09
#[tokio::test(start_paused = true)]
async fn a_member_actor_that_panics_twenty_times_is_started_again_each_time_and_alone() {
    survives_twenty_panics("MemberTurn").await;
}

// CL-09
#[tokio::test(start_paused = true)]
async fn a_guard_that_panics_twenty_times_is_started_again_each_time_and_alone() {
    survives_twenty_panics("GuardList").await;
}

// CL-09
#[tokio::test(start_paused = true)]
async fn a_supervisor_that_panics_twenty_times_is_started_again_each_time_and_alone() {
    survives_twenty_panics("SupervisorTurn").await;
}

// CL-09
#[tokio::test(start_paused = true)]
async fn a_panic_inside_an_effect_is_a_fault_like_any_other() {
    for verb in ["WriteStatus", "CreateMember", "CreatePvc", "CreatePod", "PatchPod", "WriteMemberStatus"] {
        let world = World::with_cluster(1).await;
        world.fault(&[verb], 1, Fault::Panic);
        world.until_settled("c", 1, secs(120)).await;
        assert_eq!(world.at(|s| s.journal.panics.len()), 1, "{verb}");
        assert_eq!(world.counter("actor_restarts"), 1, "{verb}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_actor_that_outlived_a_guard_asks_the_next_one() {
    let world = World::with_formed(1).await;
    world.scale("c", 3);
    world.fault(&["GuardList"], 1, Fault::Panic);
    world.until("the guard fell", secs(60), |w| w.at(|s| s.journal.panics.len()) == 1).await;
    world.until_settled("c", 3, secs(60)).await;
    assert_eq!(world.at(|s| s.guards), 2);
}
