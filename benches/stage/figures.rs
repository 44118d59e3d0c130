//! The table of figures: what was wanted, what was measured. Pure but for printing it.

use std::time::Duration;

use super::say;

/// What a figure is a number of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Of wall clock or CPU; never fails.
    Seconds,
    /// Requests, writes: the same on every machine, so too many is wrong.
    Count,
    /// Megabytes of 1,000,000 bytes; never fails, since the allocator and the linker are not ours.
    Megabytes,
}

struct Figure {
    name: String,
    wanted: f64,
    measured: f64,
    unit: Unit,
}

/// See the module.
#[derive(Default)]
pub struct Table {
    figures: Vec<Figure>,
    notes: Vec<String>,
}

impl Table {
    /// Adds a figure. `wanted` is the most that is right.
    pub fn add(&mut self, name: impl Into<String>, wanted: f64, measured: f64, unit: Unit) {
        self.figures.push(Figure { name: name.into(), wanted, measured, unit });
    }

    /// Adds a time.
    pub fn time(&mut self, name: impl Into<String>, wanted: f64, measured: Duration) {
        self.add(name, wanted, measured.as_secs_f64(), Unit::Seconds);
    }

    /// Adds a line under the table.
    pub fn note(&mut self, line: impl Into<String>) {
        self.notes.push(line.into());
    }

    /// Whether no count is higher than wanted.
    pub fn is_right(&self) -> bool {
        self.figures.iter().all(|f| f.unit != Unit::Count || f.measured <= f.wanted)
    }

    /// Shows it.
    pub fn print(&self) {
        say(&format!("\n{:<52} {:>9} {:>9} {:>6}", "figure", "at most", "measured", "ratio"));
        for f in &self.figures {
            let ratio = if f.wanted > 0.0 { format!("{:.2}", f.measured / f.wanted) } else { "-".to_owned() };
            let (wanted, measured) = (shown(f.wanted, f.unit), shown(f.measured, f.unit));
            let over = if f.measured > f.wanted { "  over" } else { "" };
            say(&format!("{:<52} {wanted:>9} {measured:>9} {ratio:>6}{over}", f.name));
        }
        for line in &self.notes {
            say(line);
        }
    }
}

fn shown(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Seconds if value < 1.0 => format!("{value:.3} s"),
        Unit::Seconds => format!("{value:.1} s"),
        Unit::Count if value.fract() == 0.0 => format!("{value:.0}"),
        Unit::Count => format!("{value:.1}"),
        Unit::Megabytes => format!("{value:.1} MB"),
    }
}

/// The middle one; of an even number, the higher of the two in the middle.
pub fn median(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

/// The longest.
pub fn worst(times: &[Duration]) -> Duration {
    times.iter().max().copied().unwrap_or_default()
}

/// Each of them, in the order of the runs.
pub fn list(times: &[Duration]) -> String {
    times.iter().map(|t| format!("{:.1}", t.as_secs_f64())).collect::<Vec<_>>().join(" ")
}
