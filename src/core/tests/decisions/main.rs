//! The decisions, one link at a time: what each check finds, and what it lets pass. Views are plain
//! values, so a test is a situation and the decision that must follow. Reports from the field are
//! named by their id.

#![allow(
    clippy::panic,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test fails by panicking, its helpers too"
)]

mod cluster;
mod departure;
mod disruption;
mod fixtures;
mod healing;
mod judge;
mod lost_node;
mod member;
mod pause;
mod recovery;
mod report;
mod roll;
mod shrink;
mod unknown;
