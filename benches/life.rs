//! What it costs to keep clusters on a real Kubernetes: growing, shrinking with the leader among those who leave,
//! pausing, rolling under a client that writes, losing a member's data, and being left alone.
//!
//! Run as `make bench-life`. `BENCH_REST_MINUTES` sets how long the clusters are left alone (10), `BENCH_RUNS`
//! how often one grows and shrinks (3).

mod stage;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use etcd_operator_api::{EtcdCluster, EtcdClusterSpec, EtcdMember, StorageMedium, StorageSpec, labels};
use etcd_operator_testbed::{Context as _, Error, Result, object};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};
use stage::client::Writer;
use stage::figures::{Table, Unit, list, median};
use stage::process::load;
use stage::{Clusters, Stage, VERSION, data, number, say};

/// Clusters that are left alone.
const FLEET: u32 = 12;

/// etcd takes no change before every voter has been connected for 5 s; who has just grown waits for that.
const SETTLE: Duration = Duration::from_secs(10);

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
    grow_and_shrink(&stage, &mut table).await?;
    through_life(&stage, &mut table).await?;
    rest(&stage, &mut table).await?;
    table.note(format!("the machine's load was {before} at the start, {} at the end", load()));
    stage.close().await?;
    Ok(table)
}

async fn grow_and_shrink(stage: &Stage, table: &mut Table) -> Result<()> {
    let runs = number("BENCH_RUNS", 3).max(1);
    let (mut up, mut down, mut led) = (Vec::new(), Vec::new(), Vec::new());
    for run in 1..=runs {
        let clusters = Clusters::none(stage, "life").await?;
        clusters.ready("db", 3, clusters.apply("db", 3).await?).await?;
        tokio::time::sleep(SETTLE).await;
        up.push(clusters.ready("db", 5, clusters.scale("db", 5).await?).await?);
        tokio::time::sleep(SETTLE).await;
        down.push(clusters.ready("db", 3, clusters.scale("db", 3).await?).await?);
        tokio::time::sleep(SETTLE).await;
        clusters.ready("db", 5, clusters.scale("db", 5).await?).await?;
        tokio::time::sleep(SETTLE).await;
        led.push(without_leader(stage, &clusters).await?);
        clusters.clear().await?;
        let shown = [&up, &down, &led].map(|times| list(&times[times.len() - 1..]));
        say(&format!(
            "run {run} of {runs}: grown in {} s, shrunk in {} s, without the leader in {} s",
            shown[0], shown[1], shown[2]
        ));
    }
    table.time(format!("grow from three to five, median of {runs}"), 15.0, median(&up));
    table.time(format!("shrink from five to three, median of {runs}"), 4.0, median(&down));
    table.time(format!("shrink, the leader deleted, median of {runs}"), 4.0, median(&led));
    let (up, down, led) = (list(&up), list(&down), list(&led));
    table.note(format!("\ntimes in seconds: grow {up}; shrink {down}; shrink without the leader {led}"));
    Ok(())
}

