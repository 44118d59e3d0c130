//! What the kernel says of a process: the CPU it has used and the memory it holds. Reads /proc only.

use std::time::Duration;

use etcd_operator_testbed::{Context as _, Error, Result};

/// A process by its ID.
#[derive(Debug, Clone, Copy)]
pub struct Process(u32);

impl Process {
    /// The process with this ID.
    ///
    /// # Errors
    /// When there is none.
    pub fn of(id: Option<u32>) -> Result<Self> {
        id.map(Process).ok_or_else(|| Error::new("the operator has ended".to_owned()))
    }

    fn read(self, file: &str) -> Result<String> {
        let path = format!("/proc/{}/{file}", self.0);
        std::fs::read_to_string(&path).context(format_args!("reading {path}"))
    }

    /// User and system time of all its threads so far. The kernel counts them in ticks of 10 ms.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn cpu(self) -> Result<Duration> {
        let stat = self.read("stat")?;
        // The second field is the name, in parentheses, and may hold anything.
        let fields = stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect::<Vec<_>>());
        let ticks = fields.and_then(|f| {
            let user: u64 = f.get(11)?.parse().ok()?;
            let system: u64 = f.get(12)?.parse().ok()?;
            Some(user + system)
        });
        let ticks = ticks.ok_or_else(|| Error::new(format!("/proc/{}/stat is {stat:?}", self.0)))?;
        // USER_HZ is 100 on every Linux that this runs on.
        Ok(Duration::from_millis(ticks * 10))
    }

    /// Megabytes of 1,000,000 bytes by the name of the line in its status: `VmRSS`, `VmHWM`, `RssAnon`.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn memory(self, line: &str) -> Result<f64> {
        let status = self.read("status")?;
        let found = status.lines().find_map(|l| l.strip_prefix(line)?.strip_prefix(':'));
        let kib: Option<f64> = found.and_then(|text| text.trim().strip_suffix(" kB")?.trim().parse().ok());
        let kib = kib.ok_or_else(|| Error::new(format!("/proc/{}/status has no {line}", self.0)))?;
        Ok(kib * 1024.0 / 1_000_000.0)
    }
}

/// How busy the machine is: its load over a minute, as the kernel has it.
pub fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().unwrap_or("unknown").to_owned()
}
