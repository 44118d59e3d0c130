//! The shipped manifests: what the operator may do, as whom it runs, and that nothing is left out.
//!
//! RB-01 (rights in one place, none unused), RB-02 (finalizers of owners), RB-03 and RB-04 (removing the
//! operator removes no cluster).

#![allow(clippy::expect_used, clippy::panic, reason = "a helper of a test fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding};
use k8s_openapi::serde::Deserialize as _;
use k8s_openapi::serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

const GROUP: &str = "etcd-operator.cozystack.io";
const LEASES: &str = "coordination.k8s.io";
/// The Lease that the Go operator of the same group takes too; src/kubernetes/shards.rs names it.
const LEASE: &str = "aa20b3a9.etcd-operator.cozystack.io";

/// API group, resource, and each verb with the reason why the operator needs it.
type Rights = &'static [(&'static str, &'static str, &'static [(&'static str, &'static str)])];

const WATCH: (&str, &str) = ("watch", "one watch for the whole process");
const LIST: (&str, &str) = ("list", "a watch begins with a list");

/// In every namespace.
const EVERYWHERE: Rights = &[
    (
        GROUP,
        "etcdclusters",
        &[("get", "whether the owner is gone is asked live, never taken from a store"), LIST, WATCH],
    ),
    (GROUP, "etcdclusters/status", &[("patch", "conditions, cluster ID, target")]),
    (GROUP, "etcdclusters/finalizers", &[("update", "RB-02: members block their owner's deletion")]),
    (
        GROUP,
        "etcdmembers",
        &[
            ("get", "before an effect that rests on what a store says"),
            LIST,
            WATCH,
            ("create", "one for each member"),
            ("patch", "initialCluster, annotations, and our finalizer on the way out"),
            ("delete", "shrinking and replacing"),
        ],
    ),
    (GROUP, "etcdmembers/status", &[("patch", "member ID, role, volume, conditions")]),
    (GROUP, "etcdmembers/finalizers", &[("update", "RB-02: Pod and PVC block their owner's deletion")]),
    (GROUP, "etcdsnapshots", &[LIST, WATCH]),
    (GROUP, "etcdsnapshots/status", &[("patch", "says that this build does not act on them")]),
    (GROUP, "etcddefrags", &[LIST, WATCH]),
    (GROUP, "etcddefrags/status", &[("patch", "says that this build does not act on them")]),
    (
        "",
        "services",
        &[
            ("get", "absence is decided live"),
            LIST,
            WATCH,
            ("create", "the headless and the client Service"),
            ("patch", "putting an edited one right"),
        ],
    ),
    (
        "",
        "pods",
        &[
            ("get", "absence is decided live"),
            LIST,
            WATCH,
            ("create", "one for each member"),
            ("patch", "role label and join instruction"),
            ("delete", "a member on its way out, and a Pod that ended for good"),
        ],
    ),
    ("", "pods/eviction", &[("create", "a restart stands in one queue with drains")]),
    (
        "",
        "persistentvolumeclaims",
        &[
            ("get", "the recorded UID is compared live before a Pod is made"),
            LIST,
            WATCH,
            ("create", "one for each member"),
            ("patch", "labels that were stripped"),
            ("delete", "after etcd no longer lists the member"),
        ],
    ),
    (
        "policy",
        "poddisruptionbudgets",
        &[
            ("get", "absence is decided live"),
            LIST,
            WATCH,
            ("create", "one for each cluster"),
            ("patch", "its floor follows the voters, and putting an edited one right"),
            ("delete", "when it would guard nobody"),
        ],
    ),
    ("events.k8s.io", "events", &[("create", "each step"), ("patch", "an Event that repeats is counted")]),
];

/// In the operator's own namespace.
const AT_HOME: Rights = &[(
    LEASES,
    "leases",
    &[
        ("create", "the first start"),
        ("get", "each write carries the version that was read"),
        ("update", "taking, renewing and handing it back"),
    ],
)];

/// Every document of `deploy/kustomize/base/operator.yaml`, by kind and name.
fn manifests() -> BTreeMap<(String, String), Value> {
    let text = include_str!("../deploy/kustomize/base/operator.yaml");
    serde_yaml_ng::Deserializer::from_str(text)
        .map(|document| {
            let object = Value::deserialize(document).expect("each document is YAML");
            let word = |value: &Value| value.as_str().expect("kind and name are there").to_owned();
            ((word(&object["kind"]), word(&object["metadata"]["name"])), object)
        })
        .collect()
}

