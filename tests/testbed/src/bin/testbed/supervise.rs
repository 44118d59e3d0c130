//! Brings the components up in order, says when the testbed is ready, and then carries out orders
//! (`etcd_operator_testbed::control`) until it is ended from outside. Runs inside the namespaces.

use std::fmt::Display;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use etcd_operator_testbed::control::{Answer, Order};
use etcd_operator_testbed::layout::{CONTROL_SOCKET, INFO, Info, StateDir};
use etcd_operator_testbed::{Context, Error, Result};
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::api::PostParams;
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::cgroups::Cgroups;
use crate::components::Components;
use crate::provisioner::Provisioner;

/// Node 1's address carries the API server.
pub(crate) const API_SERVER: &str = "https://10.99.0.1:7443";
/// A kubelet that has ended by itself is started again after this, as an init system does: it ends when it cannot
/// watch its files, for one, and the machine's limit on that is shared.
const KUBELET_PAUSE: Duration = Duration::from_secs(2);
/// Last line to `testbed up`.
pub(crate) const READY: &str = "ready";

/// What `testbed up` decided. Lies in the state directory for the supervisor to read.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct Plan {
    pub(crate) state: PathBuf,
    pub(crate) binaries: PathBuf,
    pub(crate) nodes: u32,
    pub(crate) images: Vec<PathBuf>,
}

impl Plan {
    pub(crate) fn path(state: &StateDir) -> PathBuf {
        state.run().join("plan.json")
    }
}

/// What is being run. The command lines are in `programs`, the image store in `store`.
pub(crate) struct Supervisor {
    pub(crate) plan: Plan,
    pub(crate) state: StateDir,
    pub(crate) cgroups: Cgroups,
    pub(crate) components: Components,
    begun: Instant,
}

/// Runs until the process is killed; returns only if the testbed could not be brought up.
pub(crate) async fn run() -> Result<()> {
    let this = std::env::current_exe().context("finding the testbed's binary")?;
    let run = this.parent().ok_or_else(|| Error::new("the testbed's binary has no folder"))?;
    let plan = fs::read(run.join("plan.json")).context("reading the plan")?;
    let plan: Plan = serde_json::from_slice(&plan).context("reading the plan")?;
    let state = StateDir::at(plan.state.clone());
    let (components, mut ended) = Components::new(state.clone(), plan.binaries.clone());
    let cgroups = Cgroups::new(state.cgroup())?;
    let supervisor = Supervisor { plan, state, cgroups, components, begun: Instant::now() };
    tokio::select! {
        up = supervisor.bring_up() => up?,
        Some(name) = ended.recv() => {
            return Err(Error::new(format!("{name}; its log is in {}", supervisor.state.logs().display())));
        }
    }
    supervisor.serve(ended).await
}

impl Supervisor {
    /// A line for the person who waits for `testbed up`.
    fn say(&self, what: impl Display) {
        let text = format!("{:6.1} s  {what}\n", self.begun.elapsed().as_secs_f64());
        // `up` may have been interrupted; that is no reason to stop.
        let _ = std::io::stdout().write_all(text.as_bytes());
    }

    async fn bring_up(&self) -> Result<()> {
        for n in self.nodes() {
            self.configure_node(n)?;
        }
        self.configure("audit-policy.yaml", include_str!("../../../etc/audit-policy.yaml"), 0)?;
        self.configure("kube-proxy.yaml", include_str!("../../../etc/kube-proxy.yaml"), 0)?;
        self.configure("Corefile", include_str!("../../../etc/Corefile"), 0)?;

        self.start_etcd()?;
        self.start_api_server()?;
        let runtimes = async {
            self.image_store().await?;
            for n in self.nodes() {
                self.start_containerd(n)?;
            }
            futures::future::try_join_all(self.nodes().map(|n| self.runtime_ready(n))).await?;
            self.say("container runtimes ready");
            Ok(())
        };
        let control_plane = async {
            let client = self.api_server_ready().await?;
            self.say("API server ready");
            bootstrap(&client).await?;
            self.start_control_plane()?;
            let folder = self.state.run().join("volumes");
            tokio::spawn(Provisioner { client: client.clone(), folder }.run());
            Ok(client)
        };
        let ((), client) = futures::try_join!(runtimes, control_plane)?;
        for n in self.nodes() {
            self.start_kubelet(n)?;
        }
        self.nodes_ready(&client).await?;
        self.say("nodes ready");
        default_service_account(&client).await?;
        until_reachable("10.98.0.1:443", "the API server's Service").await?;
        dns_ready().await?;
        self.say("service accounts, Services and DNS ready");
        let info = Info {
            state: self.plan.state.clone(),
            binaries: self.plan.binaries.clone(),
            nodes: self.plan.nodes,
        };
        fs::write(self.state.ready(), "").context("marking the testbed ready")?;
        fs::write(INFO, serde_json::to_vec(&info).context("encoding")?)
            .context(format_args!("writing {INFO}"))
    }

