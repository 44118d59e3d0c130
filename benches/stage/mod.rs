//! What the benches on the testbed share: the operator as it is shipped, watched from outside, and the table
//! of what was wanted and what was measured. Does I/O; decides only whether a count is too high.
//!
//! A time never fails a bench: another machine is slower, and a slow run is not a wrong one.

#![allow(dead_code, unreachable_pub, reason = "each bench uses a part of it")]

pub mod client;
#[allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "the tests' own: what cannot be done ends the run"
)]
#[path = "../../tests/support/data.rs"]
pub mod data;
pub mod figures;
#[allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "the tests' own: what cannot be done ends the run"
)]
#[path = "../../tests/support/frozen.rs"]
pub mod frozen;
#[allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "the tests' own: what cannot be done ends the run"
)]
#[path = "../../tests/support/history.rs"]
pub mod history;
pub mod process;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use etcd_operator_api::{EtcdCluster, EtcdClusterSpec, conditions, crds};
use etcd_operator_testbed::{
    Context as _, Error, Namespace, OperatorProcess, Requests, Result, Testbed, eventually, object,
};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use process::Process;

/// The etcd that the clusters run.
pub const VERSION: &str = "3.6.16";

/// Nothing that is measured here takes as long on any machine.
pub const LIMIT: Duration = Duration::from_secs(300);

/// One operator that watches every namespace of the testbed.
pub struct Stage {
    pub testbed: Testbed,
    pub operator: OperatorProcess,
    pub process: Process,
    pub binary: PathBuf,
}

impl Stage {
    /// Starts the operator, and waits until its own first lists are behind it.
    ///
    /// # Errors
    /// When this is no testbed, or the operator does not start.
    pub async fn open() -> Result<Self> {
        // The first to come sets the provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let testbed = Testbed::current().await?;
        for crd in crds().context("making the CRDs")? {
            testbed.apply(&serde_json::to_string(&crd).context("writing a CRD")?).await?;
        }
        let shipped = std::env::var_os("ETCD_OPERATOR_BINARY");
        let binary = shipped.map_or_else(|| env!("CARGO_BIN_EXE_etcd-operator").into(), PathBuf::from);
        let args =
            ["--leader-elect-namespace=default", "--metrics-bind-address=0", "--health-probe-bind-address=0"];
        let operator = OperatorProcess::start(&testbed, &binary, &args, &[])?;
        eventually("the operator at work", LIMIT, async || {
            let log = operator.log().map_err(|e| e.to_string())?;
            if log.contains("the work begins") { Ok(()) } else { Err(log) }
        })
        .await?;
        let process = Process::of(operator.id())?;
        Ok(Self { testbed, operator, process, binary })
    }

    /// Ends the operator and says how it went.
    ///
    /// # Errors
    /// When it does not end as asked.
    pub async fn close(self) -> Result<()> {
        let status = self.operator.stop().await?;
        if status.success() { Ok(()) } else { Err(Error::new(format!("the operator ended with {status}"))) }
    }
}

/// EtcdClusters of one namespace, and the operator's requests about them.
pub struct Clusters {
    namespace: Namespace,
    testbed: Testbed,
    mark: etcd_operator_testbed::Mark,
}

impl Clusters {
    /// A fresh namespace without any.
    ///
    /// # Errors
    /// When it cannot be made.
    pub async fn none(stage: &Stage, prefix: &str) -> Result<Self> {
        let namespace = Namespace::fresh(&stage.testbed, prefix).await?;
        let mark = stage.testbed.audit_log().mark()?;
        Ok(Self { namespace, testbed: stage.testbed.clone(), mark })
    }

