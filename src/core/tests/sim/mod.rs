//! A simulated world for the decisions: an API server with its lag, a kubelet, an etcd that keeps
//! etcd's own rules, and actors that carry out the real decisions one effect at a time. Time is
//! virtual, all chance comes from one seed, and no I/O is done.
//!
//! Reading order: [`kube`], [`calls`] and [`etcd`] (the rules of the world), [`stores`], [`actors`] and [`guard`] (who
//! decides when, on which view), [`faults`] (what goes wrong), [`schedule`] (one random run),
//! [`properties`] and [`recovering`] (what must hold), [`mutants`] (planted faults), [`coverage`] (what was hit).

pub(crate) mod actors;
pub(crate) mod calls;
pub(crate) mod coverage;
pub(crate) mod etcd;
pub(crate) mod faults;
pub(crate) mod guard;
pub(crate) mod kube;
pub(crate) mod mutants;
pub(crate) mod properties;
mod recovering;
pub(crate) mod run;
pub(crate) mod schedule;
pub(crate) mod stores;
pub(crate) mod world;
