//! Random faults on three clusters on a real Kubernetes, for as long as is asked for: `make chaos MINUTES=60`.
//!
//! Each cluster has a client that writes and reads all the time. In a round one fault happens, or a few that overlap;
//! then everything must become whole again by itself, and is looked at from every side. `SEED=n` repeats the choices
//! of a run; how they fall out also depends on how fast the machine is.
//!
//! Not a test of any level: it runs until its time is over.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a run ends at its first surprise, and its output is for people"
)]

mod blows;
mod client;
mod drain;
mod faults;
mod figures;
mod losses;
mod operators;
mod plan;
mod post_mortem;
mod spec;
#[path = "../support/mod.rs"]
mod support;
mod world;

use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use faults::Outcome;
use figures::{Figures, say};
use futures::FutureExt as _;
use plan::{Plan, Round};
use world::World;

/// Rounds between two looks through all logs.
const TRACE_EVERY: usize = 10;

fn main() -> ExitCode {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let Some(minutes) = number("MINUTES") else {
        println!("nothing is done without MINUTES: see `make chaos`");
        return ExitCode::SUCCESS;
    };
    let seed = number("SEED").unwrap_or_else(|| u64::from(rand::random::<u32>()));
    println!("SEED={seed}");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(run(seed, Duration::from_secs(60 * minutes)))
}

async fn run(seed: u64, time: Duration) -> ExitCode {
    let end = Instant::now() + time;
    let mut plan = Plan::new(seed);
    say("three clusters form");
    let mut world = match World::form(plan.wanted.clone()).await {
        Ok(world) => world,
        Err(error) => {
            println!("FAILED: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut figures = Figures::default();
    let rounds = AssertUnwindSafe(rounds(&mut world, &mut plan, &mut figures, end)).catch_unwind().await;
    let outcome = rounds.unwrap_or_else(|_| Err("a surprise; its message is above".to_owned()));
    print!("\n{}", figures.table());
    println!(
        "the operator ended {} times at a failpoint, and lost its Lease {} times",
        world.operators.at_failpoints, world.operators.leases_lost
    );
    let done: Vec<_> = world.clients.iter().map(client::Client::done).collect();
    print!("{}", figures::clients(&done));
    world.operators.end().await;
    match outcome {
        Ok(summary) => {
            println!("{summary}");
            world.scene.finish().await;
            println!("SEED={seed}: passed");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("\nSEED={seed}: FAILED in round {}: {error}", figures.rounds + 1);
            match post_mortem::keep(&world.scene, &error).await {
                Ok(folder) => println!("everything is in {}, and the testbed still runs", folder.display()),
                Err(error) => println!("not everything could be kept: {error}"),
            }
            // Nothing is cleaned up: a person will look at it.
            std::process::exit(1);
        }
    }
}

async fn rounds(
    world: &mut World,
    plan: &mut Plan,
    figures: &mut Figures,
    end: Instant,
) -> Result<String, String> {
    while Instant::now() < end {
        let round = plan.round();
        let kinds: Vec<_> = round.iter().map(|(_, fault)| fault.kind()).collect();
        say(&format!("round {}: {}", figures.rounds + 1, kinds.join(", ")));
        world.wanted = plan.wanted.clone();
        let kinds = disturb(world, round).await?;
        let after = world.heal().await?;
        world.check().await?;
        let members = world.wanted.each_ref().map(|wanted| (wanted.replicas, wanted.version()));
        say(&format!("whole again after {:.1} s, with {members:?}", after.as_secs_f32()));
        figures.healed(&kinds, after);
        if figures.rounds.is_multiple_of(TRACE_EVERY) {
            world.trace()?;
        }
    }
    world.finish().await?;
    let mut summary = String::new();
    for (cluster, counts) in world.trace()? {
        summary += &format!("changes of {cluster}, each matched with etcd's own log: {counts:?}\n");
    }
    Ok(summary
        + "checked: nothing acknowledged is missing and every read was right; HashKV is equal on all members; members,\n\
           EtcdMembers, Pods and volumes match one to one; the wanted voters and no learner; version, resources, options,\n\
           labels and annotations as the specs say; never two changes in flight; no actor failed")
}

/// Lets everything of a round happen, and ends what lasts. Returns the kinds of what happened: somebody who was to be
/// hit may have been gone.
async fn disturb(world: &mut World, round: Round) -> Result<Vec<&'static str>, String> {
    let (mut kinds, mut begun) = (Vec::new(), Vec::new());
    for (pause, fault) in round {
        world.pass(pause).await?;
        match faults::begin(world, &fault).await? {
            Outcome::Nothing => {
                say(&format!("there was nobody to hit: {}", fault.kind()));
                continue;
            }
            Outcome::Done => {}
            Outcome::Begun(lasting) => begun.push(lasting),
        }
        kinds.push(fault.kind());
    }
    begun.sort_by_key(|lasting| lasting.until);
    for lasting in begun {
        let left = lasting.until.saturating_duration_since(tokio::time::Instant::now());
        world.pass(left).await?;
        lasting.end(world).await?;
    }
    Ok(kinds)
}
