//! Owns the description of one member as a place to dial. Decides nothing, does no I/O.

use std::net::{IpAddr, SocketAddr};

use etcd_operator_core::ids::{ClusterId, MemberId, MemberName, Uid};

/// The port on which every member serves clients.
pub const CLIENT_PORT: u16 = 2379;

/// One member as it can be dialled now, and who must answer there.
///
/// Built from live objects at each turn: a stored address is how an operator comes to know only
/// dead endpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Whose process it should be. For messages; never compared with what etcd calls a member.
    pub member: MemberName,
    /// The Pod that has this address. Pod IPs are reused, so a channel never outlives its Pod.
    pub pod_uid: Uid,
    /// The Pod's IP and [`CLIENT_PORT`].
    pub address: SocketAddr,
    /// The member's DNS name, which its certificate must carry: we dial an IP that no certificate names.
    pub server_name: String,
    /// Who must answer there.
    pub expected: Expected,
}

/// What was recorded about a member, to be compared with what answers.
///
/// Reads compare what is known. An effect needs both: without them nothing is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Expected {
    /// The recorded cluster ID.
    pub cluster_id: Option<ClusterId>,
    /// The member's ID, from its status or from a list.
    pub member_id: Option<MemberId>,
}

impl Target {
    /// A member on the usual port.
    pub fn new(
        member: MemberName,
        pod_uid: Uid,
        ip: IpAddr,
        server_name: impl Into<String>,
        expected: Expected,
    ) -> Self {
        let address = SocketAddr::new(ip, CLIENT_PORT);
        Self { member, pod_uid, address, server_name: server_name.into(), expected }
    }
}
