//! The two processes around the supervisor. `outer` owns the testbed's network and the mounts that
//! `testbed exec` shares; `init` is process 1 of the PID namespace and owns the mounts that only the
//! components see. Both end everything by ending themselves, and neither has threads: the kernel
//! sends a parent-death signal when the thread that forked ends.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use etcd_operator_testbed::layout::{RUNTIME_DIR, StateDir};
use etcd_operator_testbed::{Context, Error, Result};
use rustix::mount::{
    MountFlags, MountPropagationFlags, mount, mount_bind, mount_bind_recursive, mount_change, mount_move,
};

use crate::cgroups::Cgroups;

/// Kernel settings that a kubelet insists on and that are not per namespace
/// (pkg/kubelet/cm, setupKernelTunables). The components see plain files with these values in their
/// place, so the kubelet is content and the machine keeps its own.
const KUBELET_SYSCTLS: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// Runs in fresh mount, network, UTS and IPC namespaces until the inner processes have ended.
pub(crate) fn outer(state: &StateDir, nodes: u32, host_network: &str) -> Result<ExitCode> {
    let own = network_namespace()?;
    if own == host_network {
        return Err(Error::new("still in the machine's own network namespace; nothing was touched"));
    }
    rustix::process::setsid().context("starting a session")?;
    let _alive = state.hold_alive()?;
    Cgroups::new(state.cgroup())?.join("system")?;
    shared_mounts(state)?;
    network(nodes)?;

    let this = std::env::current_exe().context("finding the testbed's binary")?;
    let status = Command::new("setpriv")
        .args([
            "--pdeathsig",
            "KILL",
            "unshare",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount",
            "--mount-proc",
        ])
        .args(["--propagation", "private"])
        .arg(this)
        .arg("init")
        .stdin(Stdio::null())
        .status()
        .context("starting the inner process")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Identifies the network namespace of this process.
pub(crate) fn network_namespace() -> Result<String> {
    let link = fs::read_link("/proc/self/ns/net").context("reading /proc/self/ns/net")?;
    Ok(link.display().to_string())
}

fn shared_mounts(state: &StateDir) -> Result<()> {
    // sysfs shows the network namespace in which it was mounted. The control groups below it are
    // carried over as they are: remounting a hierarchy would change it for everybody.
    let hold = state.run().join("cgroups");
    fs::create_dir_all(&hold).context("creating a mount point")?;
    mount_bind_recursive("/sys/fs/cgroup", &hold).context("binding /sys/fs/cgroup")?;
    mount("sysfs", "/sys", "sysfs", MountFlags::empty(), None).context("mounting /sys")?;
    mount_move(&hold, "/sys/fs/cgroup").context("moving the control groups back")?;
    fs::remove_dir(&hold).context("removing a mount point")?;

    let resolver = "nameserver 10.99.0.1\nsearch svc.cluster.local cluster.local\noptions ndots:5\n";
    let target = fs::canonicalize("/etc/resolv.conf").ok();
    // Sockets, network namespaces and locks of the components go here, and with the namespace.
    mount("tmpfs", "/run", "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, Some(c"mode=755"))
        .context("mounting /run")?;
    fs::create_dir_all(RUNTIME_DIR).context(format_args!("creating {RUNTIME_DIR}"))?;
    let file = Path::new(RUNTIME_DIR).join("resolv.conf");
    fs::write(&file, resolver).context("writing resolv.conf")?;
    match target {
        // /etc/resolv.conf is a link into /run, which is new and empty now.
        Some(path) if path.starts_with("/run") => {
            let parent = path.parent().unwrap_or(Path::new("/run"));
            fs::create_dir_all(parent).context(format_args!("creating {}", parent.display()))?;
            fs::write(&path, resolver).context(format_args!("writing {}", path.display()))
        }
        Some(path) => mount_bind(&file, &path).context(format_args!("binding {}", path.display())),
        None => Ok(()),
    }
}

/// The nodes' addresses are on the loopback interface. Pods are joined by veth pairs and routes, not
/// by a bridge: traffic between Pods of one bridge would pass the firewall hooks only with
/// br_netfilter, which is a setting of the machine.
fn network(nodes: u32) -> Result<()> {
    run("ip", &["link", "set", "lo", "up"])?;
    for n in 1..=nodes {
        run("ip", &["addr", "add", &format!("10.99.0.{n}/32"), "dev", "lo"])?;
    }
    // There is no default route. Without one of their own, Service addresses would be refused before
    // kube-proxy's rules see them.
    run("ip", &["route", "add", "10.98.0.0/16", "dev", "lo", "src", "10.99.0.1"])?;
    // Below /proc/sys/net a process sees the values of its own network namespace.
    fs::write("/proc/sys/net/ipv4/ip_forward", "1").context("turning on forwarding inside the testbed")
}

fn run(program: &str, args: &[&str]) -> Result<()> {
    let status = Command::new(program).args(args).stdin(Stdio::null()).status();
    match status.context(format_args!("running {program}"))? {
        s if s.success() => Ok(()),
        s => Err(Error::new(format!("{program} {} ended with {s}", args.join(" ")))),
    }
}

/// Process 1: prepares the components' mounts, starts the supervisor, and reaps whatever is handed
/// to it until the supervisor ends. Then the kernel ends all that is left in the namespace.
pub(crate) fn init() -> Result<ExitCode> {
    for (name, value) in KUBELET_SYSCTLS {
        let file = Path::new(RUNTIME_DIR).join("sysctl").join(name.replace('/', "."));
        fs::create_dir_all(file.parent().unwrap_or(Path::new(RUNTIME_DIR))).context("creating a folder")?;
        fs::write(&file, format!("{value}\n")).context("writing a setting")?;
        mount_bind(&file, Path::new("/proc/sys").join(name)).context(format_args!("covering {name}"))?;
    }
    // Kubelet, CNI and containerd have paths here that no option moves.
    for covered in ["lib", "log"] {
        let base = Path::new(RUNTIME_DIR).join("var").join(covered);
        let (upper, work) = (base.join("upper"), base.join("work"));
        for dir in [&upper, &work] {
            fs::create_dir_all(dir).context("creating a folder")?;
        }
        let options =
            format!("lowerdir=/var/{covered},upperdir={},workdir={}\0", upper.display(), work.display());
        let options = std::ffi::CStr::from_bytes_with_nul(options.as_bytes()).context("mount options")?;
        mount("overlay", format!("/var/{covered}"), "overlay", MountFlags::empty(), Some(options))
            .context(format_args!("covering /var/{covered}"))?;
    }
    // Containers may ask for mounts that propagate.
    mount_change("/", MountPropagationFlags::SHARED | MountPropagationFlags::REC)
        .context("sharing mounts")?;

    let this = std::env::current_exe().context("finding the testbed's binary")?;
    let supervisor = Command::new(this).arg("supervise").spawn().context("starting the supervisor")?;
    let supervisor = rustix::process::Pid::from_child(&supervisor);
    loop {
        match rustix::process::wait(rustix::process::WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == supervisor => {
                return Ok(if status.exit_status() == Some(0) {
                    ExitCode::SUCCESS
                } else {
                    ExitCode::FAILURE
                });
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Error::new(format!("waiting for children: {error}"))),
        }
    }
}
