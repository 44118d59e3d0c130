//! A cluster's life without faults: it comes up, grows, shrinks, is left alone, goes.

use crate::world::{World, millis, secs};

#[tokio::test(start_paused = true)]
async fn a_cluster_of_one_comes_up() {
    let world = World::with_cluster(1).await;
    world.until_settled("c", 1, secs(10)).await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_of_three_comes_up() {
    let world = World::with_cluster(3).await;
    world.until_settled("c", 3, secs(30)).await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_of_five_comes_up() {
    let world = World::with_cluster(5).await;
    world.until_settled("c", 5, secs(60)).await;
}

// MQ-06
#[tokio::test(start_paused = true)]
async fn a_changed_mind_within_300_ms_leaves_no_member_without_an_object() {
    let world = World::with_formed(3).await;
    world.scale("c", 5);
    world.run_for(millis(300)).await;
    world.scale("c", 3);
    world.until_settled("c", 3, secs(120)).await;
    world.run_for(secs(60)).await;
    assert!(world.is_settled("c", 3));
}

// MQ-06
#[tokio::test(start_paused = true)]
async fn a_changed_mind_at_any_moment_of_growing_settles() {
    for after in (0..20).map(|n| millis(n * 500)) {
        let world = World::with_formed(3).await;
        world.scale("c", 5);
        world.run_for(after).await;
        world.scale("c", 3);
        world.until_settled("c", 3, secs(180)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_shrinks_to_one() {
    let world = World::with_formed(5).await;
    world.scale("c", 1);
    world.until_settled("c", 1, secs(120)).await;
}

#[tokio::test(start_paused = true)]
async fn a_member_that_a_person_deletes_is_replaced_and_was_never_missed() {
    let world = World::with_formed(3).await;
    let gone = world.members("c")[0].clone();
    world.delete_member(&gone);
    world
        .until("it is replaced", secs(60), |w| {
            assert!(w.standing("c").serving >= 3, "{:?}", w.standing("c"));
            w.is_settled("c", 3) && !w.members("c").contains(&gone)
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_dead_member_that_a_person_deletes_is_replaced() {
    let world = World::with_formed(3).await;
    let gone = world.members("c")[0].clone();
    world.hold(&gone);
    world.run_for(secs(10)).await;
    world.delete_member(&gone);
    world.until_settled("c", 3, secs(120)).await;
    assert!(!world.members("c").contains(&gone));
}

#[tokio::test(start_paused = true)]
async fn a_steady_cluster_costs_no_write_in_an_hour_and_two_looks_a_minute() {
    let world = World::with_formed(3).await;
    world.run_for(secs(120)).await;
    let count = |w: &World| w.at(|s| (s.journal.begun.len(), s.journal.looks.len(), s.journal.lists.len()));
    let before = count(&world);
    world.run_for(secs(3_600)).await;
    let after = count(&world);
    assert_eq!(after.0, before.0, "API calls: {:?}", world.at(|s| s.journal.begun.split_off(before.0)));
    // Three members, each every 30 s less a fifth of jitter; the list likewise.
    assert!(after.1 - before.1 <= 3 * 160, "looks: {}", after.1 - before.1);
    assert!(after.2 - before.2 <= 160, "lists: {}", after.2 - before.2);
}

#[tokio::test(start_paused = true)]
async fn members_of_a_cluster_that_was_deleted_while_the_operator_was_down_are_let_go_without_touching_etcd()
{
    let mut world = World::with_formed(3).await;
    let before = world.calls().len();
    world.kill_operator().await;
    world.edit_cluster("c", |c| c.deleting = true);
    world.run_for(secs(1)).await;
    world.start_operator().await;
    world.until("nothing is left", secs(60), |w| w.at(|s| s.truth.members.is_empty())).await;
    world.run_for(secs(5)).await;
    assert_eq!(world.calls().len(), before);
    assert!(world.at(|s| s.truth.pods.is_empty() && s.truth.pvcs.is_empty()));
    assert!(world.operator_lives());
}

#[tokio::test(start_paused = true)]
async fn a_cluster_of_the_same_name_has_a_life_of_its_own() {
    let world = World::with_formed(1).await;
    let old = world.key("c").uid;
    world.edit_cluster("c", |c| c.deleting = true);
    world.create_cluster("c", 3);
    world.until("the old one is gone", secs(60), |w| w.at(|s| s.truth.members_of(&old).count() == 0)).await;
    world.until_settled("c", 3, secs(60)).await;
    assert_eq!(world.at(|s| s.etcd.instances.len()), 2);
}

// MQ-14
#[tokio::test(start_paused = true)]
async fn when_every_member_is_deleted_each_waits_for_its_replacement() {
    let world = World::with_formed(3).await;
    let old = world.members("c");
    for member in &old {
        world.delete_member(member);
    }
    world
        .until("all are replaced", secs(240), |w| {
            assert!(w.standing("c").serving >= 3, "{:?}", w.standing("c"));
            w.is_settled("c", 3) && w.members("c").iter().all(|m| !old.contains(m))
        })
        .await;
    assert_eq!(world.at(|s| s.etcd.instances.len()), 1);
}

// MQ-14
#[tokio::test(start_paused = true)]
async fn when_every_member_is_dead_and_deleted_each_keeps_its_volume() {
    let world = World::with_formed(3).await;
    let old = world.members("c");
    for member in &old {
        world.hold(member);
    }
    world.run_for(secs(10)).await;
    for member in &old {
        world.delete_member(member);
    }
    world.run_for(secs(3_600)).await;
    assert_eq!(world.members("c"), old);
    assert_eq!(world.at(|s| s.truth.pvcs.values().filter(|p| !p.view.deleting).count()), 3);
    assert_eq!(world.available("c"), "ClusterUnreachable");
    for member in &old {
        world.release(member);
    }
    world.until_settled("c", 3, secs(600)).await;
    assert_eq!(world.at(|s| s.etcd.instances.len()), 1);
}
