//! Decides whether a Service is as it should be, and the one patch that puts it right. Pure.
//!
//! Only fields that are ours count: selector, ports, type, publishNotReadyAddresses, and our labels
//! and annotations. What the API server or a cloud adds (clusterIP, node ports, families, foreign
//! labels) is left alone, so that one patch is enough and none follows it.

use etcd_operator_core::view::ServiceState;
use k8s_openapi::{
    api::core::v1::{Service, ServicePort, ServiceSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde_json::{Map, Value, json};

use crate::objects::{extra, is_controlled_by};

/// How a Service stands, `wanted` being what the builder makes of its cluster with UID `owner`.
///
/// A headless Service cannot become one: the API server refuses to change clusterIP. One of ours
/// that is not headless counts as foreign, because only a person can delete it.
pub fn state(live: Option<&Service>, wanted: &Service, owner: &str) -> ServiceState {
    match live {
        None => ServiceState::Absent,
        Some(live) if !is_controlled_by(&live.metadata, owner) || !same_headlessness(live, wanted) => {
            ServiceState::Foreign
        }
        Some(live) if repair(live, wanted).is_some() => ServiceState::Drifted,
        Some(_) => ServiceState::Right,
    }
}

/// The merge patch that puts our fields right; none if they are.
pub fn repair(live: &Service, wanted: &Service) -> Option<Value> {
    let (none, empty) = (ServiceSpec::default(), ServiceSpec::default());
    let (has, wants) = (live.spec.as_ref().unwrap_or(&none), wanted.spec.as_ref().unwrap_or(&empty));
    let mut spec = Map::new();
    if has.selector != wants.selector {
        spec.insert("selector".into(), exactly(has.selector.as_ref(), wants.selector.as_ref()));
    }
    if !same_ports(has.ports.as_deref(), wants.ports.as_deref()) {
        spec.insert("ports".into(), json!(wants.ports));
    }
    if has.type_.as_deref().unwrap_or("ClusterIP") != wants.type_.as_deref().unwrap_or("ClusterIP") {
        spec.insert("type".into(), json!(wants.type_));
        // Only an ExternalName has it, and no other type may.
        if has.external_name.is_some() {
            spec.insert("externalName".into(), Value::Null);
        }
    }
    let (published, publish) = (has.publish_not_ready_addresses, wants.publish_not_ready_addresses);
    if published.unwrap_or(false) != publish.unwrap_or(false) {
        spec.insert("publishNotReadyAddresses".into(), json!(publish.unwrap_or(false)));
    }
    let metadata = metadata(&live.metadata, &wanted.metadata);
    let mut patch = Map::new();
    if !spec.is_empty() {
        patch.insert("spec".into(), Value::Object(spec));
    }
    patch.extend(metadata.map(|metadata| ("metadata".to_owned(), metadata)));
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// The labels and annotations of ours that are missing, different or wanted no more; none if all are right.
pub(crate) fn metadata(live: &ObjectMeta, wanted: &ObjectMeta) -> Option<Value> {
    let nothing = Labels::new();
    let (labels, annotations) =
        (wanted.labels.as_ref().unwrap_or(&nothing), wanted.annotations.as_ref().unwrap_or(&nothing));
    let [no_labels, no_annotations] = extra::stale(live, labels, annotations);
    let parts = [
        ("labels", no_labels, missing(live.labels.as_ref(), Some(labels))),
        ("annotations", no_annotations, missing(live.annotations.as_ref(), Some(annotations))),
    ];
    let mut metadata = Map::new();
    for (name, mut part, missing) in parts {
        if let Some(Value::Object(missing)) = missing {
            part.extend(missing);
        }
        if !part.is_empty() {
            metadata.insert(name.to_owned(), Value::Object(part));
        }
    }
    (!metadata.is_empty()).then_some(Value::Object(metadata))
}

type Labels = std::collections::BTreeMap<String, String>;

/// The wanted entries that are missing or different; others' entries are none of our business.
pub(crate) fn missing(has: Option<&Labels>, wants: Option<&Labels>) -> Option<Value> {
    let missing: Map<String, Value> = wants?
        .iter()
        .filter(|(key, value)| has.and_then(|has| has.get(*key)) != Some(*value))
        .map(|(key, value)| (key.clone(), json!(value)))
        .collect();
    (!missing.is_empty()).then_some(Value::Object(missing))
}

/// A merge patch that leaves exactly `wants`: a selector with one key more selects nobody.
pub(crate) fn exactly(has: Option<&Labels>, wants: Option<&Labels>) -> Value {
    let has = json!(has.cloned().unwrap_or_default());
    let wants = json!(wants.cloned().unwrap_or_default());
    crate::patch::diff(&has, &wants).unwrap_or_else(|| json!({}))
}

fn same_ports(has: Option<&[ServicePort]>, wants: Option<&[ServicePort]>) -> bool {
    let ours = |port: &ServicePort| {
        let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
        (port.name.clone(), port.port, port.target_port.clone(), protocol)
    };
    let has: Vec<_> = has.unwrap_or_default().iter().map(ours).collect();
    let wants: Vec<_> = wants.unwrap_or_default().iter().map(ours).collect();
    has.len() == wants.len() && wants.iter().all(|port| has.contains(port))
}

fn same_headlessness(live: &Service, wanted: &Service) -> bool {
    let headless =
        |s: &Service| s.spec.as_ref().and_then(|s| s.cluster_ip.as_deref()).is_some_and(|ip| ip == "None");
    headless(live) == headless(wanted)
}

#[cfg(test)]
#[path = "drift_tests.rs"]
mod tests;
