//! Owns the limit on replacements in the whole fleet: how many clusters may be replacing a lost member at once. A
//! fault of many nodes must not become a storm of copies. Does no I/O.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use etcd_operator_core::{ids::Uid, time::Time};

/// A replacement that takes longer than this no longer counts: it may wait for a node that never comes, and others can
/// be helped meanwhile. Twice the time that a learner may stand still.
const LONGEST: Duration = Duration::from_secs(600);

/// See the module.
#[derive(Debug)]
pub struct Replacements {
    most: usize,
    running: Mutex<HashMap<Uid, Time>>,
}

impl Replacements {
    /// At most `most` clusters at once; 0 means that no member is replaced by the operator itself.
    pub fn new(most: usize) -> Self {
        Self { most, running: Mutex::default() }
    }

    /// Whether this cluster may begin to replace a member, or has begun.
    pub fn enter(&self, cluster: &Uid, now: Time) -> bool {
        // Each change is one insert or remove, so a panic in between leaves nothing half done.
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.retain(|_, since| now.since(*since) < LONGEST);
        if running.contains_key(cluster) {
            return true;
        }
        let room = running.len() < self.most;
        if room {
            running.insert(cluster.clone(), now);
        }
        room
    }

    /// The cluster is whole again, or gone.
    pub fn leave(&self, cluster: &Uid) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).remove(cluster);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_clusters_replace_members_at_once_and_the_next_waits_for_one_to_be_whole() {
        let limit = Replacements::new(2);
        let (a, b, c): (Uid, Uid, Uid) = ("a".into(), "b".into(), "c".into());
        assert!(limit.enter(&a, Time(0)) && limit.enter(&b, Time(0)) && limit.enter(&a, Time(1)));
        assert!(!limit.enter(&c, Time(2)));
        limit.leave(&a);
        assert!(limit.enter(&c, Time(3)));
    }

    #[test]
    fn a_replacement_that_never_ends_gives_its_place_up() {
        let limit = Replacements::new(1);
        assert!(limit.enter(&"a".into(), Time(0)));
        assert!(!limit.enter(&"b".into(), Time(599_999)));
        assert!(limit.enter(&"b".into(), Time(600_000)));
    }

    #[test]
    fn none_at_all_is_a_limit_too() {
        assert!(!Replacements::new(0).enter(&"a".into(), Time(0)));
    }
}
