//! A node that is gone: how long that has been so is what this operator has seen itself.

use crate::world::{World, secs};

// LS-10
#[tokio::test(start_paused = true)]
async fn a_member_on_a_lost_node_is_replaced_after_the_time_that_one_operator_has_watched_it_for() {
    let mut world = World::new(1);
    world.lost_node_after = Some(secs(600));
    world.create_cluster("c", 3);
    world.start_operator().await;
    world.until_settled("c", 3, secs(120)).await;
    world.run_for(secs(6)).await;
    let before = world.members("c");
    let victim = before[1].clone();
    // Nobody ends its Pod.
    world.at(|s| s.knobs.terminate = secs(86_400));
    world.hold(&victim);
    world.delete_pod(&victim);
    world.run_for(secs(570)).await;
    assert_eq!(world.members("c"), before);
    world.kill_operator().await;
    world.start_operator().await;
    world.run_for(secs(570)).await;
    assert_eq!(world.members("c"), before, "another life has another clock");
    world.until("etcd has let go of it", secs(120), |w| w.standing("c").voters == 2).await;
    world.until("another one votes", secs(120), |w| w.standing("c").voters == 3).await;
    assert_eq!(world.members("c").len(), 4, "what is left of it waits for its Pod");
    world.check();
}

// LS-10
#[tokio::test(start_paused = true)]
async fn a_member_on_a_lost_node_is_waited_for_unless_a_person_has_said_for_how_long() {
    let world = World::with_formed(3).await;
    let before = world.members("c");
    world.at(|s| s.knobs.terminate = secs(86_400));
    world.hold(&before[1]);
    world.delete_pod(&before[1]);
    world.run_for(secs(7_200)).await;
    assert_eq!(world.members("c"), before);
    assert_eq!(world.degraded("c"), "MembersUnhealthy");
}
