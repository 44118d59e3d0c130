//! What a cluster's life costs the API server, in calls. Counts, never times.

use std::collections::BTreeMap;

use etcd_operator_kubernetes::failure::ApiFailure;

use crate::world::{Fault, World, secs};

/// The calls to the API server that were begun, by verb, whatever came of them.
fn begun(world: &World) -> BTreeMap<&'static str, usize> {
    world.at(|s| {
        let mut counts = BTreeMap::new();
        for call in &s.journal.begun {
            *counts.entry(call.verb).or_default() += 1;
        }
        counts
    })
}

#[tokio::test(start_paused = true)]
async fn a_bring_up_of_three_costs_one_write_for_each_transition() {
    let world = World::with_formed(3).await;
    world.run_for(secs(100)).await;
    let expected = BTreeMap::from([
        ("PutService", 2),
        // Its floor is that of three from the beginning.
        ("PutBudget", 1),
        ("CreateMember", 3),
        ("CreatePvc", 3),
        ("CreatePod", 3),
        ("RecordJoin", 2),
        // The target, the cluster ID, two voters, three voters.
        ("WriteStatus", 4),
        // The volume of each; a learner, twice; a voter, three times.
        ("WriteMemberStatus", 8),
        // The seed is told that it is formed and shown; the others are told first and shown later.
        ("PatchPod", 5),
    ]);
    assert_eq!(begun(&world), expected, "{:#?}", world.at(|s| s.journal.begun.clone()));
}

#[tokio::test(start_paused = true)]
async fn a_label_that_cannot_be_set_does_not_keep_the_status_from_being_told() {
    let world = World::with_formed(3).await;
    world.run_for(secs(100)).await;
    let (members, now) = (world.members("c"), world.now());
    world.fault(&["PatchPod"], u32::MAX, Fault::Api(ApiFailure::Forbidden("pods".into())));
    world.at(|s| s.edit_pod(now, &members[0], |p| p.view.voter_label = false));
    world.hold(&members[1]);
    let took = world.until("it is told", secs(60), |w| w.available("c") == "QuorumAvailable").await;
    assert!(took <= secs(15), "{took:?}");
}
