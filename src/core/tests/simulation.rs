//! The decisions over a simulated Kubernetes and a simulated etcd, in at least 100,000 random
//! schedules. `SIM_SEED=n` re-runs one schedule with its trace, `SIM_SCHEDULES=n` sets the number,
//! `SIM_TRACE=n` the length of a trace, and `SIM_MUTANT=name` plants that fault alone.

#![allow(
    clippy::panic,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test fails by panicking, its helpers too"
)]

mod sim;

use sim::{coverage, mutants::Mutant, run};

/// How many schedules a run has unless told otherwise.
const SCHEDULES: u64 = 100_000;

#[test]
fn no_schedule_breaks_a_property() {
    if let Some(seed) = run::setting("SIM_SEED") {
        let story = run::story(seed, None);
        println!("{story}");
        assert!(!story.contains("VIOLATION"), "seed {seed} breaks a property, see above");
        return;
    }
    let count = run::setting("SIM_SCHEDULES").unwrap_or(SCHEDULES);
    let from = run::setting("SIM_FROM").unwrap_or(1);
    let started = std::time::Instant::now();
    let summary = run::many(from, count, None);
    println!(
        "seeds from {from}: {} schedules, {} converged, {:?}",
        summary.ran,
        summary.converged,
        started.elapsed()
    );
    if let Some((seed, words)) = summary.violation {
        println!("{}", run::story(seed, None));
        panic!("seed {seed}: {words}");
    }
    println!("{}", summary.coverage.table());
    assert!(summary.converged * 10 > summary.ran * 8, "too few schedules had to converge to mean anything");
    if count >= SCHEDULES {
        let missing = summary.coverage.missing(&coverage::expected());
        assert!(missing.is_empty(), "never hit, so nothing was shown about it: {missing:?}");
    }
}

/// Within how many schedules a planted fault must be caught.
const ENOUGH: u64 = 20_000;

#[test]
fn every_planted_fault_is_caught() {
    let mut escaped = vec![];
    let only = std::env::var("SIM_MUTANT").ok();
    let chosen = |m: &Mutant| only.as_ref().is_none_or(|name| *name == format!("{m:?}"));
    for mutant in Mutant::ALL.into_iter().filter(chosen) {
        let summary = run::many(1, ENOUGH, Some(mutant));
        match &summary.violation {
            Some((seed, words)) => println!("{mutant:?}: schedule {}, seed {seed}: {words}", summary.ran),
            None => escaped.push(mutant),
        }
    }
    assert!(escaped.is_empty(), "planted and not caught in {ENOUGH} schedules: {escaped:?}");
}
