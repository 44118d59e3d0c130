//! Rules 1 and 6: one membership change at a time, and nothing different while one is in doubt. The
//! world itself checks both at the start of every call; these tests bring about what tempts.

use etcd_operator_core::etcd::Refusal;
use etcd_operator_etcd::MembershipWriter;

use crate::world::{Fault, MembershipCall, Outcome, World, millis, secs};

/// Compiles only while the type is not `Clone`: with it, two impls would fit.
trait NotClone<Fits> {
    fn checked() -> bool {
        true
    }
}
struct WouldBeClone;
impl<T> NotClone<()> for T {}
impl<T: Clone> NotClone<WouldBeClone> for T {}

#[test]
fn a_membership_writer_cannot_be_cloned() {
    assert!(<MembershipWriter as NotClone<_>>::checked());
}

fn of<'a>(calls: &'a [MembershipCall], verb: &str) -> Vec<&'a MembershipCall> {
    calls.iter().filter(|c| c.verb == verb).collect()
}

// MQ-05
#[tokio::test(start_paused = true)]
async fn of_two_members_deleted_in_one_second_the_second_leaves_after_the_first_is_replaced() {
    let world = World::with_formed(5).await;
    let members = world.members("c");
    world.fault(&["MemberRemove", "MemberAdd"], u32::MAX, Fault::Slow(secs(4)));
    world.delete_member(&members[1]);
    world.run_for(millis(400)).await;
    world.delete_member(&members[3]);
    world.until_settled("c", 5, secs(300)).await;
    let calls = world.calls();
    let removals = of(&calls, "MemberRemove");
    assert_eq!(removals.len(), 2);
    let (first, second) = (removals[0].ended.unwrap(), removals[1].sent);
    assert!(first < second, "{removals:?}");
    // Its list was read again in between.
    assert!(world.at(|s| s.journal.lists.iter().any(|(at, _)| *at >= first && *at <= second)));
}

