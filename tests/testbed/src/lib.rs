//! A real Kubernetes on one machine, for tests, benches and the demo.
//!
//! The binary `testbed` starts and ends it; this library is for processes that run inside, under
//! `testbed exec`. Begin with [`Testbed::current`]:
//!
//! ```no_run
//! # async fn example() -> etcd_operator_testbed::Result<()> {
//! use etcd_operator_testbed::{Namespace, OperatorProcess, Testbed};
//!
//! let testbed = Testbed::current().await?;
//! let namespace = Namespace::fresh(&testbed, "growth").await?;
//! let operator = OperatorProcess::start(&testbed, "target/debug/etcd-operator", &["run"], &[])?;
//! // … create objects in namespace.name() with testbed.client(), and wait with eventually() …
//! operator.stop().await?;
//! namespace.finish().await
//! # }
//! ```

pub mod control;
pub mod image;
pub mod layout;

mod apply;
mod audit;
mod error;
mod eventually;
mod namespace;
mod network;
mod node;
mod operator;
mod testbed;

pub use audit::{AuditLog, Mark, Request, Requests};
pub use error::{Context, Error, Result};
pub use eventually::{eventually, object};
pub use namespace::Namespace;
pub use network::Partition;
pub use node::Node;
pub use operator::OperatorProcess;
pub use testbed::{Testbed, client};