    /// Objects of a kind in the namespace, as an administrator.
    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        self.namespace.api()
    }

    /// Counts from now on.
    ///
    /// # Errors
    /// When there is no audit log.
    pub fn count_anew(&mut self) -> Result<()> {
        self.mark = self.testbed.audit_log().mark()?;
        Ok(())
    }

    /// The operator's requests about this namespace, but for its Lease, Events and watches.
    ///
    /// # Errors
    /// When the audit log cannot be read.
    pub fn requests(&self) -> Result<Requests> {
        let own = self.testbed.audit_log().since(self.mark)?.of_operator();
        let name = self.namespace.name();
        Ok(own.filter(|r| r.namespace == name && r.resource != "events" && r.verb != "watch"))
    }

    /// Applies the smallest EtcdCluster with so many members; returns when that was.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn apply(&self, name: &str, replicas: i32) -> Result<Instant> {
        let mut spec = EtcdClusterSpec::new(VERSION);
        spec.replicas = replicas;
        self.apply_spec(name, spec).await
    }

    /// Applies an EtcdCluster of this spec; returns when that was.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn apply_spec(&self, name: &str, spec: EtcdClusterSpec) -> Result<Instant> {
        let at = Instant::now();
        let cluster = EtcdCluster::new(name, spec);
        self.api::<EtcdCluster>()
            .create(&PostParams::default(), &cluster)
            .await
            .context(format_args!("creating EtcdCluster {name}"))?;
        Ok(at)
    }

    /// Sets `spec.replicas`; returns when that was.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn scale(&self, name: &str, replicas: i32) -> Result<Instant> {
        self.edit(name, json!({"replicas": replicas})).await
    }

    /// Merges this into the spec; returns when that was.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn edit(&self, name: &str, spec: Value) -> Result<Instant> {
        let at = Instant::now();
        let patch = Patch::Merge(json!({"spec": spec}));
        self.api::<EtcdCluster>()
            .patch(name, &PatchParams::default(), &patch)
            .await
            .context(format_args!("editing EtcdCluster {name}"))?;
        Ok(at)
    }

    /// Waits until the cluster is paused and nothing of it runs.
    ///
    /// # Errors
    /// When it is not so within [`LIMIT`].
    pub async fn paused(&self, name: &str) -> Result<()> {
        let what = format!("EtcdCluster {name} paused");
        object(self.api::<EtcdCluster>(), name, &what, LIMIT, |cluster: Option<&EtcdCluster>| {
            let all = cluster.ok_or("there is no such EtcdCluster")?.status_or_default().conditions;
            let available = conditions::find(&all, conditions::AVAILABLE);
            if available.is_some_and(|c| c.reason == "Paused") {
                Ok(())
            } else {
                Err(format!("{available:?}"))
            }
        })
        .await
    }

    /// Waits until the status says that `n` voters serve and nothing is left to do; returns how long after
    /// `since` that was seen.
    ///
    /// # Errors
    /// When it is not so within [`LIMIT`].
    pub async fn ready(&self, name: &str, n: i32, since: Instant) -> Result<Duration> {
        let what = format!("EtcdCluster {name} with {n} voters");
        object(self.api::<EtcdCluster>(), name, &what, LIMIT, |cluster: Option<&EtcdCluster>| {
            let cluster = cluster.ok_or("there is no such EtcdCluster")?;
            let status = cluster.status_or_default();
            let done = conditions::find(&status.conditions, conditions::PROGRESSING).is_some_and(|c| {
                c.reason == "Reconciled" && c.observed_generation == cluster.metadata.generation
            });
            let ready = status.ready_members;
            if done && ready == n { Ok(since.elapsed()) } else { Err(format!("{ready} ready, done: {done}")) }
        })
        .await
    }

    /// Deletes the namespace with all it holds.
    ///
    /// # Errors
    /// When something in it does not go.
    pub async fn clear(self) -> Result<()> {
        self.namespace.finish().await
    }
}

/// Runs a bench to its end and says whether it worked.
pub fn run(bench: impl Future<Output = Result<figures::Table>>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = runtime.context("starting a runtime").and_then(|runtime| runtime.block_on(bench));
    match done {
        Ok(table) => {
            table.print();
            if table.is_right() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            say(&format!("the bench did not work: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// A line for the person who waits.
#[expect(clippy::print_stdout, reason = "a bench's output is for people")]
pub fn say(line: &str) {
    println!("{line}");
}

/// A number from the environment: how often, how long.
pub fn number(variable: &str, default: u32) -> u32 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}
