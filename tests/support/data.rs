//! The data directory of a member that runs, as a broken disk or a careless person leaves it. It is reached through the
//! process itself, which sees its volume wherever that lies.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;

use super::frozen::{self, Frozen};
use super::history::History;

/// Deletes everything in the data directory of this member, and ends its process.
pub fn wipe(member: &str) {
    spoil(member, |data| {
        for entry in std::fs::read_dir(data).unwrap() {
            std::fs::remove_dir_all(entry.unwrap().path()).unwrap();
        }
    });
}

/// Overwrites the middle of what the member's write-ahead log holds, and ends its process.
pub fn damage(member: &str) {
    spoil(member, |data| {
        let folder = std::fs::read_dir(data.join("member/wal")).unwrap();
        let logs = folder.map(|e| e.unwrap().path()).filter(|p| p.extension().is_some_and(|e| e == "wal"));
        let log = logs.max().expect("a write-ahead log");
        let mut bytes = std::fs::read(&log).unwrap();
        // The file is made with its full size, and zeros follow what is written.
        let used = bytes.iter().rposition(|b| *b != 0).expect("something is written");
        bytes[used / 2..used / 2 + 64].fill(0xff);
        std::fs::write(&log, bytes).unwrap();
    });
}

/// It stands still meanwhile, so that it neither mends nor notices anything before it ends.
fn spoil(member: &str, how: impl FnOnce(&Path)) {
    let members = [member.to_owned()];
    let frozen = Frozen::all(&members);
    let process = frozen::of(&members).pop().expect("it runs");
    how(&PathBuf::from(format!("/proc/{process}/root/var/lib/etcd")));
    frozen::kill(&members);
    // They are gone, and need no waking.
    std::mem::forget(frozen);
}

/// What the kubelet kept of the last end of this member's process, of all that was seen of its Pod.
pub fn last_words(pods: &History<Pod>, member: &str) -> Option<String> {
    let seen = pods.of(member).into_iter().rev();
    let mut status = seen.filter_map(|seen| seen.object.status?.container_statuses?.pop());
    status.find_map(|status| {
        let ends = [status.state, status.last_state].into_iter().flatten();
        let mut words = ends.filter_map(|state| state.terminated?.message);
        words.find(|words| words.contains("fatal") || words.contains("panic"))
    })
}
