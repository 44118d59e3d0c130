//! Where everything of a testbed lies, and what it is called. Decides names and paths only; the
//! sole I/O is the two lock files.

use std::env;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::error::{Context, Error, Result};

/// Folder inside the testbed's namespaces (a tmpfs of its own) with sockets and [`INFO`].
pub const RUNTIME_DIR: &str = "/run/testbed";
/// Where the supervisor takes orders. Only there inside the testbed.
pub const CONTROL_SOCKET: &str = "/run/testbed/control.sock";
/// A JSON [`Info`], written when the testbed is ready. Only there inside the testbed.
pub const INFO: &str = "/run/testbed/info.json";

/// What a process inside the testbed needs to know about it.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct Info {
    /// The state directory.
    pub state: PathBuf,
    /// The folder with the built binaries.
    pub binaries: PathBuf,
    /// How many nodes there are; they are named node1, node2, …
    pub nodes: u32,
}

/// What the testbed around this process is.
///
/// # Errors
/// When this process is not inside a testbed; the text says how to get there.
pub fn running() -> Result<Info> {
    let text = fs::read(INFO).map_err(|_| {
        Error::new(
            "this process is not inside a testbed. Start one with \
             `cargo run -p etcd-operator-testbed -- up` and run this again with \
             `cargo run -p etcd-operator-testbed -- exec -- COMMAND`",
        )
    })?;
    serde_json::from_slice(&text).context(format_args!("reading {INFO}"))
}

/// The state directory of one testbed, and the paths below it.
///
/// `run` is emptied by every start; `kept` outlives the testbed, for a person to read.
#[derive(Debug, Clone)]
pub struct StateDir {
    root: PathBuf,
}

impl StateDir {
    /// `$ETCD_OPERATOR_TESTBED_DIR`, by default `/var/tmp/etcd-operator-testbed`. Does not create it.
    ///
    /// # Errors
    /// When the directory is below one that the testbed covers with a file system of its own.
    pub fn from_env() -> Result<Self> {
        let root = env::var_os("ETCD_OPERATOR_TESTBED_DIR")
            .map_or_else(|| PathBuf::from("/var/tmp/etcd-operator-testbed"), PathBuf::from);
        let root = std::path::absolute(&root).context(format_args!("resolving {}", root.display()))?;
        for covered in ["/run", "/var/run", "/var/lib", "/var/log", "/proc", "/sys", "/dev"] {
            if root.starts_with(covered) {
                return Err(Error::new(format!(
                    "ETCD_OPERATOR_TESTBED_DIR is {}, but the testbed covers {covered} inside its own \
                     namespaces; choose a directory elsewhere, for example below /var/tmp",
                    root.display()
                )));
            }
        }
        Ok(StateDir { root })
    }

    /// The state directory at this path.
    pub fn at(root: PathBuf) -> Self {
        StateDir { root }
    }

    /// The directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Everything of the testbed that runs now: data, volumes, keys, configuration.
    pub fn run(&self) -> PathBuf {
        self.root.join("run")
    }

    /// Output of the components, one file each.
    pub fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    /// What is kept after `down`: logs of a start that failed, objects and logs of a failed test.
    pub fn kept(&self) -> PathBuf {
        self.root.join("kept")
    }

    /// Certificates, keys and kubeconfigs.
    pub fn pki(&self) -> PathBuf {
        self.run().join("pki")
    }

    /// The kubeconfig of a user: `admin` or `operator`, or one of the components.
    pub fn kubeconfig(&self, user: &str) -> PathBuf {
        self.pki().join(format!("{user}.kubeconfig"))
    }

    /// The API server's audit log, one JSON event a line.
    pub fn audit_log(&self) -> PathBuf {
        self.run().join("audit.log")
    }

    /// Exists once the testbed that runs now has become ready.
    pub fn ready(&self) -> PathBuf {
        self.run().join("ready")
    }

    /// The folder of a node.
    pub fn node(&self, n: u32) -> PathBuf {
        self.run().join(format!("node{n}"))
    }

    /// Name of the testbed's control group in every hierarchy. It tells our groups from all others,
    /// and one testbed's from another's.
    pub fn cgroup(&self) -> String {
        let digest = Sha256::digest(self.root.as_os_str().as_encoded_bytes());
        let id: String = digest.iter().take(4).map(|b| format!("{b:02x}")).collect();
        format!("etcd-operator-testbed-{id}")
    }

    /// Keeps a second `up` or `down` out until the returned file is dropped.
    ///
    /// # Errors
    /// When another one is at work, or the directory cannot be written.
    pub fn lock(&self) -> Result<File> {
        fs::create_dir_all(&self.root).context(format_args!("creating {}", self.root.display()))?;
        let file = open_lock(&self.root.join("lock"))?;
        file.try_lock().map_err(|_| {
            Error::new(format!(
                "another `testbed up` or `testbed down` is at work in {}",
                self.root.display()
            ))
        })?;
        Ok(file)
    }

    /// Taken by the testbed's outermost process for as long as it lives. `up` has made sure that
    /// there is no other; the wait is for a [`StateDir::alive`] that is just looking.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn hold_alive(&self) -> Result<File> {
        let path = self.root.join("alive");
        let file = open_lock(&path)?;
        file.lock().context("taking the lock of the running testbed")?;
        fs::write(&path, std::process::id().to_string()).context("writing the process ID")?;
        Ok(file)
    }

    /// The outermost process of the testbed that runs now, if one does.
    pub fn alive(&self) -> Option<u32> {
        let mut file = File::open(self.root.join("alive")).ok()?;
        if file.try_lock_shared().is_ok() {
            return None;
        }
        let mut text = String::new();
        file.read_to_string(&mut text).ok()?;
        text.trim().parse().ok()
    }
}

fn open_lock(path: &Path) -> Result<File> {
    File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(path)
        .context(format_args!("opening {}", path.display()))
}

const VERSIONS: &str = include_str!("../versions.env");

/// The value of a line of `versions.env`; empty when there is none.
fn version(key: &str) -> &'static str {
    VERSIONS.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix('=')).map_or("", |v| v.trim_matches('"'))
}

/// The etcd versions of which the testbed has binaries and images, oldest first.
pub fn etcd_versions() -> impl Iterator<Item = &'static str> {
    version("ETCD").split(' ')
}

/// The folder with the built binaries, named by versions. The script `build` fills it and builds
/// the same name from the same file.
pub fn cache_dir() -> PathBuf {
    let base = env::var_os("ETCD_OPERATOR_CACHE").map(PathBuf::from).unwrap_or_else(|| {
        let home = env::var_os("HOME").map_or_else(|| PathBuf::from("/root"), PathBuf::from);
        home.join(".cache/etcd-operator")
    });
    base.join(format!(
        "testbed-k8s{}-etcd{}-coredns{}-r{}",
        version("KUBERNETES"),
        version("ETCD").replace(' ', "_"),
        version("COREDNS"),
        version("RECIPE")
    ))
}

/// The folder of this crate in the checkout that it was built from.
pub fn source_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_script_and_the_crate_agree_on_the_cache_folder() {
        let out = std::process::Command::new(source_dir().join("build")).arg("--print-dir").output().unwrap();
        assert_eq!(String::from_utf8(out.stdout).unwrap().trim(), cache_dir().to_str().unwrap());
    }

    #[test]
    fn two_state_directories_never_share_a_control_group() {
        let a = StateDir::at("/var/tmp/a".into()).cgroup();
        let b = StateDir::at("/var/tmp/b".into()).cgroup();
        assert_ne!(a, b);
        assert!(a.starts_with("etcd-operator-testbed-"), "{a}");
    }
}
