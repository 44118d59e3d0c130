//! The actors together, on paused time, in a fake world: the rules that they must keep whatever
//! fails, and the ways through a cluster's life.

mod rules;
mod world;
