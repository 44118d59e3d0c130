//! Owns the news from the watches to the actors: which object was touched, never how. No I/O.
//!
//! News coalesce: an object that changes a hundred times before anyone looks is one entry. So the
//! feed holds at most one entry for each object, however slow its reader is, and loses nothing.

use std::{
    collections::HashSet,
    mem,
    sync::{Mutex, PoisonError},
};

use etcd_operator_core::ids::Uid;
use tokio::sync::Notify;

/// The kinds that are watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// EtcdCluster.
    Cluster,
    /// EtcdMember.
    Member,
    /// EtcdSnapshot.
    Snapshot,
    /// EtcdDefrag.
    Defrag,
    /// Pod.
    Pod,
    /// PersistentVolumeClaim.
    Pvc,
    /// Service.
    Service,
    /// PodDisruptionBudget.
    Budget,
}

/// An object was created, changed or deleted: look again at whom it concerns.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Touched {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The UID of its controller.
    pub owner_uid: Option<Uid>,
    /// The name of the EtcdCluster that it concerns: of its owner, or by its label.
    pub cluster: Option<String>,
}

/// The feed. One reader; any number of writers.
#[derive(Debug, Default)]
pub struct Feed {
    pending: Mutex<HashSet<Touched>>,
    news: Notify,
}

impl Feed {
    pub(crate) fn push(&self, touched: Touched) {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).insert(touched);
        self.news.notify_one();
    }

    /// Waits for news and returns all that is pending, each object once, in no order.
    /// Cancelling the wait loses nothing.
    pub async fn next(&self) -> HashSet<Touched> {
        loop {
            let pending = mem::take(&mut *self.pending.lock().unwrap_or_else(PoisonError::into_inner));
            if !pending.is_empty() {
                return pending;
            }
            self.news.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_hundred_changes_of_one_object_are_one_piece_of_news() {
        let feed = Feed::default();
        let pod = |name: &str| Touched {
            kind: Kind::Pod,
            namespace: "ns".into(),
            name: name.into(),
            owner_uid: None,
            cluster: None,
        };
        for _ in 0..100 {
            feed.push(pod("a"));
            feed.push(pod("b"));
        }
        assert_eq!(feed.next().await, HashSet::from([pod("a"), pod("b")]));
        assert!(tokio::time::timeout(std::time::Duration::from_millis(10), feed.next()).await.is_err());
        feed.push(pod("c"));
        assert_eq!(feed.next().await.len(), 1, "a cancelled wait loses nothing");
    }
}
