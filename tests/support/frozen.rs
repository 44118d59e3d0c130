//! Processes that stand still: etcds, alive to the kubelet and silent to everybody else, or an operator. etcds are found
//! by their command line, since containers of the testbed run below the namespace that the tests run in.

use std::process::Command;

use etcd_operator_testbed::OperatorProcess;

/// Processes that stand still until this is dropped.
pub struct Frozen {
    processes: Vec<String>,
}

impl Frozen {
    /// Stops the etcd process of each of these members.
    pub fn all(members: &[String]) -> Self {
        let processes = of(members);
        assert_eq!(processes.len(), members.len(), "processes of {members:?}");
        Self::these(processes)
    }

    /// Stops this operator.
    pub fn operator(operator: &OperatorProcess) -> Self {
        Self::these(vec![operator.id().expect("it runs").to_string()])
    }

    fn these(processes: Vec<String>) -> Self {
        assert!(signal("-STOP", &processes), "kill -STOP {processes:?}");
        Self { processes }
    }
}

/// Kills the etcd process of each of these members, as the kernel does when memory is short.
pub fn kill(members: &[String]) {
    let processes = of(members);
    assert_eq!(processes.len(), members.len(), "processes of {members:?}");
    assert!(signal("-KILL", &processes), "kill -KILL {processes:?}");
}

/// The process IDs of these members' etcds.
pub fn of(members: &[String]) -> Vec<String> {
    let mut processes = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let mut words = line.split(|b| *b == 0);
        if words.any(|word| members.iter().any(|m| word == format!("--name={m}").as_bytes())) {
            processes.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    processes
}

fn signal(signal: &str, processes: &[String]) -> bool {
    Command::new("kill").arg(signal).args(processes).status().unwrap().success()
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // Who has ended meanwhile needs no waking.
        signal("-CONT", &self.processes);
    }
}
