//! Server-side apply of whole YAML texts, kinds found out from the API server.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use kube::{Api, Client, ResourceExt};
use serde::Deserialize;

use crate::error::{Context, Error, Result};
use crate::eventually::object;

/// A definition that is not established after this long has a fault.
const ESTABLISHED_LIMIT: Duration = Duration::from_secs(30);

pub(crate) async fn apply(client: &Client, yaml: &str) -> Result<()> {
    for document in serde_yaml_ng::Deserializer::from_str(yaml) {
        let value = serde_json::Value::deserialize(document).context("reading YAML")?;
        if value.is_null() {
            continue;
        }
        let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text("apiVersion"), text("kind"));
        let object: DynamicObject = serde_json::from_value(value).context("reading an object")?;
        let name = object.name_any();
        let doing = format!("applying {kind} {name}");
        let (group, version) = version.split_once('/').unwrap_or(("", &version));
        let kind = GroupVersionKind::gvk(group, version, &kind);
        let (resource, capabilities) = pinned_kind(client, &kind).await.context(&doing)?;
        let api: Api<DynamicObject> = match (capabilities.scope, object.namespace()) {
            (Scope::Cluster, _) => Api::all_with(client.clone(), &resource),
            (Scope::Namespaced, namespace) => {
                Api::namespaced_with(client.clone(), namespace.as_deref().unwrap_or("default"), &resource)
            }
        };
        let params = PatchParams::apply("testbed").force();
        api.patch(&name, &params, &Patch::Apply(&object)).await.context(&doing)?;
        if kind.kind == "CustomResourceDefinition" {
            served(client, &name).await?;
        }
    }
    Ok(())
}

async fn served(client: &Client, name: &str) -> Result<()> {
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    let what = format!("CustomResourceDefinition {name} established");
    object(api, name, &what, ESTABLISHED_LIMIT, |crd| {
        let conditions = crd.and_then(|c| c.status.as_ref()?.conditions.as_ref()).into_iter().flatten();
        let mut seen = Vec::new();
        for condition in conditions {
            if condition.type_ == "Established" && condition.status == "True" {
                return Ok(());
            }
            seen.push(format!("{}={}", condition.type_, condition.status));
        }
        Err(if seen.is_empty() { "no condition".into() } else { seen.join(", ") })
    })
    .await
    .map_err(|e| Error::new(e.to_string()))
}
