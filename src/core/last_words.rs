//! Decides what etcd's last words say about the member that spoke them. Does no I/O.
//!
//! Only words that leave no other reading count as loss of data: a member is replaced on their strength. All
//! others are a person's to judge, at first.

/// Why a member's process ended, as far as its words tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// It found an empty data directory and nobody whom it could join: over data it never asks.
    EmptyDataDirectory,
    /// It found data that it cannot read.
    Damaged,
    /// It compared itself with its peers and found a difference. Which side is right it cannot know.
    Inconsistent,
    /// Its flags or its surroundings (ports, certificates, rights) are wrong. Another member would fare the same.
    Configuration,
    /// Nothing that is known here.
    Unknown,
}

/// Words of etcd 3.5 to 3.7 and of what its log and database libraries say, in lower case, and what they mean.
/// The first that occurs counts.
const WORDS: &[(&str, Cause)] = &[
    // embed/etcd.go and server/etcdserver/corrupt.go: the check before a member serves.
    ("found data inconsistency with peers", Cause::Inconsistent),
    ("checkinitialhashkv", Cause::Inconsistent),
    ("corrupt cluster", Cause::Inconsistent),
    // server/etcdserver/bootstrap.go, only without a write-ahead log.
    ("cannot fetch cluster info from peer urls", Cause::EmptyDataDirectory),
    ("error validating peerurls", Cause::EmptyDataDirectory),
    ("member count is unequal", Cause::EmptyDataDirectory),
    // storage/wal, walpb, snap and bbolt.
    ("crc mismatch", Cause::Damaged),
    ("walpb:", Cause::Damaged),
    ("wal: ", Cause::Damaged),
    ("failed to open wal", Cause::Damaged),
    ("failed to read wal", Cause::Damaged),
    ("failed to recover v3 backend from snapshot", Cause::Damaged),
    ("failed to find database snapshot file", Cause::Damaged),
    ("database file", Cause::Damaged),
    ("invalid database", Cause::Damaged),
    ("checksum error", Cause::Damaged),
    ("freepages:", Cause::Damaged),
    ("page type", Cause::Damaged),
    ("unexpected eof", Cause::Damaged),
    ("tocommit", Cause::Damaged),
    // What a person set.
    ("permission denied", Cause::Configuration),
    ("address already in use", Cause::Configuration),
    ("flag", Cause::Configuration),
    ("certificate", Cause::Configuration),
    ("tls", Cause::Configuration),
    ("x509", Cause::Configuration),
    ("no such host", Cause::Configuration),
    ("no space left", Cause::Configuration),
    ("invalid value", Cause::Configuration),
    ("should be at least", Cause::Configuration),
    ("read-only file system", Cause::Configuration),
    ("no such file or directory", Cause::Configuration),
];

/// What these words mean.
pub fn cause(words: &str) -> Cause {
    let words = words.to_lowercase();
    WORDS.iter().find(|(said, _)| words.contains(said)).map_or(Cause::Unknown, |(_, cause)| *cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    // LS-05
    #[test]
    fn what_a_person_set_wrong_is_never_taken_for_lost_data() {
        for words in [
            "error verifying flags, --auto-compaction-mode: unknown mode",
            "creating server listener failed: listen tcp 0.0.0.0:2380: bind: address already in use",
            "cannot access data directory: open /var/lib/etcd: permission denied",
            "open /etc/etcd/tls/peer/tls.crt: no such file or directory",
            "discovery failed: write /var/lib/etcd/member/wal/0.tmp: no space left on device",
        ] {
            assert_eq!(cause(words), Cause::Configuration, "{words}");
        }
    }

    #[test]
    fn words_that_nobody_knows_say_nothing() {
        assert_eq!(cause("its process ended; see its log"), Cause::Unknown);
        assert_eq!(cause(""), Cause::Unknown);
    }

    // LS-11
    #[test]
    fn a_difference_between_members_does_not_say_who_is_wrong() {
        let words = "checkInitialHashKV failed: m1 found data inconsistency with peers";
        assert_eq!(cause(words), Cause::Inconsistent);
    }

    // LS-04
    #[test]
    fn a_log_that_cannot_be_read_is_damaged() {
        for words in [
            "failed to open WAL: walpb: crc mismatch",
            "failed to read WAL, cannot be repaired: wal: crc mismatch",
            "failed to open database: invalid database",
            "tocommit(8) is out of range [lastIndex(3)]. Was the raft log corrupted, truncated, or lost?",
        ] {
            assert_eq!(cause(words), Cause::Damaged, "{words}");
        }
    }
}
