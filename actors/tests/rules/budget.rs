//! The disruption budget in the life of a cluster: its order with labels, and what stands in its way.

use etcd_operator_core::view::BudgetState;
use etcd_operator_kubernetes::failure::ApiFailure;

use crate::world::{Fault, Object, World, secs};

fn floor(world: &World) -> Option<BudgetState> {
    let uid = world.key("c").uid;
    world.at(|s| s.truth.budgets.get(&uid).map(|b| b.state))
}

fn present(min_available: usize) -> Option<BudgetState> {
    Some(BudgetState::Present { min_available, right: true })
}

// SD-03
#[tokio::test(start_paused = true)]
async fn a_replacement_is_labelled_after_the_floor_rose_and_the_floor_falls_after_the_label_is_off() {
    let world = World::with_formed(3).await;
    assert_eq!(floor(&world), present(2));
    let victim = world.members("c")[0].clone();
    let before = world.done().len();
    world.delete_member(&victim);
    world
        .until("it is replaced", secs(120), |w| w.is_settled("c", 3) && !w.members("c").contains(&victim))
        .await;
    world.until("the floor is that of three", secs(60), |w| floor(w) == present(2)).await;
    let done = world.done().split_off(before);
    let new = world.members("c").pop().unwrap();
    let puts: Vec<usize> = (0..done.len()).filter(|n| done[*n].verb == "PutBudget").collect();
    let patches = |member: &str| {
        let of = |n: &usize| done[*n].verb == "PatchPod" && done[*n].member == member;
        (0..done.len()).rfind(of).unwrap_or_else(|| panic!("{member}: {done:#?}"))
    };
    let [rose, fell] = puts[..] else { panic!("{done:#?}") };
    assert!(rose < patches(&new) && patches(&new) < fell, "{done:#?}");
    assert!(patches(&victim) < fell, "{done:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_is_edited_or_deleted_is_put_right_and_settles() {
    let world = World::with_formed(3).await;
    let (uid, now) = (world.key("c").uid, world.now());
    for edited in [None, Some(BudgetState::Present { min_available: 0, right: false })] {
        world.at(|s| {
            let mut budget = s.truth.budgets[&uid].clone();
            budget.rv = s.next();
            let budget = edited.map(|state| crate::world::BudgetObj { state, ..budget });
            s.put(now, Object::Budget(uid.clone(), budget));
        });
        world.until("it is put right", secs(10), |w| floor(w) == present(2)).await;
        world.run_for(secs(60)).await;
        assert!(world.is_settled("c", 3));
    }
}

// SD-03
#[tokio::test(start_paused = true)]
async fn without_a_budget_clients_have_the_first_member_and_a_person_is_told_why_there_are_no_more() {
    let mut world = World::new(1);
    world.create_cluster("c", 3);
    world.fault(&["PutBudget"], u32::MAX, Fault::Api(ApiFailure::Forbidden("poddisruptionbudgets".into())));
    world.start_operator().await;
    world.until("it is told", secs(300), |w| w.degraded("c") == "ObjectRefused").await;
    let first = world.members("c");
    assert_eq!(first.len(), 1);
    assert!(world.at(|s| s.truth.pods[&first[0]].view.voter_label));
    world.clear_faults();
    world.until_settled("c", 3, secs(300)).await;
    assert_eq!(floor(&world), present(2));
}
