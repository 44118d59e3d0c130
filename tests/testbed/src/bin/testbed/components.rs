//! The programs that make up the testbed: starting them with a log file each, and knowing which run.
//! Decides nothing about when; that is the supervisor's.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use etcd_operator_testbed::layout::StateDir;
use etcd_operator_testbed::{Context, Result};
use tokio::process::Command;
use tokio::sync::mpsc;

const STOPPING: &str = "stopping";

/// Every component that was started in this testbed.
#[derive(Clone)]
pub(crate) struct Components {
    state: StateDir,
    binaries: PathBuf,
    started: Arc<Mutex<BTreeMap<String, String>>>,
    ended: mpsc::UnboundedSender<String>,
}

impl Components {
    /// The receiver gets a line for each component that ends.
    pub(crate) fn new(state: StateDir, binaries: PathBuf) -> (Self, mpsc::UnboundedReceiver<String>) {
        let (ended, receiver) = mpsc::unbounded_channel();
        (Components { state, binaries, started: Arc::default(), ended }, receiver)
    }

    /// Starts a program under a name, if it does not run. `group` is the control group in which it
    /// can be found again; without one it stays in the supervisor's.
    pub(crate) fn start(
        &self,
        name: &str,
        group: Option<&str>,
        program: &str,
        args: &[String],
    ) -> Result<()> {
        if self.state_of(name).as_deref() == Some("running") {
            return Ok(());
        }
        let log = self.state.logs().join(format!("{name}.log"));
        let log = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .context(format_args!("opening {}", log.display()))?;
        let built = self.binaries.join("bin").join(program);
        let program = if built.exists() { built } else { PathBuf::from(program) };
        let mut command = match group {
            Some(group) => {
                let this = std::env::current_exe().context("finding the testbed's binary")?;
                let mut command = Command::new(this);
                command.args(["join", &self.state.cgroup(), group]).arg(&program);
                command
            }
            None => Command::new(&program),
        };
        let mut child = command
            .args(args)
            // Two cores are shared by many programs: less garbage collection for more memory.
            .env("GOGC", "200")
            .env_remove("ETCD_OPERATOR_TESTBED_DIR")
            .current_dir(self.state.run())
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("sharing a log file")?)
            .stderr(log)
            .spawn()
            .context(format_args!("starting {}", program.display()))?;
        self.set(name, "running".into());
        let (this, name) = (self.clone(), name.to_owned());
        tokio::spawn(async move {
            let status = match child.wait().await {
                Ok(status) => status.to_string(),
                Err(error) => error.to_string(),
            };
            let expected = this.state_of(&name).as_deref() == Some(STOPPING);
            this.set(&name, format!("ended: {status}"));
            if !expected {
                // Nobody listens any more once the testbed ends.
                let _ = this.ended.send(format!("{name} ended: {status}"));
            }
        });
        Ok(())
    }

    /// Says that a component is about to be killed on purpose, which is not to be reported.
    pub(crate) fn stopping(&self, name: &str) {
        if self.state_of(name).as_deref() == Some("running") {
            self.set(name, STOPPING.into());
        }
    }

    /// Waits until a component that is being killed has ended.
    pub(crate) async fn ended(&self, name: &str) {
        while self.state_of(name).as_deref() == Some(STOPPING) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// `running`, `stopping`, `ended: …`, or nothing if it never was started.
    pub(crate) fn state_of(&self, name: &str) -> Option<String> {
        self.started.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Every component and its state, by name.
    pub(crate) fn all(&self) -> Vec<(String, String)> {
        let started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        started.iter().map(|(name, state)| (name.clone(), state.clone())).collect()
    }

    fn set(&self, name: &str, state: String) {
        self.started.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), state);
    }
}
