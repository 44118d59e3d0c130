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
    path::{Path, PathBuf},
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
            "autoCompactionMode": "periodic", "autoCompactionRetention": "1h30m", "heartbeatIntervalMs": 50,
            "electionTimeoutMs": 250, "maxRequestBytes": 10485760, "maxTxnOps": 65536, "maxSnapshots": 100,
            "maxWals": 100, "logLevel": "info", "metrics": "extensive"}},
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

/// A member that runs in a directory of its own.
struct Member {
    etcd: Etcd,
    ports: [u16; 3],
    log: PathBuf,
}

/// Starts our command line in `dir`, on what is there, and waits until it is ready.
fn serve(version: &str, binary: &Path, dir: &Path) -> Member {
    let (ports, log) = (free_ports(), dir.join("log"));
    let child = Command::new(binary)
        .args(command_line(version, &dir.join("data").to_string_lossy(), ports))
        .env_clear()
        .stdout(Stdio::null())
        .stderr(fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let mut member = Member { etcd: Etcd(child), ports, log };
    let began = Instant::now();
    while get("127.0.0.1", ports[2], "/readyz").is_none_or(|line| !line.contains("200")) {
        let ended = member.etcd.0.try_wait().unwrap();
        let words = fs::read_to_string(&member.log).unwrap_or_default();
        assert!(ended.is_none(), "etcd {version} ended: {words}");
        assert!(began.elapsed() < Duration::from_secs(30), "etcd {version} is not ready: {words}");
        std::thread::yield_now();
    }
    member
}

fn directory(purpose: &str, version: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("{purpose}-{version}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    dir
}

// DN-06
#[test]
fn each_minor_starts_with_our_command_line_and_serves_both_families() {
    let ipv6 = TcpListener::bind("[::1]:0").is_ok();
    for (version, binary) in binaries() {
        let dir = directory("flags", &version);
        let member = serve(&version, &binary, &dir);
        let [client, _, metrics] = member.ports;
        let families: &[&str] = if ipv6 { &["127.0.0.1", "::1"] } else { &["127.0.0.1"] };
        for ip in families {
            for (port, path) in [(metrics, "/livez"), (metrics, "/readyz"), (client, "/health")] {
                let line = get(ip, port, path);
                assert!(line.as_ref().is_some_and(|l| l.contains("200")), "{version} {ip} {path}: {line:?}");
            }
        }
        drop(member);
        let _ = fs::remove_dir_all(&dir);
    }
}

// LS-11
#[test]
fn each_minor_has_every_check_for_diverging_data_on_and_makes_the_first_when_it_starts_on_its_data() {
    for (version, binary) in binaries() {
        let dir = directory("checks", &version);
        // The first start has nothing to compare.
        drop(serve(&version, &binary, &dir));
        let member = serve(&version, &binary, &dir);
        let log = fs::read_to_string(&member.log).unwrap();
        for words in [
            r#""corrupt-check-time-interval":"4h0m0s""#,
            r#""compact-check-time-interval":"1m0s""#,
            "initial corruption checking passed; no corruption",
            "enabled corruption checking",
        ] {
            assert!(log.contains(words), "etcd {version} does not say {words}: {log}");
        }
        let minor: u32 = version.split('.').nth(1).unwrap().parse().unwrap();
        let on: &[&str] = if minor == 5 {
            &[r#""initial-corrupt-check":true"#, r#""compact-check-time-enabled":true"#]
        } else {
            &["InitialCorruptCheck=true", "CompactHashCheck=true"]
        };
        for words in on {
            assert!(log.contains(words), "etcd {version} does not say {words}: {log}");
        }
        drop(member);
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
                "heartbeat-interval" | "election-timeout" => "1",
                name if name.starts_with("max-") => "1",
                name if name.ends_with("-check-time") => "4h",
                name if name.starts_with("experimental-") => "true",
                "feature-gates" => "InitialCorruptCheck=true,CompactHashCheck=true",
                "log-level" => "warn",
                "metrics" => "extensive",
                "auto-compaction-mode" => "periodic",
                "initial-cluster-state" => "new",
                "client-cert-auth" | "peer-client-cert-auth" | "peer-auto-tls" | "force-new-cluster" => {
                    "true"
                }
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
