//! Many schedules over all cores; seeds, numbers and failures for a person.

use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use super::{coverage::Coverage, mutants::Mutant, schedule};

/// What many schedules came to.
pub(crate) struct Summary {
    pub(crate) ran: u64,
    pub(crate) converged: u64,
    pub(crate) coverage: Coverage,
    /// The first violation: seed and words.
    pub(crate) violation: Option<(u64, String)>,
}

/// A number from the environment.
pub(crate) fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs schedules `from..from + count`, stopping at the first violation.
pub(crate) fn many(from: u64, count: u64, mutant: Option<Mutant>) -> Summary {
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let total = Mutex::new(Summary { ran: 0, converged: 0, coverage: Coverage::default(), violation: None });
    let threads = std::thread::available_parallelism().map_or(2, |n| n.get());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut mine = (0, 0, Coverage::default(), None);
                while !stop.load(Ordering::Relaxed) {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= count {
                        break;
                    }
                    let seed = from + n;
                    let outcome = schedule::run(seed, mutant, false);
                    mine.0 += 1;
                    mine.1 += u64::from(outcome.converged.is_some());
                    mine.2.merge(&outcome.coverage);
                    if let Some(words) = outcome.violation {
                        mine.3 = Some((seed, words));
                        stop.store(true, Ordering::Relaxed);
                    }
                }
                let mut total = total.lock().unwrap();
                total.ran += mine.0;
                total.converged += mine.1;
                total.coverage.merge(&mine.2);
                if total.violation.is_none() {
                    total.violation = mine.3;
                }
            });
        }
    });
    total.into_inner().unwrap()
}

/// The schedule of `seed`, step by step, for a person.
pub(crate) fn story(seed: u64, mutant: Option<Mutant>) -> String {
    let outcome = schedule::run(seed, mutant, true);
    let mut lines = outcome.trace;
    let cut = lines.len().saturating_sub(setting("SIM_TRACE").unwrap_or(120) as usize);
    lines.drain(..cut);
    format!("seed {seed} (re-run with SIM_SEED={seed}), the last steps:\n{}", lines.join("\n"))
}
