//! The CRDs' rules, proved without an API server: every case in `testdata/cases` goes through what the API server
//! does to an object (pruning, defaults, schema, CEL), and must end as the case says.
//!
//! `tests/testbed_crds.rs` sends the same cases to a real API server.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends at its first surprise; clippy knows that only of the #[test] functions themselves"
)]

mod apiserver;
#[path = "../testdata/cases.rs"]
mod cases;

use std::collections::BTreeSet;

use apiserver::{ApiServer, rules_of};
use cases::{cases, golden};
use etcd_operator_api::{EtcdCluster, EtcdDefrag, EtcdMember, EtcdSnapshot, crds};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

#[test]
fn every_case_ends_as_it_says() {
    let server = ApiServer::new();
    let mut wrong = Vec::new();
    for case in cases() {
        let old = case.was.as_ref().map(|was| {
            server
                .admit(&case.object(was), None)
                .unwrap_or_else(|e| panic!("{}: its start is refused: {e}", case.case))
        });
        wrong.extend(case.check(&server.admit(&case.object(&case.spec), old.as_ref())));
    }
    assert!(wrong.is_empty(), "{} cases went wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_rule_has_a_case_that_it_refuses() {
    let refusals: Vec<_> =
        cases().into_iter().filter_map(|c| c.refused.map(|words| (c.kind, words))).collect();
    for crd in crds().unwrap() {
        let kind = crd.spec.names.kind.as_str();
        for (path, rule) in rules_of(&crd) {
            let message =
                rule["message"].as_str().unwrap_or_else(|| panic!("{kind} {path}: a rule without a message"));
            let refused = refusals.iter().any(|(k, words)| *k == kind && message.contains(words.as_str()));
            // RestoreSpec and SnapshotLocation are the same type wherever they are; one place is enough.
            let shared =
                kind == "EtcdMember" && (path.contains("restore") || message.contains("storageClassName"));
            assert!(refused || shared, "{kind} {path}: no case is refused by {message:?}");
        }
    }
}

#[test]
fn every_update_that_is_refused_has_a_neighbour_that_is_accepted() {
    for kind in ["EtcdCluster", "EtcdMember"] {
        let updates: Vec<_> = cases().into_iter().filter(|c| c.kind == kind && c.was.is_some()).collect();
        let accepted = updates.iter().filter(|c| c.refused.is_none()).count();
        assert!(accepted >= 2, "{kind}: rules that refuse everything would pass too");
    }
}

#[test]
fn sentences_of_cases_are_unique_so_that_a_failure_names_one() {
    let mut seen = BTreeSet::new();
    for case in cases() {
        assert!(seen.insert((case.kind, case.case.clone())), "{} / {} is there twice", case.kind, case.case);
    }
}

fn round_trip<T: DeserializeOwned + Serialize>(object: &Value) -> Value {
    let typed: T =
        serde_json::from_value(object.clone()).unwrap_or_else(|e| panic!("{}: {e}", object["kind"]));
    serde_json::to_value(typed).unwrap()
}

// VC-06
#[test]
fn an_object_with_every_field_survives_the_types_and_the_schema() {
    let server = ApiServer::new();
    for object in golden() {
        let kind = object["kind"].as_str().unwrap();
        let typed = match kind {
            "EtcdCluster" => round_trip::<EtcdCluster>(&object),
            "EtcdMember" => round_trip::<EtcdMember>(&object),
            "EtcdSnapshot" => round_trip::<EtcdSnapshot>(&object),
            "EtcdDefrag" => round_trip::<EtcdDefrag>(&object),
            other => panic!("no type for {other}"),
        };
        assert_eq!(typed, object, "{kind}: through the types");
        assert_eq!(server.admit(&object, None), Ok(object.clone()), "{kind}: through the schema");
    }
}

/// The fields that the Go operator does not know, wherever they are.
const OURS: [&str; 12] = [
    "priorityClassName",
    "tolerations",
    "nodeSelector",
    "updateStrategy",
    "heartbeatIntervalMs",
    "electionTimeoutMs",
    "maxRequestBytes",
    "maxTxnOps",
    "maxSnapshots",
    "maxWals",
    "logLevel",
    "metrics",
];

fn without_ours(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.retain(|key, _| !OURS.contains(&key.as_str()));
            object.values_mut().for_each(without_ours);
        }
        Value::Array(list) => list.iter_mut().for_each(without_ours),
        _ => {}
    }
}

