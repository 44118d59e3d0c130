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
    // What the system refuses, whatever it was asked for: etcd names what it was doing first.
    ("permission denied", Cause::Configuration),
    ("no space left", Cause::Configuration),
    ("read-only file system", Cause::Configuration),
    ("address already in use", Cause::Configuration),
    ("too many open files", Cause::Configuration),
    ("cannot allocate memory", Cause::Configuration),
    // pkg/pbutil, of a record whose checksum is right: another version of etcd wrote it, and no member on this one reads it.
    ("unmarshal should never fail", Cause::Configuration),
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
    ("proto: cannot parse", Cause::Damaged),
    ("proto: wrong wiretype", Cause::Damaged),
    ("proto: illegal", Cause::Damaged),
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
    ("page expected to be", Cause::Damaged),
    ("unexpected eof", Cause::Damaged),
    // raft: the log says no more whose it is, or ends before what the member has promised.
    ("tocommit", Cause::Damaged),
    ("cannot use none as id", Cause::Damaged),
    // What a person set.
    ("flag", Cause::Configuration),
    ("certificate", Cause::Configuration),
    ("tls", Cause::Configuration),
    ("x509", Cause::Configuration),
    ("no such host", Cause::Configuration),
    ("invalid value", Cause::Configuration),
    ("should be at least", Cause::Configuration),
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
            "failed to create WAL: mkdir /var/lib/etcd/member/wal.tmp: no space left on device",
            "failed to open WAL: open /var/lib/etcd/member/wal: permission denied",
            "failed to open WAL: open /var/lib/etcd/member/wal/0.wal: too many open files",
        ] {
            assert_eq!(cause(words), Cause::Configuration, "{words}");
        }
    }

    // UP-03: 3.7 after a short time on 3.6. Whoever came in its place would get the same log.
    #[test]
    fn a_log_of_another_version_is_not_damaged() {
        let words = "unmarshal should never fail (proto: cannot parse invalid wire-format data)";
        assert_eq!(cause(words), Cause::Configuration);
    }

    #[test]
    fn words_that_nobody_knows_say_nothing() {
        assert_eq!(cause("its process ended; see its log"), Cause::Unknown);
        assert_eq!(cause(""), Cause::Unknown);
    }

    // LS-04: what 3.5.35, 3.6.16 and 3.7.3 say of a directory without a write-ahead log.
    #[test]
    fn a_member_that_asks_the_others_has_no_data() {
        let words = "discovery failed: cannot fetch cluster info from peer urls: could not retrieve cluster information from the given URLs";
        assert_eq!(cause(words), Cause::EmptyDataDirectory);
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
            "discovery failed: walpb: crc mismatch: expected: f4894ba9 computed: ddd27510: in file '0000000000000000-0000000000000000.wal' at position: 82152",
            "discovery failed: proto: cannot parse invalid wire-format data",
            "discovery failed: proto: wrong wireType = 7 for field Index",
            "failed to recover v3 backend from snapshot",
            "assertion failed: Page expected to be: 58, but self identifies as 18446744073709551615",
            "cannot use none as id",
            "tocommit(8) is out of range [lastIndex(3)]. Was the raft log corrupted, truncated, or lost?",
        ] {
            assert_eq!(cause(words), Cause::Damaged, "{words}");
        }
    }
}
