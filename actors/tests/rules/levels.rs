//! Rule 2: events are hints. They coalesce, and a lost one costs time.

use etcd_operator_core::etcd::Refusal;

use crate::world::{Fault, Kind, World, millis, secs};

#[tokio::test(start_paused = true)]
async fn ten_thousand_touches_lead_to_a_handful_of_turns() {
    let world = World::with_formed(3).await;
    world.run_for(secs(60)).await;
    let before = world.at(|s| s.journal.sights);
    for _ in 0..10_000 {
        world.touch("c");
    }
    world.run_for(millis(100)).await;
    let turns = world.at(|s| s.journal.sights) - before;
    assert!((1..=12).contains(&turns), "{turns} looks at the stores");
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_touches_leaves_no_backlog() {
    let world = World::with_formed(3).await;
    for _ in 0..1_000 {
        world.touch("c");
        tokio::task::yield_now().await;
    }
    let before = world.at(|s| s.journal.sights);
    world.run_for(millis(100)).await;
    let after = world.at(|s| s.journal.sights) - before;
    assert!(after <= 12, "{after} looks at the stores after the last touch");
}

// CL-10, CL-07
#[tokio::test(start_paused = true)]
async fn a_cluster_comes_up_though_no_watch_event_wakes_anybody() {
    let world = World::with_cluster(3).await;
    // From the moment on at which the operator knows of the cluster at all.
    world.until("there is a supervisor", secs(1), |w| w.at(|s| s.journal.sights > 0)).await;
    world.at(|s| s.faults.unheard_per_mille = 1_000);
    world.until_settled("c", 3, secs(900)).await;
}

// CL-10
#[tokio::test(start_paused = true)]
async fn a_cluster_grows_though_a_tenth_of_the_wakes_is_lost() {
    let world = World::with_formed(1).await;
    world.at(|s| s.faults.unheard_per_mille = 100);
    world.scale("c", 5);
    world.until_settled("c", 5, secs(300)).await;
}

// CL-02, CL-10
#[tokio::test(start_paused = true)]
async fn an_effect_whose_end_is_never_told_does_not_stop_its_actor_for_ever() {
    for verb in [
        "WriteStatus",
        "CreateMember",
        "CreatePvc",
        "CreatePod",
        "PatchPod",
        "RecordJoin",
        "WriteMemberStatus",
    ] {
        let world = World::with_cluster(1).await;
        world.fault(&[verb], 1, Fault::Never);
        world.scale("c", 2);
        world.until_settled("c", 2, secs(180)).await;
        assert!(world.at(|s| s.faults.rules[0].times == 0), "{verb}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_live_read_whose_answer_never_comes_does_not_stop_its_actor_for_ever() {
    let world = World::with_cluster(1).await;
    world.fault(&["Confirm"], 1, Fault::Never);
    world.until_settled("c", 1, secs(180)).await;
    world.fault(&["IsGone"], 1, Fault::Never);
    world.edit_cluster("c", |c| c.deleting = true);
    world.until("nothing is left", secs(180), |w| w.at(|s| s.truth.members.is_empty())).await;
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_is_slow_answers_late_and_nothing_is_lost() {
    let world = World::with_formed(1).await;
    world.fault(&["GuardList"], 6, Fault::LostAnswer(secs(3)));
    world.scale("c", 3);
    world.until_settled("c", 3, secs(180)).await;
}

// AP-03
#[tokio::test(start_paused = true)]
async fn a_question_that_must_wait_for_an_hour_is_asked_ever_less_often() {
    let world = World::with_formed(3).await;
    // As etcd does while a voter has not been connected for long enough.
    world.fault(&["MemberAdd"], u32::MAX, Fault::Refuse(Refusal::UnhealthyCluster));
    world.scale("c", 4);
    world.run_for(secs(600)).await;
    let lists = |w: &World| w.at(|s| s.journal.lists.len());
    let before = lists(&world);
    world.run_for(secs(3_600)).await;
    let an_hour = lists(&world) - before;
    assert!((200..=600).contains(&an_hour), "{an_hour} lists in an hour");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_lags_by_ten_seconds_only_delays() {
    let world = World::with_formed(1).await;
    world.at(|s| Kind::ALL.into_iter().for_each(|kind| s.stores.set_delay(kind, 10_000)));
    world.scale("c", 3);
    world.until_settled("c", 3, secs(600)).await;
    assert_eq!(world.at(|s| s.journal.count("c", "CreateMember")), 3);
}
