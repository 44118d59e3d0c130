//! etcd processes that stand still: alive to the kubelet, silent to everybody else. Found by their command line, since
//! containers of the testbed run below the namespace that the tests run in.

use std::process::Command;

/// Processes that stand still until this is dropped.
pub struct Frozen {
    processes: Vec<String>,
}

impl Frozen {
    /// Stops the etcd process of each of these members.
    pub fn all(members: &[String]) -> Self {
        let mut processes = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let mut words = line.split(|b| *b == 0);
            if words.any(|word| members.iter().any(|m| word == format!("--name={m}").as_bytes())) {
                processes.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        assert_eq!(processes.len(), members.len(), "processes of {members:?}");
        let frozen = Self { processes };
        frozen.signal("-STOP");
        frozen
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill").arg(signal).args(&self.processes).status().unwrap();
        assert!(status.success() || signal != "-STOP", "kill {signal} {:?}", self.processes);
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.signal("-CONT");
    }
}