/// The object of this kind. Also proves that it has no field that the API does not know: what was
/// read must come back when it is written.
fn object<T: DeserializeOwned + Serialize>(kind: &str, name: &str) -> T {
    let raw =
        manifests().remove(&(kind.to_owned(), name.to_owned())).unwrap_or_else(|| panic!("no {kind} {name}"));
    let typed: T = serde_json::from_value(raw.clone()).unwrap_or_else(|e| panic!("{kind} {name}: {e}"));
    let again = serde_json::to_value(&typed).expect("an API type is JSON");
    assert!(
        contains(&again, &raw),
        "{kind} {name} has a field that the API does not know:\n{raw:#}\n{again:#}"
    );
    typed
}

fn contains(all: &Value, some: &Value) -> bool {
    match (all, some) {
        (Value::Object(all), Value::Object(some)) => {
            some.iter().all(|(k, v)| all.get(k).is_some_and(|other| contains(other, v)))
        }
        (Value::Array(all), Value::Array(some)) => {
            all.len() == some.len() && all.iter().zip(some).all(|(a, s)| contains(a, s))
        }
        (all, some) => all == some,
    }
}

/// Rules as (group, resource) to verbs.
fn granted(rules: &[PolicyRule]) -> BTreeMap<(String, String), BTreeSet<String>> {
    let mut granted: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for rule in rules {
        assert!(rule.non_resource_urls.is_none(), "the operator asks for no URL");
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                let verbs = granted.entry((group.clone(), resource.clone())).or_default();
                verbs.extend(rule.verbs.iter().cloned());
            }
        }
    }
    granted
}

fn wanted(rights: Rights) -> BTreeMap<(String, String), BTreeSet<String>> {
    rights
        .iter()
        .map(|(group, resource, verbs)| {
            let verbs = verbs.iter().map(|(verb, why)| {
                assert!(!why.is_empty(), "{resource} {verb} has no reason");
                (*verb).to_owned()
            });
            (((*group).to_owned(), (*resource).to_owned()), verbs.collect())
        })
        .collect()
}

// RB-01
#[test]
fn the_operator_may_do_what_the_table_says_and_nothing_else() {
    let role: ClusterRole = object("ClusterRole", "etcd-operator");
    assert_eq!(granted(&role.rules.expect("the role has rules")), wanted(EVERYWHERE));
    let role: Role = object("Role", "etcd-operator-lease");
    assert_eq!(granted(&role.rules.expect("the role has rules")), wanted(AT_HOME));
}

#[test]
fn no_right_is_a_wildcard() {
    for ((kind, name), manifest) in manifests() {
        assert!(!manifest["rules"].to_string().contains('*'), "{kind} {name} grants by wildcard");
    }
}

#[test]
fn a_lease_may_be_changed_only_by_its_name() {
    let role: Role = object("Role", "etcd-operator-lease");
    for rule in role.rules.expect("the role has rules") {
        let names = rule.resource_names.unwrap_or_default();
        let unnamed = if rule.verbs == ["create"] { vec![] } else { vec![LEASE.to_owned()] };
        assert_eq!(names, unnamed, "verbs {:?}", rule.verbs);
    }
}

// RB-02
#[test]
fn every_kind_that_owns_others_lets_the_operator_update_its_finalizers() {
    let role: ClusterRole = object("ClusterRole", "etcd-operator");
    let granted = granted(&role.rules.expect("the role has rules"));
    for owner in ["etcdclusters", "etcdmembers"] {
        let verbs = &granted[&(GROUP.to_owned(), format!("{owner}/finalizers"))];
        assert!(verbs.contains("update"), "{owner}");
    }
}

#[test]
fn the_rights_go_to_the_account_that_the_pod_runs_as() {
    let account: ServiceAccount = object("ServiceAccount", "etcd-operator");
    let home = account.metadata.namespace.expect("an account has a namespace");
    assert_eq!(account.automount_service_account_token, Some(false));
    let binding: ClusterRoleBinding = object("ClusterRoleBinding", "etcd-operator");
    assert_eq!(binding.role_ref.name, "etcd-operator");
    let lease: RoleBinding = object("RoleBinding", "etcd-operator-lease");
    assert_eq!(lease.role_ref.name, "etcd-operator-lease");
    assert_eq!(lease.metadata.namespace.as_ref(), Some(&home));
    for subject in binding.subjects.iter().chain(&lease.subjects).flatten() {
        assert_eq!((subject.kind.as_str(), subject.name.as_str()), ("ServiceAccount", "etcd-operator"));
        assert_eq!(subject.namespace.as_ref(), Some(&home));
    }
    let deployment: Deployment = object("Deployment", "etcd-operator");
    assert_eq!(deployment.metadata.namespace.as_ref(), Some(&home));
    let pod = deployment.spec.and_then(|s| s.template.spec).expect("the Deployment has a Pod");
    assert_eq!(pod.service_account_name.as_deref(), Some("etcd-operator"));
    let namespace: Namespace = object("Namespace", &home);
    let labels = namespace.metadata.labels.unwrap_or_default();
    assert_eq!(labels.get("pod-security.kubernetes.io/enforce").map(String::as_str), Some("restricted"));
}

