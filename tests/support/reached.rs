//! Whether a cluster's spec has reached every object that is made from it: EtcdMembers, Pods, volumes, Services, budget.
//! Reads only.

use std::collections::BTreeMap;
use std::fmt::Debug;

use etcd_operator_api::{EtcdCluster, EtcdClusterSpec, EtcdMember, EtcdOptions, labels};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Container, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::ResourceExt as _;
use kube::api::ListParams;

use super::Scene;

/// Compares every object of the cluster with its spec as it is now. With `pods` also what only another Pod brings about:
/// under OnDelete a Pod may be older than the spec by right.
///
/// # Errors
/// The first thing that is not right.
pub async fn check(scene: &Scene, name: &str, pods: bool) -> Result<(), String> {
    let cluster = scene.get(name).await;
    let spec = &cluster.spec;
    for member in all::<EtcdMember>(scene, name).await? {
        let (name, has) = (member.name_any(), &member.spec);
        same(&name, "version", &has.version, &spec.version)?;
        same(&name, "resources", &has.resources, &spec.resources)?;
        same(&name, "options", &has.options, &spec.options)?;
        same(&name, "additionalMetadata", &has.additional_metadata, &spec.additional_metadata)?;
        marked(&member, &cluster)?;
    }
    for pod in all::<Pod>(scene, name).await? {
        marked(&pod, &cluster)?;
        let containers = pod.spec.as_ref().map(|s| &*s.containers).unwrap_or_default();
        for container in containers.iter().filter(|_| pods) {
            made_to(&pod.name_any(), container, spec)?;
        }
    }
    for volume in all::<PersistentVolumeClaim>(scene, name).await? {
        marked(&volume, &cluster)?;
    }
    for service in all::<Service>(scene, name).await? {
        marked(&service, &cluster)?;
    }
    for budget in all::<PodDisruptionBudget>(scene, name).await? {
        marked(&budget, &cluster)?;
    }
    Ok(())
}

async fn all<K>(scene: &Scene, cluster: &str) -> Result<Vec<K>, String>
where
    K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let selected = ListParams::default().labels(&labels::as_text(&labels::cluster_selector(cluster)));
    let kind = K::kind(&());
    let found = scene.api::<K>().list(&selected).await.map_err(|e| e.to_string())?.items;
    if found.is_empty() { Err(format!("no {kind} of {cluster}")) } else { Ok(found) }
}

/// The labels and annotations that the spec asks for. What it no longer asks for may stay.
fn marked<K: kube::Resource<DynamicType = ()>>(object: &K, cluster: &EtcdCluster) -> Result<(), String> {
    let name = format!("{} {}", K::kind(&()), object.name_any());
    let Some(wanted) = &cluster.spec.additional_metadata else { return Ok(()) };
    let missing = |has: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>| {
        let missing = wanted.iter().find(|(key, value)| has.get(*key) != Some(value));
        missing.map(|(key, value)| format!("{name}: {key} should be {value}, and is {:?}", has.get(key)))
    };
    let missing = missing(object.labels(), &wanted.labels)
        .or_else(|| missing(object.annotations(), &wanted.annotations));
    missing.map_or(Ok(()), Err)
}

fn made_to(pod: &str, container: &Container, spec: &EtcdClusterSpec) -> Result<(), String> {
    let image = container.image.as_deref().unwrap_or_default();
    if !image.ends_with(&format!(":v{}", spec.version)) {
        return Err(format!("Pod {pod} runs {image}, not {}", spec.version));
    }
    let requests = |of: &Option<_>| {
        of.clone().and_then(|r: k8s_openapi::api::core::v1::ResourceRequirements| r.requests)
    };
    if spec.resources.is_some() {
        same(pod, "requests", &requests(&container.resources), &requests(&spec.resources))?;
    }
    let args = container.args.as_deref().unwrap_or_default();
    for flag in spec.options.iter().flat_map(flags) {
        if !args.contains(&flag) {
            return Err(format!("Pod {pod} was not started with {flag}: {args:?}"));
        }
    }
    Ok(())
}

/// The flags of the options that edits change, in etcd's words.
fn flags(options: &EtcdOptions) -> Vec<String> {
    let word = |value: Option<serde_json::Value>| value.and_then(|v| v.as_str().map(str::to_owned));
    let all = [
        ("max-wals", options.max_wals.map(|n| n.to_string())),
        ("max-snapshots", options.max_snapshots.map(|n| n.to_string())),
        ("log-level", word(options.log_level.map(|level| serde_json::json!(level)))),
        ("metrics", word(options.metrics.map(|detail| serde_json::json!(detail)))),
    ];
    all.into_iter().filter_map(|(flag, value)| Some(format!("--{flag}={}", value?))).collect()
}

fn same<T: PartialEq + Debug>(object: &str, what: &str, is: &T, wanted: &T) -> Result<(), String> {
    if is == wanted { Ok(()) } else { Err(format!("{what} of {object}: {is:?}, not {wanted:?}")) }
}
