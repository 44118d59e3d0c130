//! The etcd adapter: the only user of etcd-client.
//!
//! Owns how members are dialled and asked, and what their answers mean. Decides nothing about
//! clusters. The rest of the operator sees two ports: [`MemberReader`], for anyone, and
//! [`MembershipWriter`], for one guard.
//!
//! What it guarantees:
//! - a list is linearizable;
//! - every call ends within its deadline;
//! - a membership change goes over one connection, on which the member has just said who it is and
//!   to which cluster it belongs; both must be the recorded ones;
//! - after a change whose outcome is open nothing else is tried.

mod channels;
mod classify;
mod credentials;
mod dial;
mod etcd;
mod ports;
mod reads;
mod target;
mod wire;
mod writes;

pub use channels::Channels;
pub use classify::{classify, classify_status};
pub use credentials::{Credentials, NoCredentials, Token};
pub use dial::{Deadlines, Dialer, TlsConfig};
pub use etcd::{Clock, Etcd};
pub use ports::{Added, EtcdReads, EtcdWrites, MemberReader, MembershipWriter};
pub use target::{CLIENT_PORT, Expected, Target};
