//! The actors: the only user of ractor.
//!
//! ```text
//! Operator (root)                 one for each shard that the process owns
//! └── ClusterSupervisor           one for each owner UID
//!     ├── QuorumGuard             sole owner of the cluster's membership
//!     └── MemberActor             one for each EtcdMember: its Pod, its PVC, its way in and out
//! ```
//!
//! An actor gathers a view, lets core decide, does one effect, and takes the view again. Nothing
//! waits in a handler but the guard; mailboxes hold wakes, which coalesce, and answers.

mod adapter;
mod board;
mod children;
mod clock;
mod cluster_supervisor;
mod context;
mod intake;
mod launch;
mod limits;
mod member;
mod messages;
mod metrics;
mod noteworthy;
mod operator;
mod pace;
mod ports;
mod quorum_guard;
mod tasks;
mod wake;

pub use adapter::Kubernetes;
pub use clock::Clock;
pub use context::{Context, EtcdPorts};
pub use intake::Intake;
pub use launch::{LaunchError, News, Running};
pub use limits::Replacements;
pub use messages::OperatorMsg;
pub use metrics::Metrics;
pub use operator::{Operator, OperatorArgs};
pub use ports::{ClusterKey, Effect, Hands, MemberKey, Outcome, SeenCluster, SeenMember, Sight, Step};
pub use wake::{Waker, WakerSlot};
