//! What the operator decides. Pure, total, deterministic functions over plain values: the view
//! comes in, with the time, and one decision goes out. Nothing here does I/O, awaits, logs or
//! reads a clock.
//!
//! Reading order: [`view`] (what is looked at), [`cluster`] (the set of members), [`member`] (one
//! member's next step), [`volume`] (what its data rests on), [`membership`] (whether a change of etcd's membership is safe now),
//! [`departure`] (who may leave), [`healing`] and [`lost_node`] (who is to be replaced), [`roll`] (how a changed spec reaches the
//! members), [`upgrade`], [`pause`], [`disruption`] (what may be evicted), [`report`] (what the status says).

pub mod budget;
pub mod cluster;
pub mod departure;
pub mod disruption;
pub mod etcd;
pub mod healing;
pub mod ids;
pub mod last_words;
pub mod lost_node;
pub mod member;
pub mod membership;
pub mod pause;
pub mod progress;
pub mod reason;
pub mod recovery;
pub mod report;
pub mod roll;
mod shrink;
pub mod time;
mod trouble;
pub mod upgrade;
pub mod version;
pub mod view;
pub mod volume;
