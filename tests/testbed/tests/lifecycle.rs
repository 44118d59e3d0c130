//! Starting and ending testbeds: what a killed one leaves is no obstacle, and nothing stays behind.
//! Runs as root, outside a testbed, in a state directory of its own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use etcd_operator_testbed::layout::StateDir;

struct Fixture {
    state: StateDir,
}

impl Fixture {
    fn new() -> Self {
        let root = PathBuf::from(format!("/var/tmp/etcd-operator-testbed-test-{}", std::process::id()));
        Fixture { state: StateDir::at(root) }
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_testbed"));
        command.args(args).env("ETCD_OPERATOR_TESTBED_DIR", self.state.root());
        command
    }

    #[track_caller]
    fn succeeds(&self, args: &[&str]) -> String {
        let out = self.run(args);
        let (said, complained) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert!(out.status.success(), "testbed {args:?}: {said}{complained}");
        said.into_owned()
    }

    /// Every process in a control group of this testbed, as (pid, name).
    fn processes(&self) -> Vec<(u32, String)> {
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Ok(pid) = entry.file_name().to_string_lossy().parse() else { continue };
            let groups = fs::read_to_string(entry.path().join("cgroup")).unwrap_or_default();
            if groups.contains(&self.state.cgroup()) {
                found.push((pid, fs::read_to_string(entry.path().join("comm")).unwrap_or_default()));
            }
        }
        found
    }

    fn kill(&self, pid: u32) {
        assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
    }

    #[track_caller]
    fn until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !condition(self) {
            assert!(Instant::now() < end, "{what}: {:?}", self.processes());
            std::thread::yield_now();
        }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        // Also when the test has failed, and then without hiding why.
        let _ = self.command(&["down"]).output();
    }
}

/// What must be the same before and after: the machine's interfaces, routes, firewall, settings,
/// mounts, and control groups of our kind.
fn machine() -> Vec<String> {
    let run = |program: &str, args: &[&str]| {
        let out = Command::new(program).args(args).output().unwrap();
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    let setting = |name: &str| fs::read_to_string(Path::new("/proc/sys").join(name)).unwrap();
    vec![
        run("ip", &["-o", "link"]),
        run("ip", &["-o", "-4", "address"]),
        run("ip", &["route", "show", "table", "all"]),
        run("nft", &["list", "tables"]),
        setting("vm/overcommit_memory"),
        setting("kernel/panic"),
        setting("kernel/panic_on_oops"),
        setting("kernel/keys/root_maxkeys"),
        setting("net/ipv4/ip_forward"),
        fs::read_to_string("/proc/self/mounts").unwrap(),
    ]
}

/// One test, because each step starts from what the one before has left.
#[test]
#[ignore = "starts testbeds; as root, not inside one"]
fn a_testbed_survives_violence_and_leaves_nothing_behind() {
    let before = machine();
    let fixture = Fixture::new();

    let out = fixture.run(&["exec", "--", "true"]);
    assert!(!out.status.success());
    assert!(String::from_utf8_lossy(&out.stderr).contains("testbed up"), "it must say what to do");

    fixture.succeeds(&["up", "--nodes", "1"]);
    assert!(fixture.succeeds(&["up", "--nodes", "1"]).contains("up already"));
    assert!(!fixture.run(&["up", "--nodes", "2"]).status.success(), "another size needs a down first");
    assert_eq!(machine(), before, "a running testbed must not show on the machine");

    // exec is transparent: exit code, working directory, environment, and signals.
    assert_eq!(fixture.run(&["exec", "--", "sh", "-c", "exit 7"]).status.code(), Some(7));
    let here = std::env::current_dir().unwrap();
    assert_eq!(fixture.succeeds(&["exec", "--", "pwd"]).trim(), here.to_str().unwrap());
    assert_eq!(
        fixture.succeeds(&["exec", "--", "kubectl", "get", "nodes", "-o", "name"]).trim(),
        "node/node1"
    );
    let mut sleeping = fixture.command(&["exec", "--", "sleep", "1000"]).spawn().unwrap();
    fixture.until("sleep runs inside", |f| {
        f.processes().iter().any(|(p, name)| *p == sleeping.id() && name == "sleep\n")
    });
    assert!(Command::new("kill").args(["-TERM", &sleeping.id().to_string()]).status().unwrap().success());
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&sleeping.wait().unwrap()), Some(15));

    // Something runs in it that will be left behind, and its outermost process is killed.
    fixture.succeeds(&["kubectl", "run", "left", "--image=busybox:1", "--", "sleep", "3600"]);
    fixture.succeeds(&["kubectl", "wait", "--for=condition=Ready", "pod/left", "--timeout=60s"]);
    let mut left = fixture.command(&["exec", "--", "sleep", "1000"]).spawn().unwrap();
    fixture.until("sleep runs inside", |f| {
        f.processes().iter().any(|(p, name)| *p == left.id() && name == "sleep\n")
    });
    fixture.kill(fixture.state.alive().unwrap());
    fixture.until("only what exec started is left", |f| f.processes().len() == 1);
    assert!(!fixture.run(&["status"]).status.success());
    fixture.succeeds(&["up", "--nodes", "1"]);
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&left.wait().unwrap()),
        Some(9),
        "up clears first"
    );
    assert!(!fixture.succeeds(&["kubectl", "get", "pods"]).contains("left"), "a start begins with nothing");

    // The supervisor itself is killed: everything goes with it.
    let inner = fixture.processes().into_iter().filter(|(_, name)| name == "testbed\n").map(|(pid, _)| pid);
    fixture.kill(inner.max().unwrap());
    fixture.until("everything ends with the supervisor", |f| f.processes().is_empty());
    assert_eq!(fixture.state.alive(), None);
    fixture.succeeds(&["up", "--nodes", "1"]);

    fixture.succeeds(&["down"]);
    assert_eq!(fixture.processes(), []);
    assert!(!fixture.state.root().exists(), "the state directory is still there");
    for hierarchy in fs::read_dir("/sys/fs/cgroup").unwrap().flatten() {
        assert!(!hierarchy.path().join(fixture.state.cgroup()).exists(), "{:?}", hierarchy.path());
    }
    assert!(!Path::new("/sys/fs/cgroup").join(fixture.state.cgroup()).exists());
    assert_eq!(machine(), before);
}