#[test]
fn the_pod_meets_the_restricted_standard() {
    let deployment: Deployment = object("Deployment", "etcd-operator");
    let pod = deployment.spec.and_then(|s| s.template.spec).expect("the Deployment has a Pod");
    let security = pod.security_context.expect("the Pod has a security context");
    assert_eq!(security.run_as_non_root, Some(true));
    // The user that .ci/image writes into the image.
    assert_eq!(security.run_as_user, Some(65532));
    assert_eq!(security.seccomp_profile.expect("a seccomp profile").type_, "RuntimeDefault");
    assert_eq!(pod.enable_service_links, Some(false));
    assert!(pod.volumes.is_none() && pod.host_network.is_none() && pod.host_pid.is_none());
    for container in &pod.containers {
        let security = container.security_context.as_ref().expect("the container has a security context");
        assert_eq!(security.allow_privilege_escalation, Some(false));
        assert_eq!(security.read_only_root_filesystem, Some(true));
        let capabilities = security.capabilities.as_ref().expect("capabilities are named");
        assert_eq!(capabilities.drop.as_deref(), Some(&["ALL".to_owned()][..]));
        assert!(capabilities.add.is_none());
    }
    for script in [include_str!("../.ci/image"), include_str!("../deploy/docker/Dockerfile")] {
        assert!(script.contains("65532:65532"), "the image is built for another user:\n{script}");
    }
}

#[test]
fn the_operator_learns_who_it_is_and_probes_ask_the_ports_that_it_opens() {
    let deployment: Deployment = object("Deployment", "etcd-operator");
    let pod = deployment.spec.and_then(|s| s.template.spec).expect("the Deployment has a Pod");
    let [container] = &pod.containers[..] else { panic!("one container") };
    let field = |name: &str| {
        let variable = container.env.iter().flatten().find(|v| v.name == name)?;
        Some(variable.value_from.as_ref()?.field_ref.as_ref()?.field_path.clone())
    };
    assert_eq!(field("POD_NAME").as_deref(), Some("metadata.name"));
    assert_eq!(field("POD_NAMESPACE").as_deref(), Some("metadata.namespace"));
    assert_eq!(field("POD_UID").as_deref(), Some("metadata.uid"));
    let ports: BTreeMap<_, _> = container
        .ports
        .iter()
        .flatten()
        .map(|p| (p.name.clone().unwrap_or_default(), p.container_port))
        .collect();
    assert_eq!(ports, BTreeMap::from([("health".into(), 8081), ("metrics".into(), 8080)]));
    let path = |probe: &Option<k8s_openapi::api::core::v1::Probe>| {
        probe.as_ref().and_then(|p| p.http_get.clone()).and_then(|get| get.path)
    };
    assert_eq!(path(&container.liveness_probe).as_deref(), Some("/healthz"));
    assert_eq!(path(&container.readiness_probe).as_deref(), Some("/readyz"));
    let metrics: Service = object("Service", "etcd-operator-metrics");
    let selector = metrics.spec.and_then(|s| s.selector).expect("the Service selects");
    let labels = deployment.metadata.labels.expect("the Deployment has labels");
    assert!(selector.iter().all(|(k, v)| labels.get(k) == Some(v)));
}

// RB-03, RB-04
#[test]
fn deleting_what_was_applied_with_the_operator_deletes_no_cluster() {
    for (kind, name) in manifests().keys() {
        assert_ne!(kind, "CustomResourceDefinition", "{name} would take every EtcdCluster with it");
    }
}

#[test]
fn every_role_names_kinds_that_the_crds_define() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/crds");
    let files: BTreeSet<String> = std::fs::read_dir(directory)
        .expect("deploy/crds is there")
        .map(|entry| entry.expect("it can be listed").file_name().to_string_lossy().into_owned())
        .collect();
    let kinds: BTreeSet<&str> = EVERYWHERE
        .iter()
        .filter(|(group, _, _)| *group == GROUP)
        .map(|(_, resource, _)| resource.split('/').next().unwrap_or(resource))
        .collect();
    let defined = kinds.iter().map(|kind| format!("{GROUP}_{kind}.yaml")).collect();
    assert_eq!(files, defined);
}
