//! The flag table against the real binaries of etcd 3.5, 3.6 and 3.7.
//!
//! They are where the testbed built them: `${ETCD_OPERATOR_CACHE:-~/.cache/etcd-operator}`. Without
//! them these tests say so and pass, unless `ETCD_OPERATOR_REQUIRE_BINARIES` is set, as CI does.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a helper of a test may end it, and says what was not tested"
)]

use std::{
    fs,
    io::{Read, Write},
    net::{IpAddr, TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use etcd_operator_api::{EtcdCluster, ObservedClusterSpec};
use etcd_operator_kubernetes::objects::{self, NewMember, flags};
use serde_json::json;

/// Every built etcd, as version and path.
fn binaries() -> Vec<(String, PathBuf)> {
    let home = std::env::var("HOME").unwrap_or_default();
    let cache = std::env::var("ETCD_OPERATOR_CACHE").unwrap_or(format!("{home}/.cache/etcd-operator"));
    let mut found: Vec<(String, PathBuf)> = Vec::new();
    for bed in fs::read_dir(cache).into_iter().flatten().flatten() {
        for entry in fs::read_dir(bed.path()).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = entry.path().join("etcd");
            if let Some(version) = name.strip_prefix("etcd-").filter(|_| path.is_file()) {
                found.push((version.to_owned(), path));
            }
        }
    }
    found.sort();
    found.dedup_by(|a, b| a.0 == b.0);
    let required = std::env::var_os("ETCD_OPERATOR_REQUIRE_BINARIES").is_some();
    assert!(!required || found.len() >= 3, "etcd binaries are missing; build the testbed first: {found:?}");
    if found.is_empty() {
        println!("NOT TESTED: no etcd binaries; build the testbed first");
    }
    found
}

/// The command line of a member with every option, with a host's ports and names in place of a Pod's.
fn command_line(version: &str, dir: &str, ports: [u16; 3]) -> Vec<String> {
    let mut cluster: EtcdCluster = serde_json::from_value(json!({
        "apiVersion": "etcd-operator.cozystack.io/v1alpha2", "kind": "EtcdCluster",
        "metadata": {"name": "db", "namespace": "tenant", "uid": "u"},
        "spec": {"version": version, "options": {"quotaBackendBytes": 1073741824, "snapshotCount": 5000,
            "autoCompactionMode": "periodic", "autoCompactionRetention": "1h30m"}},
    }))
    .unwrap();
    cluster.spec.version = version.to_owned();
    let target = ObservedClusterSpec::from(&cluster.spec);
    let member = objects::member(&cluster, &target, NewMember { name: "db-x7k2p", seed: true }).unwrap();
    let initial_cluster = member.spec.initial_cluster.clone();
    let localize = |arg: String| {
        let arg = arg.replace("$(JOIN_CLUSTER)", &initial_cluster).replace("$(JOIN_STATE)", "new");
        let arg = arg.replace("db-x7k2p.db.tenant.svc", "127.0.0.1").replace("/var/lib/etcd", dir);
        [2379, 2380, 2381]
            .iter()
            .zip(ports)
            .fold(arg, |arg, (pod, host)| arg.replace(&format!(":{pod}"), &format!(":{host}")))
    };
    flags::args(&member).unwrap().into_iter().map(localize).collect()
}

struct Etcd(Child);

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_ports() -> [u16; 3] {
    // Held together, so that no two are the same.
    let held: Vec<TcpListener> = (0..3).map(|_| TcpListener::bind("0.0.0.0:0").unwrap()).collect();
    [0, 1, 2].map(|i| held[i].local_addr().unwrap().port())
}

fn get(ip: &str, port: u16, path: &str) -> Option<String> {
    let ip: IpAddr = ip.parse().unwrap();
    let mut stream = TcpStream::connect_timeout(&(ip, port).into(), Duration::from_secs(1)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(8))).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: x\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.lines().next().map(str::to_owned)
}

// DN-06
#[test]
fn each_minor_starts_with_our_command_line_and_serves_both_families() {
    let ipv6 = TcpListener::bind("[::1]:0").is_ok();
    for (version, binary) in binaries() {
        let dir = std::env::temp_dir().join(format!("flags-{version}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        let ports = free_ports();
        let log = dir.join("log");
        let output = fs::File::create(&log).unwrap();
        let child = Command::new(&binary)
            .args(command_line(&version, &dir.join("data").to_string_lossy(), ports))
            .env_clear()
            .stdout(Stdio::null())
            .stderr(output)
            .spawn()
            .unwrap();
        let mut etcd = Etcd(child);
        let began = Instant::now();
        let [client, _, metrics] = ports;
        while get("127.0.0.1", metrics, "/readyz").is_none_or(|line| !line.contains("200")) {
            let ended = etcd.0.try_wait().unwrap();
            let words = fs::read_to_string(&log).unwrap_or_default();
            assert!(ended.is_none(), "etcd {version} ended: {words}");
            assert!(began.elapsed() < Duration::from_secs(30), "etcd {version} is not ready: {words}");
            std::thread::yield_now();
        }
        let families: &[&str] = if ipv6 { &["127.0.0.1", "::1"] } else { &["127.0.0.1"] };
        for ip in families {
            for (port, path) in [(metrics, "/livez"), (metrics, "/readyz"), (client, "/health")] {
                let line = get(ip, port, path);
                assert!(line.as_ref().is_some_and(|l| l.contains("200")), "{version} {ip} {path}: {line:?}");
            }
        }
        drop(etcd);
        let _ = fs::remove_dir_all(&dir);
    }
}

#[test]
fn each_row_of_the_table_is_known_to_exactly_the_minors_that_it_names() {
    for (version, binary) in binaries() {
        let minor: u32 = version.split('.').nth(1).unwrap().parse().unwrap();
        for flag in flags::KNOWN {
            let value = match flag.name {
                "quota-backend-bytes" | "snapshot-count" => "1",
                "auto-compaction-mode" => "periodic",
                "initial-cluster-state" => "new",
                "client-cert-auth" | "peer-client-cert-auth" | "peer-auto-tls" => "true",
                name if name.ends_with("-urls") => "http://127.0.0.1:1",
                _ => "x",
            };
            // Flags are parsed before the version is shown, and nothing is started.
            let output = Command::new(&binary)
                .arg(format!("--{}={value}", flag.name))
                .arg("--version")
                .env_clear()
                .output()
                .unwrap();
            let words = String::from_utf8_lossy(&output.stderr).into_owned();
            let known = (flag.since..=flag.until).contains(&minor);
            assert_eq!(output.status.success(), known, "etcd {version} --{}: {words}", flag.name);
        }
    }
}

#[test]
fn a_flag_that_etcd_does_not_know_is_what_ends_it() {
    for (version, binary) in binaries() {
        let output =
            Command::new(&binary).args(["--no-such-flag=x", "--version"]).env_clear().output().unwrap();
        assert!(!output.status.success(), "etcd {version}: else the table's test proves nothing");
    }
}
