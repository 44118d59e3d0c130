//! Rule 5: intent before effect, so that the next look finds what is done, wherever the last one
//! ended.

use crate::world::{World, secs};

/// Asserts that these took effect on that member in this order.
fn assert_order(world: &World, member: &str, verbs: &[&str]) {
    let places: Vec<usize> = world.at(|s| {
        let place = |verb: &&str| s.journal.position(verb, member);
        verbs
            .iter()
            .map(|verb| place(verb).unwrap_or_else(|| panic!("{verb} of {member} is missing")))
            .collect()
    });
    assert!(places.windows(2).all(|w| w[0] < w[1]), "{member}: {verbs:?} at {places:?}");
}

#[tokio::test(start_paused = true)]
async fn a_member_exists_before_it_is_added_and_is_added_before_it_has_a_pod() {
    let world = World::with_formed(3).await;
    for member in &world.members("c")[1..] {
        assert_order(
            &world,
            member,
            &["CreateMember", "MemberAdd", "RecordJoin", "CreatePod", "MemberPromote"],
        );
    }
    let seed = world.members("c")[0].clone();
    assert_order(&world, &seed, &["CreateMember", "CreatePvc", "WriteMemberStatus", "CreatePod"]);
    // Nobody's write is acknowledged before the cluster can be recognised again.
    let labelled = world.at(|s| s.journal.position("PatchPod", &seed)).unwrap();
    let recorded = world.done().iter().position(|d| d.verb == "WriteStatus").unwrap();
    assert!(recorded < labelled);
}

// MQ-07
#[tokio::test(start_paused = true)]
async fn a_member_leaves_etcd_before_its_pod_its_pod_before_its_volume_and_its_finalizer_last() {
    let world = World::with_formed(3).await;
    let before = world.members("c");
    world.scale("c", 2);
    world.until_settled("c", 2, secs(60)).await;
    let after = world.members("c");
    let gone = before.iter().find(|m| !after.contains(m)).unwrap();
    assert_order(&world, gone, &["DeleteMember", "MemberRemove", "DeletePod", "DeletePvc", "Release"]);
}

/// An operator that dies every so often, at another moment each time, gets there all the same.
#[tokio::test(start_paused = true)]
async fn an_operator_that_keeps_dying_gets_there_and_makes_nothing_twice() {
    for every in [700, 1_900, 4_300, 9_100] {
        let mut world = World::with_cluster(3).await;
        for n in 0..12 {
            world.run_for(std::time::Duration::from_millis(every + n * 37)).await;
            world.kill_operator().await;
            world.start_operator().await;
        }
        world.until_settled("c", 3, secs(120)).await;
        world.scale("c", 1);
        for n in 0..12 {
            world.run_for(std::time::Duration::from_millis(every + n * 41)).await;
            world.kill_operator().await;
            world.start_operator().await;
        }
        world.until_settled("c", 1, secs(120)).await;
        assert_eq!(world.at(|s| s.journal.count("c", "CreateMember")), 3, "every {every} ms");
        assert_eq!(world.at(|s| s.etcd.instances.len()), 1);
    }
}
