//! `up`, `down`, `status` and `exec`, seen from the machine: the only part that runs outside the
//! namespaces. It creates processes, control groups and the state directory, and removes them.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, SystemTime};

use etcd_operator_testbed::layout::{self, StateDir, cache_dir, source_dir};
use etcd_operator_testbed::{Context, Error, Result};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::cgroups::Cgroups;
use crate::enclose::network_namespace;
use crate::supervise::{Plan, READY};
use crate::{images, pki};

/// A start takes about 15 s; one in ten takes three times that on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(120);

/// Builds whatever is not in the cache, binaries and images.
pub(crate) async fn build() -> Result<()> {
    script("build", &[]).await?;
    images::standard(&cache_dir()).map(drop)
}

async fn script(name: &str, args: &[&str]) -> Result<()> {
    let path = source_dir().join(name);
    let status = tokio::process::Command::new(&path).args(args).stdin(Stdio::null()).status().await;
    match status.context(format_args!("running {}", path.display()))? {
        s if s.success() => Ok(()),
        s => Err(Error::new(format!("{} ended with {s}", path.display()))),
    }
}

fn root() -> Result<()> {
    if rustix::process::getuid().is_root() {
        return Ok(());
    }
    Err(Error::new("the testbed is made of namespaces, mounts and cgroups: run this as root"))
}

/// Brings a testbed up, or finds it up already.
pub(crate) async fn up(nodes: u32) -> Result<()> {
    if !(1..=9).contains(&nodes) {
        return Err(Error::new("a testbed has 1 to 9 nodes"));
    }
    root()?;
    let state = StateDir::from_env()?;
    let _lock = state.lock()?;
    // One that is not ready belongs to an `up` that was interrupted; it is cleared below.
    if state.alive().is_some() && state.ready().exists() {
        let plan = fs::read(Plan::path(&state)).context("reading the plan of the running testbed")?;
        let plan: Plan = serde_json::from_slice(&plan).context("reading the plan of the running testbed")?;
        if plan.nodes != nodes {
            let running = plan.nodes;
            return Err(Error::new(format!("a testbed with {running} nodes runs; `testbed down` ends it")));
        }
        println!("the testbed is up already");
        return Ok(());
    }
    script("prerequisites", &["--run"]).await?;
    build().await?;
    clear(&state).await?;
    for dir in [state.run(), state.logs()] {
        fs::create_dir_all(&dir).context(format_args!("creating {}", dir.display()))?;
    }
    let plan = Plan {
        state: state.root().into(),
        binaries: cache_dir(),
        nodes,
        images: images::standard(&cache_dir())?,
    };
    fs::write(Plan::path(&state), serde_json::to_vec(&plan).context("encoding the plan")?)
        .context("writing the plan")?;
    pki::create(&state, nodes)?;
    let cgroups = Cgroups::new(state.cgroup())?;
    cgroups.create(&(1..=nodes).map(|n| format!("node{n}")).collect::<Vec<_>>())?;
    for group in ["system".to_owned(), "exec".to_owned()]
        .into_iter()
        .chain((1..=nodes).map(|n| format!("system/node{n}")))
    {
        cgroups.create_tracking(&group)?;
    }

    let started = start(&state, nodes).await;
    if let Err(error) = started {
        let kept = keep_logs(&state, "up-failed")?;
        clear(&state).await?;
        return Err(Error::new(format!("{error}\nthe logs are in {}", kept.display())));
    }
    println!("up; use it with: testbed exec -- COMMAND, or testbed kubectl …");
    Ok(())
}

/// Starts the outermost process and follows what the supervisor says until it is ready.
async fn start(state: &StateDir, nodes: u32) -> Result<()> {
    // A copy: the original may be rebuilt while the testbed runs, and starts programs later on.
    let binary = state.run().join("testbed");
    let this = std::env::current_exe().context("finding this binary")?;
    fs::copy(&this, &binary).context("copying this binary")?;
    let log = File::create(state.logs().join("supervisor.log")).context("creating supervisor.log")?;
    let mut child = tokio::process::Command::new("unshare")
        .args(["--mount", "--net", "--uts", "--ipc", "--propagation", "private"])
        .arg(&binary)
        .args(["outer", &nodes.to_string(), &network_namespace()?])
        .env("ETCD_OPERATOR_TESTBED_DIR", state.root())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .current_dir("/")
        .spawn()
        .context("running unshare")?;
    let out = child.stdout.take().ok_or_else(|| Error::new("no output of the supervisor"))?;
    let follow = async {
        let mut lines = BufReader::new(out).lines();
        while let Some(line) = lines.next_line().await.context("following the supervisor")? {
            if line == READY {
                return Ok(());
            }
            println!("{line}");
        }
        let log = fs::read_to_string(state.logs().join("supervisor.log")).unwrap_or_default();
        Err(Error::new(format!("the testbed did not come up: {}", log.trim())))
    };
    match tokio::time::timeout(START_LIMIT, follow).await {
        Ok(done) => done,
        Err(_) => Err(Error::new(format!("the testbed was not ready within {} s", START_LIMIT.as_secs()))),
    }
}

