//! One etcd process on loopback, in a directory of its own. Both are gone when it is dropped, also
//! when the test fails.

use std::{
    env, fs,
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use etcd_operator_core::{
    etcd::{EtcdFailure, Look, MemberList},
    ids::{MemberId, PeerUrl},
    time::Time,
};
use etcd_operator_etcd::{Channels, Dialer, Etcd, Expected, Target};
use etcd_operator_testbed::layout;

/// How long a server may take to start, to join or to catch up, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) client: SocketAddr,
    pub(crate) peer_url: PeerUrl,
    binary: PathBuf,
    dir: PathBuf,
    extra: Vec<String>,
    child: Option<Child>,
}

/// The newest version that the testbed builds of this minor.
pub(crate) fn version(minor: &str) -> &'static str {
    layout::etcd_versions()
        .find(|v| v.starts_with(&format!("{minor}.")))
        .unwrap_or_else(|| panic!("tests/testbed/versions.env names no etcd {minor}"))
}

/// `$ETCD_OPERATOR_ETCD_BIN_DIR/<version>/etcd`, or the one the testbed built.
fn binary(version: &str) -> PathBuf {
    let path = match env::var_os("ETCD_OPERATOR_ETCD_BIN_DIR") {
        Some(dir) => PathBuf::from(dir).join(version).join("etcd"),
        None => layout::cache_dir().join(format!("etcd-{version}")).join("etcd"),
    };
    assert!(
        path.exists(),
        "{} is missing: run tests/testbed/build, or set ETCD_OPERATOR_ETCD_BIN_DIR to a folder with <version>/etcd",
        path.display()
    );
    path
}

impl Server {
    /// A server that was not started yet, with free ports and an empty directory.
    pub(crate) fn new(version: &str, name: &str, extra: &[&str]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = env::temp_dir().join(format!("etcd-operator-{}-{n}-{name}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let held = [0; 2].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
        let [client, peer] = held.map(|l| l.local_addr().unwrap());
        Self {
            name: name.into(),
            client,
            peer_url: format!("http://{peer}").into(),
            binary: binary(version),
            dir,
            extra: extra.iter().map(|s| (*s).to_owned()).collect(),
            child: None,
        }
    }

    /// The entry of this server alone in `--initial-cluster`.
    pub(crate) fn itself(&self) -> String {
        format!("{}={}", self.name, self.peer_url)
    }

    pub(crate) fn spawn(&mut self, state: &str, initial_cluster: &str) {
        let log = fs::File::options().create(true).append(true).open(self.dir.join("log")).unwrap();
        let child = Command::new(&self.binary)
            .arg(format!("--name={}", self.name))
            .arg(format!("--data-dir={}", self.data().display()))
            .arg(format!("--listen-client-urls=http://{}", self.client))
            .arg(format!("--advertise-client-urls=http://{}", self.client))
            .arg(format!("--listen-peer-urls={}", self.peer_url))
            .arg(format!("--initial-advertise-peer-urls={}", self.peer_url))
            .arg(format!("--initial-cluster-state={state}"))
            .arg(format!("--initial-cluster={initial_cluster}"))
            .arg("--unsafe-no-fsync")
            .args(&self.extra)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.child = Some(child);
    }

    /// Starts a one-member cluster and waits until it serves.
    pub(crate) async fn seed(version: &str, extra: &[&str]) -> Self {
        let mut server = Self::new(version, "a", extra);
        server.spawn("new", &server.itself());
        server.until("serves", Look::serves).await;
        server
    }

    /// Waits until a look at this server is as wanted.
    pub(crate) async fn until(&mut self, what: &str, wanted: impl Fn(&Look) -> bool) -> Look {
        let reader = etcd().into_reader();
        let start = Instant::now();
        loop {
            let look = reader.look(&self.target()).await;
            if wanted(&look) {
                return look;
            }
            if let Some(status) = self.exited() {
                panic!("etcd {} ended ({status}) before it {what}:\n{}", self.name, self.log());
            }
            assert!(
                start.elapsed() < PATIENCE,
                "etcd {} never {what}, last {look:?}:\n{}",
                self.name,
                self.log()
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until the process ends by itself.
    pub(crate) async fn end(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.exited() {
                return status;
            }
            assert!(start.elapsed() < PATIENCE, "etcd {} never ended:\n{}", self.name, self.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn exited(&mut self) -> Option<ExitStatus> {
        self.child.as_mut().and_then(|child| child.try_wait().unwrap())
    }

    /// Ends the process as a node failure would.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    /// This server with nothing recorded about it: enough for reads.
    pub(crate) fn target(&self) -> Target {
        Target {
            member: self.name.as_str().into(),
            pod_uid: format!("pod-{}", self.client).into(),
            address: self.client,
            server_name: format!("{}.c.ns.svc", self.name),
            expected: Expected::default(),
        }
    }

    /// This server as `list` knows it: enough for changes.
    pub(crate) fn in_list(&self, list: &MemberList) -> Target {
        let expected =
            Expected { cluster_id: Some(list.cluster_id), member_id: list.at(&self.peer_url).map(|m| m.id) };
        Target { expected, ..self.target() }
    }

    pub(crate) fn id(&self, list: &MemberList) -> MemberId {
        list.at(&self.peer_url).unwrap().id
    }

    /// etcd-client's own client, for calls that the operator never makes.
    #[allow(clippy::disallowed_methods, reason = "one endpoint, so there is nothing to balance")]
    pub(crate) async fn raw(&self) -> etcd_client::Client {
        etcd_client::Client::connect([self.client.to_string()], None).await.unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// The adapter as the operator runs it.
pub(crate) fn etcd() -> Etcd {
    let clock = || {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        Time(since.as_millis() as u64)
    };
    Etcd::new(Arc::new(Channels::new()), Dialer::default(), Arc::new(clock))
}

/// Repeats a call while it is refused with what time alone cures.
pub(crate) async fn patiently<T>(
    mut call: impl AsyncFnMut() -> Result<T, EtcdFailure>,
    cured_by_time: impl Fn(&EtcdFailure) -> bool,
) -> T {
    let start = Instant::now();
    loop {
        match call().await {
            Ok(value) => return value,
            Err(failure) => {
                assert!(cured_by_time(&failure) && start.elapsed() < PATIENCE, "{failure:?}");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }
}
