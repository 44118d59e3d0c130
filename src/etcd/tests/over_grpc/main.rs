//! The adapter against a fake etcd, over real gRPC and real sockets.

// `cfg(test)` tells clippy that helpers of tests may unwrap as tests may.
#[cfg(test)]
mod auth;
#[cfg(test)]
mod fake;
#[cfg(test)]
mod reads;
#[cfg(test)]
mod tls;
#[cfg(test)]
mod writes;
