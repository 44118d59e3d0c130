//! Owns a member's addresses, from its own object alone: they are its identity in etcd's list and
//! must come out the same for its whole life. No I/O.

use etcd_operator_api::{
    EtcdMember, labels,
    names::{self, Scheme},
};
use sha1::{Digest as _, Sha1};

/// The headless Service that a member's DNS name is under: the cluster's, or what an adopted
/// member's annotation says. A value that cannot be a Service's name is not used; the peer URL then
/// differs from the one in etcd's list, and the member is reported instead of started.
pub(crate) fn service(member: &EtcdMember) -> String {
    let annotations = member.metadata.annotations.as_ref();
    annotations
        .and_then(|a| a.get(labels::HEADLESS_SERVICE_NAME))
        .filter(|name| is_dns_label(name))
        .cloned()
        .unwrap_or_else(|| names::headless_service(&member.spec.cluster_name))
}

fn is_dns_label(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=63).contains(&name.len())
        && name.bytes().all(plain)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

/// The directory inside the volume that holds the data of an adopted member; none is the root.
pub(crate) fn data_dir_subpath(member: &EtcdMember) -> Option<&str> {
    let annotations = member.metadata.annotations.as_ref()?;
    labels::data_dir_subpath(annotations.get(labels::DATA_DIR_SUBPATH)?)
}

/// Whether the client port speaks TLS.
pub(crate) fn client_scheme(member: &EtcdMember) -> Scheme {
    let tls = member.spec.tls.as_ref().is_some_and(|tls| tls.client_server_secret_ref.is_some());
    if tls { Scheme::Https } else { Scheme::Http }
}

/// Whether the peer port speaks TLS.
pub(crate) fn peer_scheme(member: &EtcdMember) -> Scheme {
    let tls = member.spec.tls.as_ref().is_some_and(|tls| tls.peer_secret_ref.is_some() || tls.peer_auto_tls);
    if tls { Scheme::Https } else { Scheme::Http }
}

fn name_and_namespace(member: &EtcdMember) -> (&str, &str) {
    let name = member.metadata.name.as_deref().unwrap_or_default();
    (name, member.metadata.namespace.as_deref().unwrap_or_default())
}

/// The member's DNS name, `<member>.<service>.<namespace>.svc`, which its certificate must carry.
/// It ends at `.svc`, so that it resolves under any cluster domain (DN-03).
pub fn dns_name(member: &EtcdMember) -> String {
    let (name, namespace) = name_and_namespace(member);
    names::host(name, &service(member), namespace)
}

/// The member's peer URL: a name, never an address (DN-06).
pub fn peer_url(member: &EtcdMember) -> String {
    let (name, namespace) = name_and_namespace(member);
    names::peer_url(peer_scheme(member), name, &service(member), namespace)
}

/// The cluster ID that etcd computes when this member forms a cluster alone (`--initial-cluster-state=new` with
/// itself in the list). The member ID is the first eight bytes of SHA-1 over its peer URL and the cluster token, the
/// cluster ID the same over the member ID (etcd's `server/etcdserver/api/membership`, unchanged from 3.5 to 3.7).
pub fn founds(member: &EtcdMember) -> u64 {
    let first_eight = |bytes: &[u8]| {
        let digest = Sha1::digest(bytes);
        digest.iter().take(8).fold(0, |id, byte| id << 8 | u64::from(*byte))
    };
    let member_id = first_eight(format!("{}{}", peer_url(member), member.spec.cluster_token).as_bytes());
    first_eight(&member_id.to_be_bytes())
}

/// The member's client URL, as it advertises it.
pub fn client_url(member: &EtcdMember) -> String {
    let (name, namespace) = name_and_namespace(member);
    names::client_url(client_scheme(member), name, &service(member), namespace)
}
