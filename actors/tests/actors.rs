//! The actors together, on paused time, in a fake world: the rules that they must keep whatever
//! fails, and the ways through a cluster's life.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test fails the test")]

mod rules;
mod world;
