//! Rules 8 and 9: no effect without ownership, and none on the wrong cluster.

use etcd_operator_kubernetes::failure::ApiFailure;

use crate::world::{Fault, World, secs};

#[tokio::test(start_paused = true)]
async fn a_cluster_of_another_shard_is_left_alone() {
    let mut world = World::new(1);
    world.create_cluster("mine", 1);
    world.create_cluster("theirs", 3);
    let theirs = world.key("theirs").uid;
    world.own(move |uid| *uid != theirs);
    world.run_for(secs(1)).await;
    world.start_operator().await;
    world.until_settled("mine", 1, secs(30)).await;
    world.run_for(secs(600)).await;
    assert!(world.at(|s| s.journal.begun.iter().all(|d| d.cluster == "mine")));
}

// AP-06
#[tokio::test(start_paused = true)]
async fn while_the_gate_lets_nothing_through_nothing_happens_and_nothing_is_given_up() {
    let world = World::with_cluster(3).await;
    world.fault(&[], u32::MAX, Fault::Api(ApiFailure::NotOwner));
    world.run_for(secs(600)).await;
    assert!(world.done().is_empty(), "{:?}", world.done());
    let tries = world.at(|s| s.journal.begun.len());
    // The status and the first Service, each at most once a minute after the first minutes.
    assert!(tries < 60, "{tries} tries in ten minutes");
    world.clear_faults();
    world.until_settled("c", 3, secs(180)).await;
}

// AP-06
#[tokio::test(start_paused = true)]
async fn no_membership_call_goes_out_that_could_outlive_the_lease() {
    let world = World::with_formed(1).await;
    let before = world.calls().len();
    world.lease_ends(secs(8));
    world.scale("c", 3);
    world.run_for(secs(60)).await;
    assert_eq!(world.calls().len(), before);
    world.lease_renewed();
    world.until_settled("c", 3, secs(60)).await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_whose_addresses_lead_to_another_cluster_is_left_alone() {
    let world = World::with_formed(1).await;
    world.create_cluster("d", 1);
    world.until_settled("d", 1, secs(30)).await;
    let (c, d) = (world.members("c")[0].clone(), world.members("d")[0].clone());
    // The Pod IP of c's member now leads to d's.
    let (address, right, wrong) = world.at(|s| {
        let at = |name: &str| {
            let found = s.etcd.processes.iter().find(|(_, p)| p.member.as_str() == name);
            found.map(|(a, p)| (*a, p.clone())).unwrap()
        };
        let ((address, right), (_, wrong)) = (at(&c), at(&d));
        s.etcd.processes.insert(address, wrong.clone());
        (address, right, wrong)
    });
    assert_ne!(right.instance, wrong.instance);
    world.scale("c", 3);
    world.until("it is told", secs(60), |w| w.degraded("c") == "ForeignClusterID").await;
    let calls = world.calls().len();
    let members = world.members("c");
    world.run_for(secs(600)).await;
    assert_eq!(world.calls().len(), calls);
    assert_eq!(world.members("c"), members);
    assert_eq!(world.list("d").unwrap().members.len(), 1);
    world.at(|s| s.etcd.processes.insert(address, right));
    world.until_settled("c", 3, secs(120)).await;
}

#[tokio::test(start_paused = true)]
async fn a_member_that_no_object_accounts_for_stops_all_effects_until_a_person_acts() {
    let world = World::with_formed(3).await;
    let now = world.now();
    let uid = world.key("c").uid;
    let stranger = world.at(|s| {
        let n = s.etcd.instances.iter().position(|i| i.of == uid).unwrap();
        s.etcd.add_learner(n, &"http://stranger.elsewhere:2380".into(), now).unwrap()
    });
    world.until("it is told", secs(120), |w| w.degraded("c") == "UnexplainedMember").await;
    world.scale("c", 5);
    let members = world.members("c");
    world.run_for(secs(300)).await;
    assert_eq!(world.members("c"), members);
    world.at(|s| {
        let n = s.etcd.instances.iter().position(|i| i.of == uid).unwrap();
        s.etcd.remove(n, stranger).unwrap();
    });
    world.until_settled("c", 5, secs(180)).await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_cluster_sees_no_effect_and_goes_on_afterwards() {
    let world = World::with_formed(1).await;
    world.edit_cluster("c", |c| {
        c.paused = true;
        c.replicas = 3;
    });
    world.run_for(secs(120)).await;
    assert_eq!(world.members("c").len(), 1);
    world.edit_cluster("c", |c| c.paused = false);
    world.until_settled("c", 3, secs(60)).await;
}
