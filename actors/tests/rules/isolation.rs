//! Rule 10 and AP-05: only a guard waits for etcd, and nobody waits for another cluster.

use std::time::Duration;

use crate::world::{Fault, World, secs};

/// Brings up twelve clusters of one, makes the first three sick, and returns how long each of the
/// other nine takes to grow to three.
async fn growth_beside(sick: impl Fn(&World, &str)) -> Vec<Duration> {
    let mut world = World::new(7);
    let names: Vec<String> = (0..12).map(|n| format!("c{n}")).collect();
    for name in &names {
        world.create_cluster(name, 1);
    }
    world.run_for(secs(1)).await;
    world.start_operator().await;
    for name in &names {
        world.until_settled(name, 1, secs(30)).await;
    }
    for name in &names[..3] {
        sick(&world, name);
    }
    for name in &names {
        world.scale(name, 3);
    }
    let begun = tokio::time::Instant::now();
    let mut took = vec![];
    for name in &names[3..] {
        world.until_settled(name, 3, secs(60)).await;
        took.push(begun.elapsed());
    }
    took
}

async fn healthy() -> Duration {
    growth_beside(|_, _| {}).await.into_iter().max().unwrap()
}

// AP-05
#[tokio::test(start_paused = true)]
async fn clusters_whose_etcd_answers_nobody_do_not_delay_the_others() {
    let usual = healthy().await;
    let took = growth_beside(|w, name| w.mute(name, true)).await;
    assert!(took.iter().all(|t| *t <= usual + secs(3)), "{took:?} as against {usual:?}");
}

// AP-05
#[tokio::test(start_paused = true)]
async fn api_calls_that_hang_for_some_clusters_do_not_delay_the_others() {
    let usual = healthy().await;
    for fault in [Fault::Never, Fault::LostRequest(secs(10))] {
        let took = growth_beside(|w, name| w.fault_in(name, &[], u32::MAX, fault.clone())).await;
        assert!(took.iter().all(|t| *t <= usual + secs(3)), "{fault:?}: {took:?} as against {usual:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_supervisor_goes_on_while_its_guard_waits_for_etcd() {
    let world = World::with_formed(3).await;
    world.fault(&["GuardList"], u32::MAX, Fault::Slow(secs(15)));
    world.run_for(secs(60)).await;
    let member = world.members("c")[0].clone();
    world.hold(&member);
    let took = world.until("it is told", secs(30), |w| w.degraded("c") == "MembersUnhealthy").await;
    assert!(took <= secs(5), "{took:?}");
}

// One question is kept for each asker, and one list answers all who must wait.
#[tokio::test(start_paused = true)]
async fn a_guard_keeps_one_question_for_each_asker() {
    let world = World::with_formed(5).await;
    world.fault(&["GuardList"], u32::MAX, Fault::Slow(secs(12)));
    for member in world.members("c") {
        world.delete_member(&member);
    }
    world.scale("c", 6);
    let before = (world.counter("guard_verdicts"), world.at(|s| s.journal.lists.len()));
    world.run_for(secs(120)).await;
    let verdicts = world.counter("guard_verdicts") - before.0;
    let lists = world.at(|s| s.journal.lists.len()) - before.1;
    assert!(lists <= 11, "{lists} lists at 12 s each in two minutes");
    assert!(verdicts as usize <= lists * 6, "{verdicts} verdicts on {lists} lists");
}
