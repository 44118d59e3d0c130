//! A tenth of everything fails, at random: of the API's writes and reads, of etcd's changes, of the
//! wakes. Each seed is a world of its own, with its own paused clock.

use crate::world::{World, secs};

/// Runs a seed's world to its end.
fn run(seed: u64) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut world = World::new(seed);
        world.at(|s| {
            s.faults.api_per_mille = 100;
            s.faults.etcd_per_mille = 100;
            s.faults.unheard_per_mille = 100;
        });
        world.create_cluster("c", 3);
        world.start_operator().await;
        world.until_settled("c", 3, secs(1_200)).await;
        world.delete_member(&world.members("c")[seed as usize % 3].clone());
        world.run_for(secs(seed % 20)).await;
        if seed % 3 == 0 {
            world.kill_operator().await;
            world.start_operator().await;
        }
        world.until("it is replaced", secs(1_200), |w| w.is_settled("c", 3)).await;
        world.scale("c", 1 + seed as usize % 2);
        world.until_settled("c", 1 + seed as usize % 2, secs(1_200)).await;
        let formed = world.at(|s| s.etcd.instances.len());
        assert_eq!(formed, 1, "seed {seed}");
    });
}

// CL-10
#[test]
fn a_tenth_of_everything_fails_and_two_hundred_worlds_converge() {
    let first: u64 = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0);
    let count = if std::env::var("SEED").is_ok() { 1 } else { 200 };
    for seed in first..first + count {
        println!("SEED={seed}");
        run(seed);
    }
}
