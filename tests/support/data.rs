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

/// Overwrites the content of a record in the middle of the member's write-ahead log, and ends its process. Not the
/// length before it: a record that seems to go on behind the file's end is cut off by etcd, which goes on without.
pub fn damage(member: &str) {
    spoil(member, |data| {
        let folder = std::fs::read_dir(data.join("member/wal")).unwrap();
        let logs = folder.map(|e| e.unwrap().path()).filter(|p| p.extension().is_some_and(|e| e == "wal"));
        let log = logs.max().expect("a write-ahead log");
        let mut bytes = std::fs::read(&log).unwrap();
        // The file is made with its full size, and zeros follow what is written.
        let used = bytes.iter().rposition(|b| *b != 0).expect("something is written");
        // Records follow each other: eight bytes with the length and, in the highest of them, the padding.
        let mut at = 0;
        let content = loop {
            let header: [u8; 8] = bytes[at..at + 8].try_into().unwrap();
            let padding = if header[7] & 0x80 == 0 { 0 } else { usize::from(header[7] & 0x7) };
            let length = usize::try_from(u64::from_le_bytes(header) & 0x00ff_ffff_ffff_ffff).unwrap();
            if at >= used / 3 && length >= 64 {
                break at + 8 + length / 2;
            }
            at += 8 + length + padding;
        };
        bytes[content..content + 8].iter_mut().for_each(|b| *b = !*b);
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
