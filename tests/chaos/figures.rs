//! What the run says: a line for each thing that happens, and a table at the end. Writes to stdout.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::client::Done;
use crate::faults::NODE_STAYS;
use crate::plan::CLUSTERS;

static BEGIN: OnceLock<Instant> = OnceLock::new();

/// A line with the time since the first one.
pub(crate) fn say(text: &str) {
    let seconds = BEGIN.get_or_init(Instant::now).elapsed().as_secs();
    println!("{:3}:{:02}  {text}", seconds / 60, seconds % 60);
}

/// What happened.
#[derive(Default)]
pub(crate) struct Figures {
    pub(crate) rounds: usize,
    healed: BTreeMap<&'static str, Vec<Duration>>,
}

impl Figures {
    /// A round with these faults was over this long after the last of them had ended.
    pub(crate) fn healed(&mut self, kinds: &[&'static str], after: Duration) {
        self.rounds += 1;
        for kind in kinds {
            self.healed.entry(kind).or_default().push(after);
        }
    }

    /// The table of faults.
    pub(crate) fn table(&self) -> String {
        let mut text = format!(
            "{} rounds. Seconds from the end of a round's last fault until all three clusters had healed, beyond the {} in\n\
             which a node that was started is watched before it counts as back:\n{:44}{:>6}{:>9}{:>8}\n",
            self.rounds,
            NODE_STAYS.as_secs(),
            "fault",
            "times",
            "median",
            "worst"
        );
        for (kind, times) in &self.healed {
            let mut times = times.clone();
            times.sort();
            let median = times.get((times.len().max(1) - 1) / 2).copied().unwrap_or_default().as_secs_f32();
            let worst = times.last().copied().unwrap_or_default().as_secs_f32();
            let _ = writeln!(text, "{kind:44}{:6}{median:9.1}{worst:8.1}", times.len());
        }
        text
    }
}

/// What the clients did.
pub(crate) fn clients(done: &[Done]) -> String {
    let mut text = String::new();
    for (cluster, done) in CLUSTERS.iter().zip(done) {
        let Done { writes, reads, failures, longest_gap } = done;
        let gap = longest_gap.as_secs_f32();
        let _ = writeln!(
            text,
            "client of {cluster}: {writes} writes acknowledged, {reads} reads, {failures} requests failed, {gap:.1} s at most without a write"
        );
    }
    text
}