// VC-06
#[test]
fn an_object_that_the_go_operator_made_comes_back_as_it_was_byte_for_byte() {
    let server = ApiServer::new();
    for mut object in golden() {
        let whole = object.clone();
        without_ours(&mut object);
        let (stored, typed) = match object["kind"].as_str().unwrap() {
            "EtcdCluster" => (server.admit(&object, None), round_trip::<EtcdCluster>(&object)),
            "EtcdMember" => (server.admit(&object, None), round_trip::<EtcdMember>(&object)),
            _ => continue,
        };
        assert_ne!(object, whole, "the golden object has none of ours");
        assert_eq!(typed.to_string(), object.to_string());
        assert_eq!(stored.map(|stored| stored.to_string()), Ok(object.to_string()), "no default is stored");
    }
}

#[test]
fn the_golden_objects_really_set_every_field_of_our_own() {
    let golden = golden();
    for crd in crds().unwrap() {
        let kind = crd.spec.names.kind.as_str();
        let object = golden.iter().find(|o| o["kind"] == kind).unwrap();
        let schema = apiserver::schema_of(&crd);
        let mut missing = Vec::new();
        for part in ["spec", "status"] {
            apiserver::unset(&schema["properties"][part], &object[part], part, &mut missing);
        }
        // A location is one of two things and a rule is one of two; the golden object has one of each.
        missing.retain(|path| {
            !(path.contains(".pvc") || path.contains("certManager") || path.ends_with("rule.all"))
        });
        assert!(missing.is_empty(), "{kind}: not in the golden object: {missing:?}");
    }
}

// VC-05
#[test]
fn fields_of_a_newer_version_are_ignored_when_an_object_is_read() {
    let mut object = golden().remove(0);
    object["spec"]["sunshine"] = Value::Bool(true);
    object["status"]["sunshine"] = Value::Bool(true);
    object["spec"]["storage"]["sunshine"] = Value::Bool(true);
    serde_json::from_value::<EtcdCluster>(object).unwrap();
}

#[test]
fn what_the_go_operator_leaves_out_is_read_as_its_default() {
    let cluster: EtcdCluster = serde_json::from_value(serde_json::json!({
        "apiVersion": "etcd-operator.cozystack.io/v1alpha2", "kind": "EtcdCluster", "metadata": {"name": "db"},
        "spec": {"version": "3.6.16", "resources": {}},
        "status": {"clusterID": "00000000000000ab"}
    }))
    .unwrap();
    assert_eq!(cluster.spec.replicas, 3);
    assert_eq!(cluster.spec.storage.size.0, "1Gi");
    assert_eq!(cluster.spec.progress_deadline_seconds, 600);
    let status = cluster.status_or_default();
    assert_eq!((status.ready_members, status.broken_members, status.auth_enabled), (0, 0, false));
    let member: EtcdMember = serde_json::from_value(serde_json::json!({
        "apiVersion": "etcd-operator.cozystack.io/v1alpha2", "kind": "EtcdMember", "metadata": {"name": "db-x7k2p"},
        "spec": {"clusterName": "db", "version": "3.6.16", "storage": {"size": 1073741824}, "initialCluster": "",
                 "clusterToken": "t"}
    }))
    .unwrap();
    assert_eq!(member.spec.replicas, 1);
    assert_eq!(
        etcd_operator_api::bytes(&member.spec.storage.size),
        Some(1 << 30),
        "VC-02: an integer is read"
    );
}
