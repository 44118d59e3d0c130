//! The Kubernetes adapter: object builders, reads, writes, events, Lease.
