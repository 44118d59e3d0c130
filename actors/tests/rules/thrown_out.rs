//! Pods that are thrown out again at once: by a node that refuses them, or by somebody who deletes them.

use crate::world::{World, secs};

// LS-03
#[tokio::test(start_paused = true)]
async fn a_member_whose_pods_are_thrown_out_gets_new_ones_at_growing_intervals_and_comes_back() {
    let world = World::with_formed(3).await;
    world.run_for(secs(60)).await;
    let victim = world.members("c").remove(1);
    let made = |member: &str| -> Vec<u64> {
        let done = world.done();
        done.iter().filter(|d| d.verb == "CreatePod" && d.member == member).map(|d| d.at.0 / 1_000).collect()
    };
    let before: Vec<usize> = world.members("c").iter().map(|m| made(m).len()).collect();
    world.at(|s| s.held.insert(victim.clone()));
    let begin = world.now().0 / 1_000;
    for _ in 0..600 {
        world.delete_pod(&victim);
        world.run_for(secs(1)).await;
    }
    let times: Vec<u64> = made(&victim).into_iter().filter(|t| *t >= begin).collect();
    assert!((5..=12).contains(&times.len()), "Pods were made at {times:?} in ten minutes from {begin} on");
    let gaps: Vec<u64> = times.windows(2).map(|w| w[1] - w[0]).collect();
    assert!(gaps.last() > Some(&60) && gaps[0] < 10, "gaps of {gaps:?} s");
    assert_eq!(world.degraded("c"), "PodEnded");
    let after: Vec<usize> = world.members("c").iter().map(|m| made(m).len()).collect();
    let others = before.iter().zip(&after).filter(|(before, after)| before == after).count();
    assert_eq!(others, 2, "the other members were left alone");
    world.release(&victim);
    world.until_settled("c", 3, secs(300)).await;
    assert_eq!(world.degraded("c"), "Reconciled");
}
