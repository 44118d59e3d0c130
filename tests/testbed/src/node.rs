//! One node: ending it, bringing it back, and putting images on it. The first two are orders to the
//! supervisor; the last runs `ctr`.

use std::path::Path;
use std::process::Stdio;

use tokio::process::Command;

use crate::control::{Order, order};
use crate::error::{Context, Error, Result};

/// A node of the testbed. Ends nothing when it is dropped; a test that kills a node starts it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    number: u32,
}

impl Node {
    /// Node `number`, counted from 1.
    #[must_use]
    pub fn new(number: u32) -> Self {
        Node { number }
    }

    /// Its name in Kubernetes.
    #[must_use]
    pub fn name(&self) -> String {
        format!("node{}", self.number)
    }

    /// Its value of `topology.kubernetes.io/zone`.
    #[must_use]
    pub fn zone(&self) -> String {
        format!("z{}", self.number)
    }

    /// Ends it as a power cut does: kubelet, runtime and every container, at once. Kubernetes calls it
    /// not ready after about 20 s and evicts its Pods 30 s later.
    ///
    /// # Errors
    /// When the supervisor cannot be reached or a process does not end.
    pub async fn kill(&self) -> Result<()> {
        order(&Order::KillNode(self.number)).await.map(drop)
    }

    /// Ends only its kubelet. Containers go on, but nobody reports them.
    ///
    /// # Errors
    /// When the supervisor cannot be reached.
    pub async fn kill_kubelet(&self) -> Result<()> {
        order(&Order::KillKubelet(self.number)).await.map(drop)
    }

    /// Starts whatever of it does not run. Returns when the runtime answers; the node is ready a few
    /// seconds later.
    ///
    /// # Errors
    /// When the supervisor cannot be reached or a program does not start.
    pub async fn start(&self) -> Result<()> {
        order(&Order::StartNode(self.number)).await.map(drop)
    }

    /// Puts an image archive ([`crate::image`]) on this node.
    ///
    /// # Errors
    /// When its runtime does not take it.
    pub async fn load_image(&self, archive: &Path) -> Result<()> {
        let socket = format!("/run/testbed/{}/containerd.sock", self.name());
        let out = Command::new("ctr")
            .args(["--address", &socket, "--namespace", "k8s.io", "images", "import"])
            .arg(archive)
            .stdin(Stdio::null())
            .output()
            .await
            .context("running ctr")?;
        if out.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&out.stderr);
        Err(Error::new(format!("putting {} on {}: {}", archive.display(), self.name(), said.trim())))
    }
}
