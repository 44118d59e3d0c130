//! A real kube-apiserver with its own etcd, without nodes or controllers, for tests of this crate.
//!
//! The binaries are those that the testbed built. Tests that run at the same time share one server;
//! the last one stops it. If the test process is killed, the servers end by themselves: their
//! parent is a shell that waits for a pipe to close.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError, Weak},
    time::{Duration, Instant},
};

use k8s_openapi::{
    api::core::v1::Namespace, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, Client, api::PostParams, config::AuthInfo};
use serde_json::json;

const TOKEN: &str = "of-a-test-server-that-lives-for-seconds";

static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());

pub(crate) struct Server {
    processes: Vec<Child>,
    dir: PathBuf,
    url: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        for process in self.processes.iter_mut().rev() {
            drop(process.stdin.take());
            let _ = process.wait();
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// The directory with `bin/kube-apiserver` and `etcd-<version>/etcd`.
fn built() -> Option<(PathBuf, PathBuf)> {
    let home = std::env::var("HOME").unwrap_or_default();
    let cache = std::env::var("ETCD_OPERATOR_CACHE").unwrap_or(format!("{home}/.cache/etcd-operator"));
    let beds = fs::read_dir(cache).into_iter().flatten().flatten().map(|entry| entry.path());
    let found = beds.filter_map(|bed| {
        let apiserver = bed.join("bin/kube-apiserver");
        let etcd = fs::read_dir(&bed).ok()?.flatten().map(|e| e.path().join("etcd")).find(|e| e.is_file())?;
        apiserver.is_file().then_some((apiserver, etcd))
    });
    let found = found.max();
    let required = std::env::var_os("ETCD_OPERATOR_REQUIRE_BINARIES").is_some();
    assert!(!required || found.is_some(), "kube-apiserver and etcd are missing; build the testbed first");
    found
}

fn start(dir: &Path, program: &Path, args: &[String]) -> Child {
    let name = program.file_name().unwrap().to_string_lossy().into_owned();
    let log = fs::File::create(dir.join(format!("{name}.log"))).unwrap();
    Command::new("sh")
        .args(["-c", r#""$@" & child=$!; read -r _; kill "$child"; wait "$child""#, "sh"])
        .arg(program)
        .args(args)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}

fn start_all(apiserver: &Path, etcd: &Path) -> Server {
    let dir =
        std::env::temp_dir().join(format!("apiserver-{}-{:08x}", std::process::id(), rand::random::<u32>()));
    fs::create_dir_all(&dir).unwrap();
    let held: Vec<TcpListener> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let port = |i: usize| held[i].local_addr().unwrap().port();
    let (client, peer, secure) =
        (format!("http://127.0.0.1:{}", port(0)), format!("http://127.0.0.1:{}", port(1)), port(2));
    drop(held);
    let path = |name: &str| dir.join(name).to_string_lossy().into_owned();
    fs::write(path("tokens"), format!("{TOKEN},admin,admin,system:masters\n")).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    fs::write(path("key"), key.serialize_pem()).unwrap();
    fs::write(path("public-key"), key.public_key_pem()).unwrap();
    let etcd_args = [
        format!("--data-dir={}", path("etcd")),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
        "--unsafe-no-fsync=true".to_owned(),
    ];
    let apiserver_args = [
        format!("--etcd-servers={client}"),
        format!("--cert-dir={}", path("certs")),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={secure}"),
        format!("--token-auth-file={}", path("tokens")),
        "--authorization-mode=RBAC".to_owned(),
        // There is no controller that would make service accounts.
        "--disable-admission-plugins=ServiceAccount".to_owned(),
        "--service-account-issuer=https://test".to_owned(),
        format!("--service-account-key-file={}", path("public-key")),
        format!("--service-account-signing-key-file={}", path("key")),
        "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
    ];
    let processes = vec![start(&dir, etcd, &etcd_args), start(&dir, apiserver, &apiserver_args)];
    Server { processes, dir, url: format!("https://127.0.0.1:{secure}") }
}

impl Server {
    /// The shared server, ready, with our CRDs. None without binaries, which it says.
    pub(crate) fn shared() -> Option<Arc<Server>> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = shared.upgrade() {
            return Some(server);
        }
        let Some((apiserver, etcd)) = built() else {
            println!("NOT TESTED: no kube-apiserver; build the testbed first");
            return None;
        };
        let server = Arc::new(start_all(&apiserver, &etcd));
        let preparing = server.clone();
        // A runtime of its own: the caller's may not be blocked on.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(preparing.prepare());
        })
        .join()
        .unwrap();
        *shared = Arc::downgrade(&server);
        Some(server)
    }

    /// A new client with its own connections.
    pub(crate) fn client(&self) -> Client {
        let mut config = kube::Config::new(self.url.parse().unwrap());
        // Its certificate is made up at each start.
        config.accept_invalid_certs = true;
        config.default_retry = false;
        config.auth_info = AuthInfo { token: Some(TOKEN.to_owned().into()), ..AuthInfo::default() };
        Client::try_from(config).unwrap()
    }

    /// A new namespace under the restricted Pod Security Standard.
    pub(crate) async fn namespace(&self, name: &str) -> String {
        let namespace: Namespace = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}))
        .unwrap();
        Api::all(self.client()).create(&PostParams::default(), &namespace).await.unwrap();
        name.to_owned()
    }

    async fn prepare(&self) {
        let began = Instant::now();
        let client = self.client();
        let ready = || async {
            let request = http::Request::get("/readyz").body(Vec::new()).unwrap();
            client.request_text(request).await.is_ok()
        };
        while !ready().await {
            let words = fs::read_to_string(self.dir.join("kube-apiserver.log")).unwrap_or_default();
            assert!(
                began.elapsed() < Duration::from_secs(90),
                "kube-apiserver does not become ready: {words}"
            );
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        for definition in etcd_operator_api::crds().unwrap() {
            definitions.create(&PostParams::default(), &definition).await.unwrap();
        }
        let clusters: Api<etcd_operator_api::EtcdDefrag> = Api::namespaced(client, "default");
        while clusters.list(&Default::default()).await.is_err() {
            assert!(began.elapsed() < Duration::from_secs(90), "the CRDs are not served");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}
