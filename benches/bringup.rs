//! What it costs to bring clusters of three members up on a real Kubernetes: time, requests to the API server,
//! CPU and memory of the operator.
//!
//! Run as `make bench-bringup`. `BENCH_RUNS` sets how many clusters come up one after the other (5).

mod stage;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use etcd_operator_testbed::{Context as _, Result};
use stage::figures::{Table, Unit, list, median, worst};
use stage::process::load;
use stage::{Clusters, Stage, number, say};

/// Clusters that come up at the same time.
const FLEET: u32 = 12;

/// What follows from a bring-up by itself has happened by then, and counts as a part of it.
const AFTER: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    // `cargo test --benches` only wants to see that it builds.
    if !std::env::args().any(|arg| arg == "--bench") {
        return ExitCode::SUCCESS;
    }
    stage::run(bench())
}

async fn bench() -> Result<Table> {
    let mut table = Table::default();
    let stage = Stage::open().await?;
    let before = load();
    one_after_the_other(&stage, &mut table).await?;
    all_at_once(&stage, &mut table).await?;
    let size = std::fs::metadata(&stage.binary).context("looking at the binary")?.len();
    #[expect(clippy::cast_precision_loss, reason = "a file of some megabytes")]
    table.add("the operator's binary", 20.0, size as f64 / 1e6, Unit::Megabytes);
    table.note(format!("\nmegabytes are 1,000,000 bytes; {}", stage.binary.display()));
    table.note(format!("the machine's load was {before} at the start, {} at the end", load()));
    stage.close().await?;
    Ok(table)
}

async fn one_after_the_other(stage: &Stage, table: &mut Table) -> Result<()> {
    let runs = number("BENCH_RUNS", 5).max(1);
    let (mut times, mut requests, mut cpu) = (Vec::new(), Vec::new(), Duration::ZERO);
    let mut last = None;
    for run in 1..=runs {
        let clusters = Clusters::none(stage, "bringup").await?;
        let used = stage.process.cpu()?;
        let since = clusters.apply("db", 3).await?;
        let took = clusters.ready("db", 3, since).await?;
        tokio::time::sleep(AFTER).await;
        cpu += stage.process.cpu()?.saturating_sub(used);
        let sent = clusters.requests()?;
        say(&format!("run {run} of {runs}: {:.1} s, {} requests", took.as_secs_f64(), sent.total()));
        times.push(took);
        requests.push(sent.total());
        last = Some(sent);
        clusters.clear().await?;
    }
    table.time(format!("apply to three voters, median of {runs}"), 18.0, median(&times));
    table.time(format!("apply to three voters, worst of {runs}"), 22.0, worst(&times));
    requests.sort_unstable();
    let middle = requests.get(requests.len() / 2).copied().unwrap_or_default();
    // A write that meets a kubelet's is refused and made again, so a single run may need one more.
    table.add(format!("requests for one cluster, median of {runs}"), 30.0, count(middle), Unit::Count);
    table.time("CPU of the operator for one cluster", 0.08, cpu / runs);
    table.note(format!("\ntimes in seconds: {}", list(&times)));
    let last = last.unwrap_or_default();
    let refused = last.filter(|r| r.code == 409).total();
    table.note(format!(
        "requests: {requests:?}; of the last cluster ({refused} refused, for a newer version):"
    ));
    for (what, n) in last.counts() {
        table.note(format!("  {n:>3} {what}"));
    }
    Ok(())
}

async fn all_at_once(stage: &Stage, table: &mut Table) -> Result<()> {
    let clusters = Clusters::none(stage, "fleet").await?;
    let names: Vec<String> = (1..=FLEET).map(|n| format!("db{n}")).collect();
    let used = stage.process.cpu()?;
    let since = Instant::now();
    for name in &names {
        clusters.apply(name, 3).await?;
    }
    let ready = names.iter().map(|name| clusters.ready(name, 3, since));
    let times = futures::future::try_join_all(ready).await?;
    tokio::time::sleep(AFTER).await;
    let cpu = stage.process.cpu()?.saturating_sub(used);
    let requests = clusters.requests()?;
    table.time(format!("{FLEET} clusters at once, the last one ready"), 35.0, worst(&times));
    let each = count(requests.total()) / f64::from(FLEET);
    // A write that meets another's is refused and made again, so a crowd may need one or two more.
    table.add(format!("requests for each of {FLEET} clusters at once"), 33.0, each, Unit::Count);
    table.time(format!("CPU of the operator for each of {FLEET} at once"), 0.08, cpu / FLEET);
    let memory = stage.process.memory("VmRSS")?;
    table.add(format!("memory of the operator with {FLEET} clusters (RSS)"), 20.0, memory, Unit::Megabytes);
    let (anonymous, peak) = (stage.process.memory("RssAnon")?, stage.process.memory("VmHWM")?);
    table.note(format!(
        "of the memory {anonymous:.1} MB is its own, the rest its binary; at most {peak:.1} MB"
    ));
    clusters.clear().await
}

#[expect(clippy::cast_precision_loss, reason = "some dozens")]
fn count(n: usize) -> f64 {
    n as f64
}