/// A pause and its end, a changed spec on its way to three members, a data directory that is wiped, and a member in memory
/// that loses its Pod.
async fn through_life(stage: &Stage, table: &mut Table) -> Result<()> {
    let runs = number("BENCH_RUNS", 3).max(1);
    let (mut resumed, mut rolled, mut wiped, mut lost) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut writes = Vec::new();
    for run in 1..=runs {
        let clusters = Clusters::none(stage, "life").await?;
        clusters.ready("db", 3, clusters.apply("db", 3).await?).await?;
        tokio::time::sleep(SETTLE).await;
        clusters.scale("db", 0).await?;
        clusters.paused("db").await?;
        resumed.push(clusters.ready("db", 3, clusters.scale("db", 3).await?).await?);
        tokio::time::sleep(SETTLE).await;
        let resources = json!({"resources": {"requests": {"cpu": "60m", "memory": "96Mi"}}});
        let writer = Writer::start(&clusters, "db").await?;
        rolled.push(clusters.ready("db", 3, clusters.edit("db", resources).await?).await?);
        writes.push(writer.done());
        drop(writer);
        tokio::time::sleep(SETTLE).await;
        wiped.push(wipe(stage, &clusters).await?);
        lost.push(lose_memory(&clusters).await?);
        clusters.clear().await?;
        let shown = [&resumed, &rolled, &wiped, &lost].map(|times| list(&times[times.len() - 1..]));
        say(&format!(
            "run {run} of {runs}: resumed in {} s, rolled in {} s, a wiped member replaced in {} s, one in memory in {} s",
            shown[0], shown[1], shown[2], shown[3]
        ));
    }
    table.time(format!("resume from a pause to three, median of {runs}"), 18.0, median(&resumed));
    table.time(format!("roll three members, median of {runs}"), 30.0, median(&rolled));
    let failed = writes.iter().map(|w| w.failed).sum::<u32>();
    table.add(format!("writes in {runs} rolls that failed twice"), 0.0, f64::from(failed), Unit::Count);
    table.time(format!("replace a wiped member, median of {runs}"), 30.0, median(&wiped));
    table.time(format!("replace a member in memory, median of {runs}"), 8.0, median(&lost));
    let (resumed, rolled, wiped, lost) = (list(&resumed), list(&rolled), list(&wiped), list(&lost));
    table.note(format!("\ntimes in seconds: resume {resumed}; roll {rolled}; wiped {wiped}; memory {lost}"));
    table.note(format!("writes in each roll: {writes:?}"));
    Ok(())
}

/// How long three members are not three after the data directory of one that follows was wiped.
async fn wipe(stage: &Stage, clusters: &Clusters) -> Result<Duration> {
    let leader = leader(stage, clusters, "db").await?;
    let of_db = ListParams::default().labels(&format!("{}=db", labels::CLUSTER));
    let all = clusters.api::<EtcdMember>().list(&of_db).await.context("listing EtcdMembers")?.items;
    let victim = all.iter().map(|m| m.name_any()).find(|name| *name != leader);
    let victim = victim.ok_or_else(|| Error::new("nobody follows"))?;
    data::wipe(&victim);
    replaced(clusters, "db", &victim, Instant::now()).await
}

/// How long after `since` the member of this name is gone and the cluster has three voters again.
async fn replaced(clusters: &Clusters, cluster: &str, victim: &str, since: Instant) -> Result<Duration> {
    let gone =
        |member: Option<&EtcdMember>| member.is_none().then_some(()).ok_or_else(|| "it is there".to_owned());
    let what = "the member that lost its data is gone";
    object(clusters.api::<EtcdMember>(), victim, what, Duration::from_secs(120), gone).await?;
    clusters.ready(cluster, 3, since).await
}

/// How long three members in memory are not three after one Pod was deleted.
async fn lose_memory(clusters: &Clusters) -> Result<Duration> {
    let mut spec = EtcdClusterSpec::new(VERSION);
    spec.storage = StorageSpec {
        size: Quantity("256Mi".into()),
        medium: StorageMedium::Memory,
        storage_class_name: None,
    };
    clusters.ready("mem", 3, clusters.apply_spec("mem", spec).await?).await?;
    tokio::time::sleep(SETTLE).await;
    let of_mem = ListParams::default().labels(&format!("{}=mem", labels::CLUSTER));
    let all = clusters.api::<EtcdMember>().list(&of_mem).await.context("listing EtcdMembers")?.items;
    // The youngest follows.
    let youngest = all.iter().max_by_key(|m| (m.creation_timestamp(), m.name_any()));
    let victim = youngest.map(|m| m.name_any()).ok_or_else(|| Error::new("there is no member"))?;
    let since = Instant::now();
    clusters.api::<Pod>().delete(&victim, &DeleteParams::default()).await.context("deleting a Pod")?;
    replaced(clusters, "mem", &victim, since).await
}