#[tokio::test(start_paused = true)]
async fn after_an_ambiguous_add_nothing_but_the_same_add_goes_out_before_it_is_resolved() {
    for fault in [
        Fault::LostRequest(secs(7)),
        Fault::LostAnswer(millis(10)),
        Fault::LostAnswer(secs(7)),
        Fault::Late { answer: millis(10), lands: millis(6_500) },
        Fault::Late { answer: secs(7), lands: millis(3_000) },
    ] {
        let world = World::with_formed(3).await;
        let first = world.calls().len();
        world.fault(&["MemberAdd"], 1, fault.clone());
        world.scale("c", 4);
        world.until("the add is out", secs(10), |w| w.calls().len() > first).await;
        // A different change is wanted while the add is open.
        world.delete_member(&world.members("c")[0]);
        world.scale("c", 3);
        world.until_settled("c", 3, secs(180)).await;
        assert_eq!(world.calls()[first].outcome, Outcome::Ambiguous, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn after_an_ambiguous_removal_nothing_different_goes_out_before_it_is_resolved() {
    for fault in [
        Fault::LostRequest(millis(10)),
        Fault::LostAnswer(millis(10)),
        Fault::Late { answer: millis(10), lands: millis(6_500) },
    ] {
        let world = World::with_formed(5).await;
        world.fault(&["MemberRemove"], 1, fault.clone());
        world.scale("c", 3);
        world.until("the removal is out", secs(20), |w| !of(&w.calls(), "MemberRemove").is_empty()).await;
        world.scale("c", 5);
        world.until_settled("c", 5, secs(240)).await;
        assert!(world.calls().iter().any(|c| c.outcome == Outcome::Ambiguous), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_nothing_goes_out_before_what_a_former_life_sent_can_no_longer_land() {
    for lands in [1_500, 4_000, 6_900] {
        let mut world = World::with_formed(3).await;
        let before = world.calls().len();
        let late = Fault::Late { answer: secs(7), lands: millis(lands) };
        world.fault(&["MemberAdd"], 1, late);
        world.scale("c", 4);
        world.until("the add is out", secs(10), |w| w.calls().len() > before).await;
        world.run_for(secs(1)).await;
        world.kill_operator().await;
        assert_eq!(world.calls()[before].outcome, Outcome::Dropped);
        world.scale("c", 3);
        world.delete_member(&world.members("c")[0]);
        let restarted = world.now();
        world.start_operator().await;
        world.until_settled("c", 3, secs(180)).await;
        let next = world.calls()[before + 1].sent;
        assert!(next.since(restarted) >= secs(8), "{lands}: {:?}", next.since(restarted));
    }
}

// CL-09
#[tokio::test(start_paused = true)]
async fn after_a_guards_panic_in_a_call_nothing_goes_out_before_the_doubt_has_passed() {
    let world = World::with_formed(3).await;
    let before = world.calls().len();
    world.fault(&["MemberAdd"], 1, Fault::Panic);
    world.scale("c", 4);
    world.until("the call was made", secs(10), |w| w.at(|s| s.journal.panics.len()) == 1).await;
    world.delete_member(&world.members("c")[0]);
    world.until_settled("c", 4, secs(240)).await;
    let calls = world.calls();
    assert_eq!(calls[before].outcome, Outcome::Dropped);
    let (lost, next) = (calls[before].sent, &calls[before + 1]);
    assert!(next.life > calls[before].life);
    assert!(next.sent.since(lost) >= secs(8), "{:?}", next.sent.since(lost));
}

/// The add that was sent first lands last, when its member would be gone again.
#[tokio::test(start_paused = true)]
async fn a_change_that_succeeded_the_second_time_is_in_doubt_for_as_long_as_the_first_may_land() {
    let world = World::with_formed(1).await;
    let late = Fault::Late { answer: millis(10), lands: millis(6_900) };
    world.fault(&["MemberAdd"], 1, late);
    world.scale("c", 2);
    let added = |w: &World| w.at(|s| s.journal.count("c", "MemberAdd")) == 1;
    world.until("it was added again", secs(10), added).await;
    world.scale("c", 1);
    world.until_settled("c", 1, secs(60)).await;
    world.run_for(secs(60)).await;
    assert!(world.is_settled("c", 1));
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_is_asked_to_stop_lets_its_guard_finish_the_call() {
    let mut world = World::with_formed(3).await;
    let before = world.calls().len();
    world.fault(&["MemberAdd"], 1, Fault::Slow(secs(6)));
    world.scale("c", 4);
    world.until("the add is out", secs(10), |w| w.calls().len() > before).await;
    let took = world.stop_operator().await;
    assert_eq!(world.calls()[before].outcome, Outcome::Done);
    assert!(took > secs(5) && took < secs(10), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_no_doubt() {
    let world = World::with_formed(3).await;
    world.fault(&["MemberAdd"], 2, Fault::Refuse(Refusal::UnhealthyCluster));
    world.scale("c", 4);
    let took = world.until_settled("c", 4, secs(60)).await;
    assert!(took < secs(8), "{took:?}");
}

// LP-01
#[tokio::test(start_paused = true)]
async fn a_learner_that_died_is_not_promoted_and_is_promoted_once_it_is_back() {
    let world = World::with_formed(1).await;
    world.scale("c", 2);
    world.until("a learner is listed", secs(10), |w| w.standing("c").learners == 1).await;
    let learner = world.members("c")[1].clone();
    world.at(|s| s.held.insert(learner.clone()));
    world.run_for(secs(300)).await;
    assert_eq!(world.standing("c").voters, 1);
    world.release(&learner);
    world.until_settled("c", 2, secs(60)).await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_hands_over_before_it_is_removed() {
    let world = World::with_formed(3).await;
    let leader = world.leader("c");
    world.delete_member(&leader);
    world.until_settled("c", 3, secs(120)).await;
    let done = world.done();
    let at = |verb| done.iter().position(|d| d.verb == verb && d.member == leader);
    assert!(at("MoveLeader").unwrap() < at("MemberRemove").unwrap());
}
