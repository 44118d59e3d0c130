//! The adapter against real etcd servers on loopback, in each version that the operator runs.
//! Needs the etcd binaries and nothing else: no Kubernetes, no root.

// `cfg(test)` tells clippy that helpers of tests may unwrap as tests may.
#[cfg(test)]
mod credentials;
#[cfg(test)]
mod facts;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod server;
