//! Rules 3 and 7: what is absent in a store may be there, and what is unknown is no ground for an
//! effect.

use etcd_operator_kubernetes::failure::ApiFailure;

use crate::world::{Fault, Kind, World, millis, secs};

// AP-04
#[tokio::test(start_paused = true)]
async fn a_store_that_shows_no_members_creates_none_when_a_live_list_shows_three() {
    let mut world = World::with_formed(3).await;
    world.kill_operator().await;
    let uid = world.key("c").uid;
    world.at(|s| {
        s.stores.objects.members.clear();
        // Not even the record of the cluster is believed to be there.
        let stale = s.stores.objects.clusters.get_mut(&uid).unwrap();
        stale.view.recorded.cluster_id = None;
    });
    let before = world.done().len();
    world.start_operator().await;
    world.run_for(secs(300)).await;
    assert_eq!(world.members("c").len(), 3);
    let made: Vec<_> = world.done().split_off(before);
    assert!(made.iter().all(|d| !d.verb.starts_with("Create")), "{made:?}");
}

// AP-04
#[tokio::test(start_paused = true)]
async fn a_member_watch_that_is_20_s_behind_makes_exactly_two_new_members() {
    for restarted in [false, true] {
        let mut world = World::with_formed(1).await;
        world.at(|s| s.stores.set_delay(Kind::Member, 20_000));
        world.scale("c", 3);
        if restarted {
            let begun = |w: &World| w.at(|s| s.journal.count("c", "CreateMember")) == 2;
            world.until("the first create", secs(60), begun).await;
            world.kill_operator().await;
            world.start_operator().await;
        }
        world.until_settled("c", 3, secs(900)).await;
        assert_eq!(world.at(|s| s.journal.count("c", "CreateMember")), 3, "restarted: {restarted}");
    }
}

// AP-04
#[tokio::test(start_paused = true)]
async fn a_create_of_a_member_whose_answer_was_lost_is_repeated_under_the_same_name() {
    for fault in [
        Fault::LostAnswer(secs(2)),
        Fault::LostRequest(secs(2)),
        Fault::Late { answer: secs(1), lands: secs(5) },
        Fault::Late { answer: secs(1), lands: millis(1_500) },
    ] {
        let world = World::with_formed(1).await;
        world.at(|s| s.stores.set_delay(Kind::Member, 3_000));
        world.fault(&["CreateMember"], 1, fault.clone());
        world.scale("c", 2);
        world.until_settled("c", 2, secs(300)).await;
        world.run_for(secs(60)).await;
        assert!(world.is_settled("c", 2), "{fault:?}");
        let mut names: Vec<String> = world.at(|s| {
            let begun = s.journal.begun.iter().filter(|b| b.verb == "CreateMember");
            begun.map(|b| b.member.clone()).collect()
        });
        names.dedup();
        // The seed's and the second's, and no third.
        assert_eq!(names.len(), 2, "{fault:?}: {names:?}");
    }
}

// CL-06
#[tokio::test(start_paused = true)]
async fn a_store_that_is_not_filled_leads_to_no_effect() {
    for kind in Kind::ALL {
        let mut world = World::new(1);
        world.create_cluster("c", 3);
        world.run_for(secs(1)).await;
        world.at(|s| s.stores.set_filled(kind, false));
        world.start_operator().await;
        world.run_for(secs(30)).await;
        let done = world.done();
        let harmless = |verb| match kind {
            // What has been looked for and is absent may be made: its own name protects it.
            Kind::Pod => !matches!(verb, "CreatePod" | "DeletePod"),
            Kind::Pvc => !matches!(verb, "CreatePvc" | "CreatePod"),
            Kind::Service => verb == "WriteStatus",
            // Until then the seed is all there is.
            Kind::Budget => !matches!(verb, "PutBudget" | "DeleteBudget" | "RecordJoin"),
            Kind::Cluster | Kind::Member => false,
        };
        assert!(done.iter().all(|d| harmless(d.verb)), "{kind:?}: {done:?}");
        world.at(|s| s.stores.set_filled(kind, true));
        world.touch_all();
        world.until_settled("c", 3, secs(120)).await;
    }
}

// CL-06
#[tokio::test(start_paused = true)]
async fn a_restarted_operator_whose_stores_are_not_filled_touches_nothing_that_runs() {
    for kind in Kind::ALL {
        let mut world = World::with_formed(3).await;
        world.kill_operator().await;
        let before = world.done().len();
        world.at(|s| s.stores.set_filled(kind, false));
        world.start_operator().await;
        world.run_for(secs(120)).await;
        let made: Vec<_> = world.done().split_off(before);
        let status = |verb| matches!(verb, "WriteStatus" | "WriteMemberStatus");
        assert!(made.iter().all(|d| status(d.verb)), "{kind:?}: {made:?}");
        world.at(|s| s.stores.set_filled(kind, true));
        world.touch_all();
        world.until_settled("c", 3, secs(60)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_cannot_be_read_live_lets_no_member_go() {
    let mut world = World::with_formed(3).await;
    world.kill_operator().await;
    let uid = world.key("c").uid;
    world.at(|s| s.stores.objects.clusters.remove(&uid));
    world.fault(&["IsGone"], u32::MAX, Fault::Api(ApiFailure::Forbidden("etcdclusters".into())));
    let before = world.done().len();
    world.start_operator().await;
    world.run_for(secs(600)).await;
    assert_eq!(world.done().len(), before);
    let reads = world.at(|s| s.journal.begun.iter().filter(|b| b.verb == "IsGone").count());
    assert!(reads <= 20, "{reads} reads in ten minutes");
    // Neither does a store that is wrong about it.
    world.clear_faults();
    world.run_for(secs(600)).await;
    assert_eq!(world.done().len(), before);
    let reads = world.at(|s| s.journal.begun.iter().filter(|b| b.verb == "IsGone").count());
    assert!(reads <= 20 + 160, "{reads} reads in twenty minutes");
}

// LS-08
#[tokio::test(start_paused = true)]
async fn a_member_whose_volume_was_replaced_is_not_started_on_it_and_is_itself_replaced() {
    let world = World::with_formed(3).await;
    let member = world.members("c")[2].clone();
    let now = world.now();
    world.at(|s| {
        let pod = s.truth.pods.get(&member).cloned().unwrap();
        let mut pvc = s.truth.pvcs.get(&member).cloned().unwrap();
        pvc.view.uid = s.uid("another");
        s.put(now, crate::world::Object::Pvc(member.clone(), Some(pvc)));
        s.etcd.processes.retain(|_, p| p.pod != pod.view.uid);
        s.put(now, crate::world::Object::Pod(member.clone(), None));
        s.settle(now);
    });
    world.run_for(secs(600)).await;
    assert!(world.at(|s| !s.truth.pods.contains_key(&member)));
    let members = world.members("c");
    assert!(members.len() == 3 && !members.contains(&member), "{members:?}");
    assert_eq!(world.degraded("c"), "Reconciled");
}
