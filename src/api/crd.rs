//! The four CustomResourceDefinitions as they are applied. Pure: the binary `crdgen` writes them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;

use crate::{EtcdCluster, EtcdDefrag, EtcdMember, EtcdSnapshot, schema};

/// A definition that could not be turned into JSON and back. Means that a type here and the definition's
/// own type disagree: a bug, found by the first run of `crdgen`.
#[derive(Debug, thiserror::Error)]
#[error("the definition of {name} does not survive JSON; the types and the schema pass disagree")]
pub struct CrdError {
    name: String,
    #[source]
    source: serde_json::Error,
}

/// All four definitions, in the order cluster, member, snapshot, defrag.
///
/// # Errors
/// [`CrdError`] if a definition does not survive JSON, which the tests rule out.
pub fn crds() -> Result<Vec<CustomResourceDefinition>, CrdError> {
    [EtcdCluster::crd(), EtcdMember::crd(), EtcdSnapshot::crd(), EtcdDefrag::crd()]
        .into_iter()
        .map(finish)
        .collect()
}

fn finish(crd: CustomResourceDefinition) -> Result<CustomResourceDefinition, CrdError> {
    let name = crd.metadata.name.clone().unwrap_or_default();
    let error = |source| CrdError { name: name.clone(), source };
    let mut json = serde_json::to_value(crd).map_err(error)?;
    if let Some(versions) = json.pointer_mut("/spec/versions").and_then(|v| v.as_array_mut()) {
        for version in versions {
            if let Some(root) = version.pointer_mut("/schema/openAPIV3Schema") {
                schema::finish(root);
            }
        }
    }
    serde_json::from_value(json).map_err(error)
}

/// The file in `deploy/crds` that holds a definition, such as
/// `etcd-operator.cozystack.io_etcdclusters.yaml`.
#[must_use]
pub fn crd_file_name(crd: &CustomResourceDefinition) -> String {
    format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural)
}
