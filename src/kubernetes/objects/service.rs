//! Builds a cluster's two Services. Pure. Every field that is ours is written out, defaults
//! included, so that a comparison with the stored object needs no knowledge of defaulting.

use std::collections::BTreeMap;

use etcd_operator_api::{AdditionalMetadata, EtcdCluster, labels, names};
use etcd_operator_core::view::ServiceKind;
use k8s_openapi::{
    api::core::v1::{Service, ServicePort, ServiceSpec},
    apimachinery::pkg::util::intstr::IntOrString,
};

use super::{BuildError, Owner};

/// The Service of that kind.
///
/// # Errors
/// If the cluster was not read from the API server.
pub fn service(
    cluster: &EtcdCluster,
    kind: ServiceKind,
    extra: Option<&AdditionalMetadata>,
) -> Result<Service, BuildError> {
    match kind {
        ServiceKind::Headless => headless_service(cluster, extra),
        ServiceKind::Client => client_service(cluster, extra),
    }
}

/// The headless Service `<cluster>`: every member's DNS name is under it, from before it is ready,
/// because a starting member must find itself and its peers (DN-02).
///
/// # Errors
/// If the cluster was not read from the API server.
pub fn headless_service(
    cluster: &EtcdCluster,
    extra: Option<&AdditionalMetadata>,
) -> Result<Service, BuildError> {
    let owner = Owner::of(cluster)?;
    let spec = ServiceSpec {
        cluster_ip: Some("None".to_owned()),
        type_: Some("ClusterIP".to_owned()),
        publish_not_ready_addresses: Some(true),
        selector: Some(labels::cluster_selector(owner.name)),
        ports: Some(vec![port("client", names::CLIENT_PORT), port("peer", names::PEER_PORT)]),
        ..Default::default()
    };
    Ok(build(&owner, names::headless_service(owner.name), spec, extra))
}

/// The client Service `<cluster>-client`: the one stable name for clients (DN-04). It selects voters
/// only (LP-07), and leads to those that are ready.
///
/// # Errors
/// If the cluster was not read from the API server.
pub fn client_service(
    cluster: &EtcdCluster,
    extra: Option<&AdditionalMetadata>,
) -> Result<Service, BuildError> {
    let owner = Owner::of(cluster)?;
    let spec = ServiceSpec {
        type_: Some("ClusterIP".to_owned()),
        publish_not_ready_addresses: Some(false),
        selector: Some(labels::voter_selector(owner.name)),
        ports: Some(vec![port("client", names::CLIENT_PORT)]),
        ..Default::default()
    };
    Ok(build(&owner, names::client_service(owner.name), spec, extra))
}

fn build(owner: &Owner<'_>, name: String, spec: ServiceSpec, extra: Option<&AdditionalMetadata>) -> Service {
    let metadata = owner.meta(name, labels::for_cluster(owner.name), BTreeMap::new(), extra);
    Service { metadata, spec: Some(spec), status: None }
}

fn port(name: &str, port: u16) -> ServicePort {
    let port = i32::from(port);
    ServicePort {
        name: Some(name.to_owned()),
        port,
        target_port: Some(IntOrString::Int(port)),
        protocol: Some("TCP".to_owned()),
        ..Default::default()
    }
}
