//! The Kubernetes adapter: the only layer that talks to an API server.
//!
//! - [`client`], [`failure`]: how a call is made, and what its failure says about the world.
//! - [`lease`], [`shards`]: which process owns which clusters.
//! - [`gate`]: the one way by which anything is written.
//! - [`stores`], [`reads`]: what is known without asking, and what the API server itself says.
//! - [`events`]: what people are told.
//! - [`objects`], [`drift`], [`drift_budget`], [`patch`]: what objects look like, and the smallest change to them.

pub mod client;
mod decoded;
pub mod drift;
pub mod drift_budget;
pub mod events;
pub mod failure;
pub mod gate;
pub mod lease;
pub mod objects;
mod ownership;
pub mod patch;
pub mod reads;
mod recovery;
pub mod shards;
pub mod status;
pub mod stores;
pub mod tasks;
pub mod view;

#[cfg(test)]
mod fake_api;
