//! The handle that everything else starts from. Reads the testbed's files and runs `ctr` and
//! `etcdctl`; starts and ends nothing.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use k8s_openapi::api::core::v1::Pod;
use kube::{Client, ResourceExt};
use tokio::process::Command;

use crate::audit::AuditLog;
use crate::error::{Context, Error, Result};
use crate::layout::{self, Info, StateDir};
use crate::node::Node;

/// The testbed around this process.
#[derive(Clone)]
pub struct Testbed {
    info: Info,
    state: StateDir,
    client: Client,
}

impl std::fmt::Debug for Testbed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Testbed").field("info", &self.info).finish_non_exhaustive()
    }
}

impl Testbed {
    /// Finds the testbed that this process runs in.
    ///
    /// # Errors
    /// When this process is not inside one. The text names the command to use.
    pub async fn current() -> Result<Self> {
        let info = layout::running()?;
        let state = StateDir::at(info.state.clone());
        let client = client(&state.kubeconfig("admin")).await?;
        Ok(Testbed { info, state, client })
    }

    /// A client to whom everything is allowed. Its requests are not counted as the operator's.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The kubeconfig of [`Testbed::client`].
    pub fn kubeconfig(&self) -> PathBuf {
        self.state.kubeconfig("admin")
    }

    /// The kubeconfig of the user `operator-under-test`. What it may do is set by the
    /// ClusterRoleBinding `testbed:operator-under-test`, at first everything.
    pub fn operator_kubeconfig(&self) -> PathBuf {
        self.state.kubeconfig("operator")
    }

    /// A client with the identity of [`Testbed::operator_kubeconfig`].
    ///
    /// # Errors
    /// When the kubeconfig cannot be read.
    pub async fn operator_client(&self) -> Result<Client> {
        client(&self.operator_kubeconfig()).await
    }

    /// Where components and operators write their logs while the testbed runs.
    pub fn logs(&self) -> PathBuf {
        self.state.logs()
    }

    /// A folder that stays after the testbed has ended, for what a person needs to understand a
    /// failed test. Creates it. Its being there also makes `testbed down` keep the components' logs.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn keep(&self, name: &str) -> Result<PathBuf> {
        let folder = self.state.kept().join(name);
        std::fs::create_dir_all(&folder).context(format_args!("creating {}", folder.display()))?;
        Ok(folder)
    }

    /// Every node, node1 first. Node N is in zone `zN`.
    pub fn nodes(&self) -> Vec<Node> {
        (1..=self.info.nodes).map(Node::new).collect()
    }

    /// The node with this name.
    ///
    /// # Errors
    /// When there is none.
    pub fn node(&self, name: &str) -> Result<Node> {
        let found = self.nodes().into_iter().find(|n| n.name() == name);
        found.ok_or_else(|| Error::new(format!("the testbed has no node {name:?}")))
    }

    /// The node on which a Pod runs.
    ///
    /// # Errors
    /// When the Pod has not been scheduled.
    pub fn node_of(&self, pod: &Pod) -> Result<Node> {
        let name = pod.spec.as_ref().and_then(|s| s.node_name.as_deref());
        self.node(name.ok_or_else(|| Error::new(format!("Pod {} is on no node yet", pod.name_any())))?)
    }

    /// A binary of an etcd release: `etcd`, `etcdctl` or `etcdutl`.
    ///
    /// # Errors
    /// When the testbed does not have that version.
    pub fn etcd_tool(&self, tool: &str, version: &str) -> Result<PathBuf> {
        let path = self.info.binaries.join(format!("etcd-{version}")).join(tool);
        if path.is_file() {
            return Ok(path);
        }
        let known: Vec<_> = layout::etcd_versions().collect();
        Err(Error::new(format!("the testbed has no {tool} {version}; it has etcd {}", known.join(", "))))
    }

    /// Runs etcdctl of a version against these client URLs and returns what it printed.
    ///
    /// # Errors
    /// When it fails; the text has what it said.
    pub async fn etcdctl(&self, version: &str, endpoints: &[&str], args: &[&str]) -> Result<String> {
        let out = Command::new(self.etcd_tool("etcdctl", version)?)
            .arg(format!("--endpoints={}", endpoints.join(",")))
            .args(args)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .context("running etcdctl")?;
        if out.status.success() {
            return String::from_utf8(out.stdout).context("reading what etcdctl printed");
        }
        let said = String::from_utf8_lossy(&out.stderr);
        Err(Error::new(format!("etcdctl {} at {endpoints:?}: {}", args.join(" "), said.trim())))
    }

    /// The API server's record of requests.
    pub fn audit_log(&self) -> AuditLog {
        AuditLog::new(self.state.audit_log())
    }

    /// Puts an image archive ([`crate::image`]) on every node.
    ///
    /// # Errors
    /// When a node's runtime does not take it.
    pub async fn load_image(&self, archive: &Path) -> Result<()> {
        let loads = self.nodes().into_iter().map(|node| async move { node.load_image(archive).await });
        futures::future::try_join_all(loads).await.map(drop)
    }

    /// Applies every object of a YAML text, as `kubectl apply --server-side` does, and waits until
    /// the CustomResourceDefinitions among them are served.
    ///
    /// # Errors
    /// When an object is refused or has a kind that the API server does not know.
    pub async fn apply(&self, yaml: &str) -> Result<()> {
        crate::apply::apply(&self.client, yaml).await
    }
}

/// A client with the identity of this kubeconfig.
///
/// # Errors
/// When the file cannot be read or names no usable identity. Nothing is sent yet.
pub async fn client(kubeconfig: &Path) -> Result<Client> {
    let doing = format!("reading {}", kubeconfig.display());
    let config = kube::config::Kubeconfig::read_from(kubeconfig).context(&doing)?;
    let options = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(config, &options).await.context(&doing)?;
    Client::try_from(config).context("making a client")
}
