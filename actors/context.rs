//! Owns what all actors of a process share: the ports, the clock, the counters. Does no I/O itself.

use std::{fmt, sync::Arc, time::Duration};

use etcd_operator_core::ids::MemberName;
use etcd_operator_etcd::{MemberReader, MembershipWriter};

use crate::{
    clock::Clock,
    limits::Replacements,
    metrics::Metrics,
    ports::{ClusterKey, Hands, Sight},
};

/// Makes the two ports to etcd. A writer goes into one guard's life.
pub trait EtcdPorts: Send + Sync {
    /// Both ports, for a guard.
    fn ports(&self) -> (MemberReader, MembershipWriter);
    /// Reading alone.
    fn reader(&self) -> MemberReader;
}

/// See the module.
pub struct Context {
    /// The stores.
    pub sight: Arc<dyn Sight>,
    /// The effects.
    pub hands: Arc<dyn Hands>,
    /// etcd.
    pub etcd: Arc<dyn EtcdPorts>,
    /// The time.
    pub clock: Clock,
    /// Counters.
    pub metrics: Metrics,
    /// Whether this process owns the cluster's shard for longer than this. Asked right before each
    /// membership call; writes to the API server ask at their own gate.
    pub owns_for: Arc<dyn Fn(Duration) -> bool + Send + Sync>,
    /// How many clusters may be replacing a lost member at once.
    pub replacements: Replacements,
    /// How long a member may be held by a node that is gone before it is replaced; none for ever.
    pub lost_node_after: Option<Duration>,
    /// Makes a name for a member to be created, never the same twice.
    pub names: Arc<dyn Fn(&str) -> MemberName + Send + Sync>,
}

impl Context {
    /// A name for a new member of this cluster.
    pub fn fresh_name(&self, key: &ClusterKey) -> MemberName {
        (self.names)(&key.name)
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Context")
    }
}
