//! The testbed's own control groups. Creates, empties and removes groups below our own name and
//! touches no other; works with cgroup v1 and v2.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use etcd_operator_testbed::{Context, Error, Result};
use rustix::process::{Pid, Signal, kill_process};

const MOUNT: &str = "/sys/fs/cgroup";
/// `f_type` of a cgroup v2 file system (linux/magic.h).
const CGROUP2_SUPER_MAGIC: i64 = 0x6367_7270;

/// All groups of one testbed.
#[derive(Debug, Clone)]
pub(crate) struct Cgroups {
    name: String,
    /// The hierarchies that get our groups.
    hierarchies: Vec<PathBuf>,
    /// The hierarchy in which every process of ours has its place, so that it can be found.
    tracking: PathBuf,
    v2: bool,
}

impl Cgroups {
    /// Finds out which version this machine runs; changes nothing.
    pub(crate) fn new(name: String) -> Result<Self> {
        let kind = rustix::fs::statfs(MOUNT).context("looking at /sys/fs/cgroup")?.f_type;
        if kind as i64 == CGROUP2_SUPER_MAGIC {
            let root = PathBuf::from(MOUNT);
            return Ok(Cgroups { name, hierarchies: vec![root.clone()], tracking: root, v2: true });
        }
        let mut hierarchies = Vec::new();
        for entry in fs::read_dir(MOUNT).context("listing /sys/fs/cgroup")? {
            let entry = entry.context("listing /sys/fs/cgroup")?;
            // Links such as cpu -> cpu,cpuacct are the same hierarchy again; "unified" has no controllers.
            let directory = entry.file_type().is_ok_and(|t| t.is_dir());
            if directory && entry.file_name() != "unified" && entry.path().join("cgroup.procs").exists() {
                hierarchies.push(entry.path());
            }
        }
        let tracking = Path::new(MOUNT).join("pids");
        if !hierarchies.contains(&tracking) {
            return Err(Error::new("this machine has neither cgroup v2 nor the v1 controller `pids`"));
        }
        Ok(Cgroups { name, hierarchies, tracking, v2: false })
    }

    /// The name of our top group, relative to each hierarchy.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Makes our top group and these below it, ready to hold Pods.
    pub(crate) fn create(&self, groups: &[String]) -> Result<()> {
        for hierarchy in &self.hierarchies {
            if self.v2 {
                delegate(hierarchy)?;
            }
            let top = hierarchy.join(&self.name);
            make(&top, hierarchy)?;
            if self.v2 {
                delegate(&top)?;
            }
            for group in groups {
                make(&top.join(group), &top)?;
            }
        }
        Ok(())
    }

    /// Makes a group that only serves to find processes again.
    pub(crate) fn create_tracking(&self, group: &str) -> Result<()> {
        let path = self.tracking.join(&self.name).join(group);
        fs::create_dir_all(&path).context(format_args!("creating {}", path.display()))
    }

    /// Moves the calling process, and so its later children, into a group of ours.
    pub(crate) fn join(&self, group: &str) -> Result<()> {
        let procs = self.tracking.join(&self.name).join(group).join("cgroup.procs");
        fs::write(&procs, "0").context(format_args!("writing {}", procs.display()))
    }

    /// Processes in a group and below it; `""` is our top group.
    pub(crate) fn processes(&self, group: &str) -> Vec<i32> {
        let mut found = Vec::new();
        let mut open = vec![self.tracking.join(&self.name).join(group)];
        while let Some(dir) = open.pop() {
            let procs = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
            // 0 stands for a process outside our PID namespace: not ours to see.
            found.extend(procs.lines().filter_map(|l| l.parse::<i32>().ok()).filter(|pid| *pid > 0));
            open.extend(children(&dir));
        }
        found
    }

    /// Kills every process in a group and below until there is none.
    pub(crate) async fn kill(&self, group: &str) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            let left = self.processes(group);
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(Error::new(format!(
                    "processes {left:?} in group {}/{group} do not end",
                    self.name
                )));
            }
            for pid in left.into_iter().filter_map(Pid::from_raw) {
                // It may have ended meanwhile; the next round tells.
                let _ = kill_process(pid, Signal::KILL);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Removes our top group and all below it, from every hierarchy. All must be empty of processes.
    pub(crate) async fn remove(&self) -> Result<()> {
        // A v1 host may have gained groups of ours in "unified" too: runc makes them there.
        let mut hierarchies = self.hierarchies.clone();
        hierarchies.push(Path::new(MOUNT).join("unified"));
        let end = Instant::now() + Duration::from_secs(10);
        for hierarchy in hierarchies {
            let top = hierarchy.join(&self.name);
            // The kernel says EBUSY for a moment after the last process of a group has ended.
            while top.exists() {
                let mut last = None;
                for dir in deepest_first(&top) {
                    last = fs::remove_dir(&dir).err().or(last);
                }
                if let Some(error) = last {
                    if Instant::now() > end {
                        return Err(Error::new(format!("removing group {}: {error}", top.display())));
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
        Ok(())
    }
}

/// Makes one group; a v1 cpuset takes no process before it has been given CPUs and memory.
fn make(group: &Path, parent: &Path) -> Result<()> {
    fs::create_dir_all(group).context(format_args!("creating {}", group.display()))?;
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let own = group.join(file);
        // On v2 an empty value means "as the parent".
        let v1 = own.exists() && !group.join("cgroup.controllers").exists();
        if v1 && fs::read_to_string(&own).is_ok_and(|v| v.trim().is_empty()) {
            let value = fs::read_to_string(parent.join(file)).context(format_args!("reading {file}"))?;
            fs::write(&own, value.trim()).context(format_args!("writing {}", own.display()))?;
        }
    }
    Ok(())
}

/// v2: lets the children of `group` use every controller that `group` itself may use.
fn delegate(group: &Path) -> Result<()> {
    let read = |file| {
        fs::read_to_string(group.join(file)).context(format_args!("reading {}/{file}", group.display()))
    };
    let enabled = read("cgroup.subtree_control")?;
    for controller in read("cgroup.controllers")?.split_whitespace() {
        if !enabled.split_whitespace().any(|c| c == controller) {
            // One at a time: a controller that cannot be handed down must not keep the others back.
            let _ = fs::write(group.join("cgroup.subtree_control"), format!("+{controller}"));
        }
    }
    Ok(())
}

fn children(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()).collect()
}

fn deepest_first(top: &Path) -> Vec<PathBuf> {
    let mut found = vec![top.to_owned()];
    let mut next = 0;
    while next < found.len() {
        let below = children(&found[next]);
        found.extend(below);
        next += 1;
    }
    found.reverse();
    found
}