/// Ends the testbed and removes every trace but the cache and what was kept for a person.
pub(crate) async fn down() -> Result<()> {
    root()?;
    let state = StateDir::from_env()?;
    if !state.root().exists() {
        println!("no testbed in {}", state.root().display());
        return Ok(());
    }
    let lock = state.lock()?;
    if fs::read_dir(state.kept()).is_ok_and(|mut d| d.next().is_some()) && state.logs().exists() {
        let kept = keep_logs(&state, "components")?;
        println!("a test failed in this testbed; its logs are in {}", kept.display());
    }
    clear(&state).await?;
    drop(lock);
    let _ = fs::remove_dir(state.kept());
    for file in ["alive", "lock"] {
        let _ = fs::remove_file(state.root().join(file));
    }
    // Stays when there is something to read in `kept`.
    let _ = fs::remove_dir(state.root());
    println!("down");
    Ok(())
}

/// Ends whatever runs and removes whatever lies about, also after a run that was killed.
async fn clear(state: &StateDir) -> Result<()> {
    if let Some(pid) = state.alive().and_then(|pid| Pid::from_raw(pid.cast_signed())) {
        // Everything in the PID namespace ends with it, and its mounts and network with the last process.
        let _ = kill_process(pid, Signal::KILL);
    }
    let cgroups = Cgroups::new(state.cgroup())?;
    cgroups.kill("").await?;
    cgroups.remove().await?;
    for dir in [state.run(), state.logs()] {
        match fs::remove_dir_all(&dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::new(format!("removing {}: {error}", dir.display())));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Copies the components' logs to where `down` leaves them.
fn keep_logs(state: &StateDir, why: &str) -> Result<PathBuf> {
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).context("reading the clock")?;
    let kept = state.kept().join(format!("{why}-{}", time.as_secs()));
    fs::create_dir_all(&kept).context(format_args!("creating {}", kept.display()))?;
    for entry in fs::read_dir(state.logs()).context("listing the logs")?.flatten() {
        fs::copy(entry.path(), kept.join(entry.file_name())).context("copying a log")?;
    }
    Ok(kept)
}

/// Whether a testbed runs, and which of its components do not.
pub(crate) fn status() -> Result<ExitCode> {
    let state = StateDir::from_env()?;
    let Some(pid) = state.alive() else {
        println!("down ({})", state.root().display());
        return Ok(ExitCode::FAILURE);
    };
    println!("up: process {pid}, state in {}", state.root().display());
    enter(&state)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting a runtime")?;
    let answer = runtime
        .block_on(etcd_operator_testbed::control::order(&etcd_operator_testbed::control::Order::Status))?;
    for (name, state) in answer.components {
        println!("  {name:26} {state}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the components' logs, or the one that is named.
pub(crate) fn logs(component: Option<&str>) -> Result<()> {
    let state = StateDir::from_env()?;
    let mut paths: Vec<_> =
        fs::read_dir(state.logs()).context("no testbed runs")?.flatten().map(|e| e.path()).collect();
    paths.sort();
    let Some(component) = component else {
        paths.iter().for_each(|p| println!("{}", p.display()));
        return Ok(());
    };
    let path = paths.iter().find(|p| p.file_stem().is_some_and(|s| s == component));
    let path = path.ok_or_else(|| {
        Error::new(format!("no component is called {component:?}; `testbed logs` lists them"))
    })?;
    let mut file = File::open(path).context(format_args!("opening {}", path.display()))?;
    std::io::copy(&mut file, &mut std::io::stdout()).map(drop).context("printing")
}

/// Moves this process into the namespaces of the running testbed. It must have one thread only.
///
/// It keeps its own PID namespace and /proc, so that it is an ordinary process of the machine, and is
/// put into a control group of the testbed's, so that `down` finds it.
pub(crate) fn enter(state: &StateDir) -> Result<()> {
    root()?;
    let pid = state.alive().ok_or_else(|| Error::new("no testbed runs; start one with: testbed up"))?;
    let directory = std::env::current_dir().context("finding the working directory")?;
    Cgroups::new(state.cgroup())?.join("exec")?;
    let open = |name: &str| {
        let path = format!("/proc/{pid}/ns/{name}");
        File::open(&path).map(|f| (f, path.clone())).context(format_args!("opening {path}"))
    };
    let namespaces = [
        (open("net")?, LinkNameSpaceType::Network),
        (open("uts")?, LinkNameSpaceType::HostNameAndNISDomainName),
        (open("ipc")?, LinkNameSpaceType::InterProcessCommunication),
        (open("mnt")?, LinkNameSpaceType::Mount),
    ];
    for ((file, path), kind) in &namespaces {
        use std::os::fd::AsFd;
        move_into_link_name_space(file.as_fd(), Some(*kind)).context(format_args!("entering {path}"))?;
    }
    std::env::set_current_dir(&directory).context(format_args!("returning to {}", directory.display()))
}

/// Becomes the command, inside the testbed. Nothing of this process is left between it and its
/// parent, so signals, exit code and terminal are the command's own.
pub(crate) fn exec(words: &[std::ffi::OsString]) -> Result<ExitCode> {
    let state = StateDir::from_env()?;
    enter(&state)?;
    let (program, args) = words.split_first().ok_or_else(|| Error::new("no command to run"))?;
    let _ = std::io::stdout().flush();
    // At the end, so that a kubectl of the machine's own comes first.
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    let newest = layout::etcd_versions().last().unwrap_or_default();
    for dir in [cache_dir().join("bin"), cache_dir().join(format!("etcd-{newest}"))] {
        path.push(":");
        path.push(dir);
    }
    let error = Command::new(program)
        .args(args)
        .env("PATH", path)
        .env("KUBECONFIG", state.kubeconfig("admin"))
        .env("ETCD_OPERATOR_TESTBED_DIR", state.root())
        .exec();
    Err(Error::new(format!("running {}: {error}", Path::new(program).display())))
}
