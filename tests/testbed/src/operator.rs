//! The operator as a process of this machine, inside the testbed: started, killed and started again.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use crate::error::{Context, Error, Result};
use crate::testbed::Testbed;

/// Time between the signal to stop and giving up; an operator hands its Lease back in much less.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// Distinguishes the log files of one test process.
static STARTED: AtomicU32 = AtomicU32::new(0);

/// An operator that runs with the identity `operator-under-test`. Killed when dropped.
#[derive(Debug)]
pub struct OperatorProcess {
    child: Child,
    binary: PathBuf,
    args: Vec<String>,
    env: Vec<(String, String)>,
    log: PathBuf,
}

impl OperatorProcess {
    /// Starts `binary` with these arguments, and these variables beside KUBECONFIG and the caller's.
    ///
    /// # Errors
    /// When it or its log file cannot be opened.
    pub fn start(
        testbed: &Testbed,
        binary: impl AsRef<Path>,
        args: &[&str],
        env: &[(&str, &str)],
    ) -> Result<Self> {
        let binary = binary.as_ref().to_owned();
        let name = binary.file_name().unwrap_or(OsStr::new("operator")).to_string_lossy();
        let count = STARTED.fetch_add(1, Ordering::Relaxed);
        let log = testbed.logs().join(format!("{name}-{}-{count}.log", std::process::id()));
        let kubeconfig = testbed.operator_kubeconfig().to_string_lossy().into_owned();
        let args: Vec<_> = args.iter().map(ToString::to_string).collect();
        let mut env: Vec<_> = env.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        env.insert(0, ("KUBECONFIG".into(), kubeconfig));
        let child = spawn(&binary, &args, &env, &log)?;
        Ok(OperatorProcess { child, binary, args, env, log })
    }

    /// Where its output goes. Lives as long as the testbed, or longer if a test failed.
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// What it has written so far, over all its lives.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn log(&self) -> Result<String> {
        std::fs::read_to_string(&self.log).context(format_args!("reading {}", self.log.display()))
    }

    /// Its process ID, unless it has been waited for.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    /// When it still runs after `limit`.
    pub async fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        match tokio::time::timeout(limit, self.child.wait()).await {
            Ok(status) => status.context("waiting for the operator"),
            Err(_) => {
                let (limit, log) = (limit.as_secs_f32(), self.log.display());
                Err(Error::new(format!("the operator still runs after {limit} s; its log is {log}")))
            }
        }
    }

    /// Ends it without warning, as `kill -9` does.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub async fn kill(&mut self) -> Result<()> {
        self.child.kill().await.context("killing the operator")
    }

    /// Asks it to end, as a deleted Pod is asked, and waits.
    ///
    /// # Errors
    /// When it does not end within 20 s.
    pub async fn stop(mut self) -> Result<ExitStatus> {
        if let Some(pid) = self.child.id().and_then(|pid| Pid::from_raw(pid.cast_signed())) {
            kill_process(pid, Signal::TERM).context("signalling the operator")?;
        }
        self.wait(STOP_LIMIT).await
    }

    /// Kills it if it runs, and starts it anew with the same arguments and the same log.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn restart(&mut self) -> Result<()> {
        self.kill().await?;
        self.child = spawn(&self.binary, &self.args, &self.env, &self.log)?;
        Ok(())
    }

    /// As [`OperatorProcess::restart`], with other variables beside KUBECONFIG: a failpoint that has
    /// done its work is taken away by this.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn restart_with(&mut self, env: &[(&str, &str)]) -> Result<()> {
        self.env.truncate(1);
        self.env.extend(env.iter().map(|(k, v)| (k.to_string(), v.to_string())));
        self.restart().await
    }
}

fn spawn(binary: &Path, args: &[String], env: &[(String, String)], log: &Path) -> Result<Child> {
    let output = File::options().create(true).append(true).open(log);
    let output = output.context(format_args!("opening {}", log.display()))?;
    Command::new(binary)
        .args(args)
        .envs(env.iter().map(|(k, v)| (k, v)))
        .stdin(Stdio::null())
        .stdout(output.try_clone().context("sharing a log file")?)
        .stderr(output)
        .kill_on_drop(true)
        .spawn()
        .context(format_args!("starting {}", binary.display()))
}
