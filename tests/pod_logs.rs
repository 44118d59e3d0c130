//! What the tests on the testbed know of the Pods' logs, without a testbed.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "a part of the module is used; a test ends at its first surprise"
)]

#[path = "support/follow.rs"]
mod follow;

use follow::Log;

// After a restart the follower may have read the next container's log as the former one's, to its end or not.
#[test]
fn a_log_that_is_read_twice_has_each_line_once_and_none_is_left_out() {
    let mut log = Log::default();
    for reading in ["1 2 3", "4 5", "1 2 3 3a", "4 5 6"] {
        reading.split(' ').for_each(|line| log.add(line));
    }
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines, ["1", "2", "3", "4", "5", "3a", "6"]);
}