    pub(crate) fn nodes(&self) -> std::ops::RangeInclusive<u32> {
        1..=self.plan.nodes
    }

    fn configure(&self, file: &str, template: &str, n: u32) -> Result<()> {
        let folder = if n == 0 { self.state.run() } else { self.state.node(n) };
        let path = folder.join(file);
        let text = template
            .replace("@PKI@", &self.state.pki().to_string_lossy())
            .replace("@RUN@", &self.state.run().to_string_lossy())
            .replace("@NODE@", &folder.to_string_lossy())
            .replace("@CGROUP@", self.cgroups.name())
            .replace("@N@", &n.to_string());
        fs::create_dir_all(path.parent().unwrap_or(&folder))
            .context(format_args!("creating {}", folder.display()))?;
        fs::write(&path, text).context(format_args!("writing {}", path.display()))
    }

    fn configure_node(&self, n: u32) -> Result<()> {
        self.configure("containerd.toml", include_str!("../../../etc/containerd.toml"), n)?;
        self.configure("kubelet.yaml", include_str!("../../../etc/kubelet.yaml"), n)?;
        self.configure("cni/10-testbed.conflist", include_str!("../../../etc/cni.conflist"), n)
    }

    pub(crate) async fn runtime_ready(&self, n: u32) -> Result<()> {
        let socket = format!("/run/testbed/node{n}/containerd.sock");
        loop {
            if UnixStream::connect(&socket).await.is_ok() {
                return Ok(());
            }
            // The socket's folder is made by containerd itself, so there is nothing to watch yet.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn api_server_ready(&self) -> Result<Client> {
        let client = etcd_operator_testbed::client(&self.state.kubeconfig("supervisor")).await?;
        loop {
            let request = http::Request::get("/readyz").body(Vec::new()).context("building a request")?;
            if client.request_text(request).await.is_ok() {
                return Ok(client);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn nodes_ready(&self, client: &Client) -> Result<()> {
        let nodes = Api::<Node>::all(client.clone());
        let ready = |node: Option<&Node>| {
            let Some(node) = node else { return false };
            let conditions = node.status.iter().flat_map(|s| s.conditions.iter().flatten());
            let tainted =
                node.spec.as_ref().is_some_and(|s| s.taints.as_ref().is_some_and(|t| !t.is_empty()));
            !tainted && conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True")
        };
        let waits = self.nodes().map(|n| {
            let nodes = nodes.clone();
            async move { await_condition(nodes, &format!("node{n}"), ready).await }
        });
        futures::future::try_join_all(waits).await.map(drop).context("waiting for the nodes")
    }

    /// Takes orders, one connection after another: two orders for one node must not mix.
    async fn serve(&self, mut ended: UnboundedReceiver<String>) -> Result<()> {
        let listener = UnixListener::bind(CONTROL_SOCKET).context("opening the control socket")?;
        let _ = writeln!(std::io::stdout(), "{READY}");
        let mut again = tokio::task::JoinSet::new();
        loop {
            tokio::select! {
                Some(line) = ended.recv() => {
                    self.note(&line);
                    if let Some(n) = self.nodes().find(|n| line.starts_with(&format!("kubelet{n} "))) {
                        again.spawn(async move {
                            tokio::time::sleep(KUBELET_PAUSE).await;
                            n
                        });
                    }
                }
                // Unless somebody has started it, or killed the whole node, meanwhile.
                Some(Ok(n)) = again.join_next() => if self.lacks_its_kubelet(n) && let Err(error) = self.start_kubelet(n) {
                    self.note(&error.to_string());
                },
                Ok((stream, _)) = listener.accept() => {
                    if let Err(error) = self.answer(stream).await {
                        self.note(&error.to_string());
                    }
                }
            }
        }
    }

    fn lacks_its_kubelet(&self, n: u32) -> bool {
        let runs = |name: String| self.components.state_of(&name).as_deref() == Some("running");
        runs(format!("containerd{n}")) && !runs(format!("kubelet{n}"))
    }

    /// After the start stdout belongs to nobody; stderr is the supervisor's log.
    #[expect(clippy::unused_self, reason = "reads as what the supervisor does")]
    fn note(&self, line: &str) {
        eprintln!("{line}");
    }

    async fn answer(&self, stream: UnixStream) -> Result<()> {
        let (read, mut write) = stream.into_split();
        let mut line = String::new();
        BufReader::new(read).read_line(&mut line).await.context("reading an order")?;
        let mut answer = Answer::default();
        match serde_json::from_str::<Order>(&line) {
            Err(error) => answer.error = Some(error.to_string()),
            Ok(order) => answer.error = self.carry_out(&order).await.err().map(|e| e.to_string()),
        }
        answer.components = self.components.all();
        let mut line = serde_json::to_string(&answer).context("encoding an answer")?;
        line.push('\n');
        write.write_all(line.as_bytes()).await.context("answering")
    }

    async fn carry_out(&self, order: &Order) -> Result<()> {
        if let Order::KillNode(n) | Order::KillKubelet(n) | Order::StartNode(n) = order
            && !self.nodes().contains(n)
        {
            return Err(Error::new(format!("there is no node{n}")));
        }
        match order {
            Order::Status => Ok(()),
            Order::KillNode(n) => {
                let daemons = [format!("containerd{n}"), format!("kubelet{n}")];
                daemons.iter().for_each(|name| self.components.stopping(name));
                self.cgroups.kill(&Self::daemons(*n)).await?;
                self.cgroups.kill(&format!("node{n}")).await?;
                for name in &daemons {
                    self.components.ended(name).await;
                }
                Ok(())
            }
            Order::KillKubelet(n) => {
                self.components.stopping(&format!("kubelet{n}"));
                for pid in self.cgroups.processes(&Self::daemons(*n)) {
                    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
                    if let (Some(pid), "kubelet") = (rustix::process::Pid::from_raw(pid), name.trim()) {
                        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                    }
                }
                self.components.ended(&format!("kubelet{n}")).await;
                Ok(())
            }
            Order::StartNode(n) => {
                self.start_containerd(*n)?;
                self.runtime_ready(*n).await?;
                self.start_kubelet(*n)
            }
        }
    }
}

/// Creates what the components and the tests count on.
async fn bootstrap(client: &Client) -> Result<()> {
    use serde::Deserialize;
    for document in serde_yaml_ng::Deserializer::from_str(include_str!("../../../etc/bootstrap.yaml")) {
        let object = serde_json::Value::deserialize(document).context("reading bootstrap.yaml")?;
        let kind = object["kind"].as_str().unwrap_or_default();
        match kind {
            "ClusterRole" => create::<k8s_openapi::api::rbac::v1::ClusterRole>(client, object).await?,
            "ClusterRoleBinding" => {
                create::<k8s_openapi::api::rbac::v1::ClusterRoleBinding>(client, object).await?
            }
            "StorageClass" => create::<k8s_openapi::api::storage::v1::StorageClass>(client, object).await?,
            other => return Err(Error::new(format!("bootstrap.yaml has an object of kind {other:?}"))),
        }
    }
    Ok(())
}

async fn create<K>(client: &Client, object: serde_json::Value) -> Result<()>
where
    K: kube::Resource<DynamicType = ()>
        + Clone
        + serde::de::DeserializeOwned
        + serde::Serialize
        + std::fmt::Debug,
{
    let object: K = serde_json::from_value(object).context("reading bootstrap.yaml")?;
    let done = Api::<K>::all(client.clone()).create(&PostParams::default(), &object).await;
    done.map(drop).context(format_args!("creating {} {:?}", K::kind(&()), object.meta().name))
}

/// It comes last, and without it the first Pod is refused.
async fn default_service_account(client: &Client) -> Result<()> {
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), "default");
    let there = |account: Option<&ServiceAccount>| account.is_some();
    await_condition(accounts, "default", there)
        .await
        .map(drop)
        .context("waiting for the default service account")
}

/// kube-proxy tells nobody when it has written its rules; a connection does.
async fn until_reachable(address: &str, what: &str) -> Result<()> {
    for _ in 0..1200 {
        let attempt = tokio::time::timeout(Duration::from_secs(1), TcpStream::connect(address));
        if attempt.await.is_ok_and(|connected| connected.is_ok()) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Err(Error::new(format!("{what} at {address} cannot be reached; see kube-proxy.log")))
}

async fn dns_ready() -> Result<()> {
    loop {
        let ready = async {
            let mut stream = TcpStream::connect("127.0.0.1:17081").await?;
            stream.write_all(b"GET /ready HTTP/1.0\r\n\r\n").await?;
            let mut reply = String::new();
            stream.read_to_string(&mut reply).await?;
            Ok::<_, std::io::Error>(reply.starts_with("HTTP/1.0 200"))
        };
        if ready.await.unwrap_or(false) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