/// Shrinks from five to three, and the leader is the one whose deletion was asked for.
async fn without_leader(stage: &Stage, clusters: &Clusters) -> Result<Duration> {
    let leader = leader(stage, clusters, "db").await?;
    let since = clusters.scale("db", 3).await?;
    let members = clusters.api::<EtcdMember>();
    members.delete(&leader, &DeleteParams::default()).await.context("deleting the leader's EtcdMember")?;
    let took = clusters.ready("db", 3, since).await?;
    if self::leader(stage, clusters, "db").await? == leader {
        return Err(Error::new(format!("{leader} still leads, and was to leave")));
    }
    Ok(took)
}

/// The name of the member that leads, by its own word.
async fn leader(stage: &Stage, clusters: &Clusters, cluster: &str) -> Result<String> {
    let selector = format!("{}={cluster},{}={}", labels::CLUSTER, labels::ROLE, labels::ROLE_VOTER);
    let pods = clusters.api::<Pod>().list(&ListParams::default().labels(&selector)).await;
    for pod in pods.context("listing the voters' Pods")?.items {
        let address = pod.status.as_ref().and_then(|s| s.pod_ip.clone()).unwrap_or_default();
        let asked = ["--write-out=json", "endpoint", "status"];
        let text = stage.testbed.etcdctl(VERSION, &[&format!("http://{address}:2379")], &asked).await;
        let Ok(text) = text else { continue };
        let said: Value = serde_json::from_str(&text).context("reading what etcdctl printed")?;
        let status = &said[0]["Status"];
        if !status["leader"].is_null() && status["leader"] == status["header"]["member_id"] {
            return Ok(pod.name_any());
        }
    }
    Err(Error::new(format!("no voter of {cluster} leads")))
}

async fn rest(stage: &Stage, table: &mut Table) -> Result<()> {
    let minutes = number("BENCH_REST_MINUTES", 10).max(1);
    let mut clusters = Clusters::none(stage, "rest").await?;
    let names: Vec<String> = (1..=FLEET).map(|n| format!("db{n}")).collect();
    let since = Instant::now();
    for name in &names {
        clusters.apply(name, 3).await?;
    }
    futures::future::try_join_all(names.iter().map(|name| clusters.ready(name, 3, since))).await?;
    // The last Pods become Ready, and the last labels are seen.
    tokio::time::sleep(SETTLE).await;
    let versions = versions(&clusters).await?;
    clusters.count_anew()?;
    let used = stage.process.cpu()?;
    say(&format!("{FLEET} clusters are left alone for {minutes} min"));
    tokio::time::sleep(Duration::from_secs(60) * minutes).await;
    let cpu = stage.process.cpu()?.saturating_sub(used);
    let requests = clusters.requests()?;
    #[expect(clippy::cast_precision_loss, reason = "none, or a few")]
    let (writes, all) = (requests.writes() as f64, requests.total() as f64);
    table.add(format!("writes for {FLEET} clusters in {minutes} min at rest"), 0.0, writes, Unit::Count);
    table.add(format!("requests for {FLEET} clusters in {minutes} min at rest"), 0.0, all, Unit::Count);
    table.time("CPU of the operator for a minute of that", 0.2, cpu / minutes);
    let memory = stage.process.memory("VmRSS")?;
    table.add(format!("memory of the operator with {FLEET} clusters (RSS)"), 20.0, memory, Unit::Megabytes);
    for (what, n) in requests.counts() {
        table.note(format!("  {n:>3} {what}"));
    }
    let after = self::versions(&clusters).await?;
    if versions != after {
        return Err(Error::new(format!(
            "objects changed while nobody did anything: {versions:?}, then {after:?}"
        )));
    }
    clusters.clear().await
}

/// The resourceVersion of each EtcdCluster and EtcdMember: whoever writes one changes it.
async fn versions(clusters: &Clusters) -> Result<BTreeMap<String, Option<String>>> {
    let all = ListParams::default();
    let ours = clusters.api::<EtcdCluster>().list(&all).await.context("listing EtcdClusters")?;
    let members = clusters.api::<EtcdMember>().list(&all).await.context("listing EtcdMembers")?;
    let ours = ours.items.iter().map(|c| (c.name_any(), c.resource_version()));
    Ok(ours.chain(members.items.iter().map(|m| (m.name_any(), m.resource_version()))).collect())
}
