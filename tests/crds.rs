//! What is committed in `deploy/` is what the types say, and the CRDs are what users and `kubectl` rely on.
//! No Kubernetes needed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends at its first surprise; clippy knows that only of the #[test] functions themselves"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use etcd_operator_api::{crd_file_name, crds};
use serde_json::{Value, json};

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Name and text of every file in a directory.
fn files(directory: &Path) -> BTreeMap<String, String> {
    std::fs::read_dir(directory)
        .unwrap_or_else(|e| panic!("{}: {e}", directory.display()))
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read_to_string(&path).unwrap())
        })
        .collect()
}

#[test]
fn committed_crds_and_examples_are_what_crdgen_writes() {
    let generated = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("crdgen-drift");
    let _ = std::fs::remove_dir_all(&generated);
    let run = Command::new(env!("CARGO_BIN_EXE_crdgen")).arg(generated.join("crds")).status().unwrap();
    assert!(run.success(), "crdgen ended with {run}");
    for directory in ["crds", "examples"] {
        let (written, committed) =
            (files(&generated.join(directory)), files(&repository().join("deploy").join(directory)));
        for name in written.keys().chain(committed.keys()) {
            assert!(
                written.get(name) == committed.get(name),
                "deploy/{directory}/{name} is not what the types say; run `cargo run --bin crdgen -- deploy/crds` and commit"
            );
        }
    }
}

#[test]
fn crdgen_without_a_directory_prints_every_crd() {
    let run = Command::new(env!("CARGO_BIN_EXE_crdgen")).output().unwrap();
    let text = String::from_utf8(run.stdout).unwrap();
    for kind in ["EtcdCluster", "EtcdMember", "EtcdSnapshot", "EtcdDefrag"] {
        assert!(text.contains(&format!("    kind: {kind}\n")), "{kind}");
    }
    assert_eq!(text.matches("---\n").count(), 4);
}

/// Every definition by kind, as it is committed.
fn committed() -> BTreeMap<String, Value> {
    crds()
        .unwrap()
        .iter()
        .map(|crd| {
            let text =
                std::fs::read_to_string(repository().join("deploy/crds").join(crd_file_name(crd))).unwrap();
            (crd.spec.names.kind.clone(), serde_yaml_ng::from_str(&text).unwrap())
        })
        .collect()
}

fn walk(value: &Value, path: &str, f: &mut impl FnMut(&str, &Value)) {
    f(path, value);
    match value {
        Value::Object(object) => {
            object.iter().for_each(|(key, value)| walk(value, &format!("{path}/{key}"), f))
        }
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(i, value)| walk(value, &format!("{path}/{i}"), f))
        }
        _ => {}
    }
}

#[test]
fn nothing_is_nullable_so_that_an_explicit_null_is_pruned() {
    for (kind, crd) in committed() {
        walk(&crd, &kind, &mut |path, node| {
            assert!(node.get("nullable").is_none(), "{path}");
            assert!(node.get("default") != Some(&Value::Null), "{path}");
        });
    }
}

// RB-05: kubectl keeps a second copy in an annotation, and annotations may have 256 KiB.
#[test]
fn every_crd_fits_client_side_apply() {
    for (kind, crd) in committed() {
        let size = serde_json::to_string(&crd).unwrap().len();
        assert!(size < 200 * 1024, "{kind} has {size} bytes as JSON");
    }
}

#[test]
fn a_status_has_no_rules_and_no_defaults_that_could_keep_it_from_being_written() {
    for (kind, crd) in committed() {
        let status = crd.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/status").unwrap();
        walk(status, &kind, &mut |path, node| {
            for key in ["default", "x-kubernetes-validations"] {
                assert!(node.get(key).is_none(), "{path} has {key}");
            }
        });
    }
}

#[test]
fn columns_are_those_that_scripts_and_people_know_with_ours_after_them() {
    let columns: BTreeMap<String, Vec<String>> = committed()
        .into_iter()
        .map(|(kind, crd)| {
            let columns =
                crd.pointer("/spec/versions/0/additionalPrinterColumns").and_then(Value::as_array).unwrap();
            let text = |c: &Value, key: &str| c[key].as_str().unwrap().to_owned();
            let wide = |c: &Value| if c["priority"] == 1 { " (wide)" } else { "" };
            let line = |c: &Value| format!("{} = {}{}", text(c, "name"), text(c, "jsonPath"), wide(c));
            (kind, columns.iter().map(line).collect())
        })
        .collect();
    assert_eq!(
        columns["EtcdCluster"],
        [
            "Version = .spec.version",
            "Replicas = .spec.replicas",
            "Ready = .status.readyMembers",
            "Age = .metadata.creationTimestamp",
            r#"Available = .status.conditions[?(@.type=="Available")].status"#,
            r#"Reason = .status.conditions[?(@.type=="Available")].reason"#,
            r#"Progress = .status.conditions[?(@.type=="Progressing")].reason (wide)"#,
            "Leader = .status.leader (wide)",
            "DB Size = .status.dbSizeBytes (wide)",
            "Cluster ID = .status.clusterID (wide)",
        ]
    );
    assert_eq!(
        columns["EtcdMember"],
        [
            "Cluster = .spec.clusterName",
            "Version = .spec.version",
            "Running = .status.version",
            r#"Ready = .status.conditions[?(@.type=="Ready")].status"#,
            "Age = .metadata.creationTimestamp",
            "Voter = .status.isVoter",
            r#"Reason = .status.conditions[?(@.type=="Ready")].reason"#,
            "Member ID = .status.memberID (wide)",
        ]
    );
    assert_eq!(
        columns["EtcdSnapshot"][..3].join(", "),
        "Cluster = .spec.clusterRef.name, Phase = .status.phase, Age = .metadata.creationTimestamp"
    );
    assert_eq!(
        columns["EtcdDefrag"][..2].join(", "),
        "Cluster = .spec.clusterRef.name, Phase = .status.phase"
    );
}

#[test]
fn names_scope_and_subresources_are_those_of_the_go_operator() {
    for (kind, crd) in committed() {
        assert_eq!(crd["spec"]["group"], "etcd-operator.cozystack.io", "{kind}");
        assert_eq!(crd["spec"]["scope"], "Namespaced", "{kind}");
        assert_eq!(crd["spec"]["names"]["plural"], format!("{}s", kind.to_lowercase()));
        assert_eq!(crd["spec"]["names"]["singular"], kind.to_lowercase());
        assert_eq!(
            crd["spec"]["names"]["listKind"].as_str().unwrap_or(&format!("{kind}List")),
            format!("{kind}List")
        );
        let versions = crd["spec"]["versions"].as_array().unwrap();
        assert_eq!(versions.len(), 1, "{kind}");
        assert_eq!(
            (&versions[0]["name"], &versions[0]["served"], &versions[0]["storage"]),
            (&json!("v1alpha2"), &json!(true), &json!(true))
        );
        assert_eq!(versions[0]["subresources"]["status"], json!({}), "{kind}");
        let scale = |spec: &str, status: &str| json!({ "specReplicasPath": spec, "statusReplicasPath": status, "labelSelectorPath": ".status.selector" });
        let expected = match kind.as_str() {
            "EtcdCluster" => scale(".spec.replicas", ".status.readyMembers"),
            "EtcdMember" => scale(".spec.replicas", ".status.replicas"),
            _ => Value::Null,
        };
        assert_eq!(versions[0]["subresources"]["scale"], expected, "{kind}");
    }
}

#[test]
fn what_is_required_is_what_the_go_operator_requires() {
    let crds = committed();
    let required = |kind: &str, path: &str| -> Vec<String> {
        let schema = crds[kind].pointer("/spec/versions/0/schema/openAPIV3Schema/properties").unwrap();
        let node = schema.pointer(path).unwrap_or_else(|| panic!("{kind} has no {path}"));
        let mut names: Vec<String> = node["required"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|v| v.as_str().unwrap().to_owned())
            .collect();
        names.sort();
        names
    };
    assert_eq!(required("EtcdCluster", "/spec"), ["version"]);
    assert_eq!(required("EtcdCluster", "/spec/properties/storage"), [""; 0]);
    assert_eq!(required("EtcdCluster", "/spec/properties/auth"), [""; 0]);
    assert_eq!(
        required("EtcdCluster", "/spec/properties/tls/properties/client/properties/certManager"),
        ["serverIssuerRef"]
    );
    assert_eq!(
        required("EtcdCluster", "/spec/properties/tls/properties/peer/properties/certManager"),
        ["issuerRef"]
    );
    assert_eq!(required("EtcdCluster", "/spec/properties/bootstrap/properties/restore"), ["source"]);
    assert_eq!(required("EtcdCluster", "/status"), [""; 0]);
    assert_eq!(required("EtcdCluster", "/status/properties/observed"), ["replicas", "storage", "version"]);
    assert_eq!(
        required("EtcdMember", "/spec"),
        ["clusterName", "clusterToken", "initialCluster", "storage", "version"]
    );
    assert_eq!(required("EtcdMember", "/status"), [""; 0]);
    assert_eq!(required("EtcdSnapshot", "/spec"), ["clusterRef", "destination"]);
    let destination = "/spec/properties/destination/properties";
    assert_eq!(
        required("EtcdSnapshot", &format!("{destination}/s3")),
        ["bucket", "credentialsSecretRef", "endpoint"]
    );
    assert_eq!(required("EtcdSnapshot", &format!("{destination}/pvc")), ["claimName"]);
    assert_eq!(required("EtcdSnapshot", "/status/properties/artifact"), ["uri"]);
    assert_eq!(required("EtcdDefrag", "/spec"), ["clusterRef"]);
    assert_eq!(required("EtcdDefrag", "/status/properties/members/items"), ["name"]);
}

#[test]
fn quantities_numbers_and_lists_have_the_shape_that_controller_gen_gives_them() {
    for (kind, crd) in committed() {
        let schema = crd.pointer("/spec/versions/0/schema/openAPIV3Schema").unwrap();
        walk(schema, &kind, &mut |path, node| {
            if node["type"] == "integer" && !path.contains("/anyOf/") {
                assert!(
                    ["int32", "int64"].contains(&node["format"].as_str().unwrap_or("none")),
                    "{path}: {node}"
                );
            }
            if node["x-kubernetes-int-or-string"] == true {
                assert!(node.get("type").is_none(), "{path}");
                assert!(node["pattern"].is_string(), "{path}");
                assert_eq!(node["anyOf"], json!([{ "type": "integer" }, { "type": "string" }]), "{path}");
            }
            if path.ends_with("/properties/conditions") {
                assert_eq!(node["x-kubernetes-list-type"], "map", "{path}");
                assert_eq!(node["x-kubernetes-list-map-keys"], json!(["type"]), "{path}");
            }
        });
    }
    let defaults = &committed()["EtcdCluster"]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
        ["spec"]["properties"];
    assert_eq!(defaults["replicas"]["default"], 3);
    assert_eq!(defaults["progressDeadlineSeconds"]["default"], 600);
    assert_eq!(defaults["storage"]["default"], json!({ "size": "1Gi", "medium": "" }));
    assert_eq!(defaults["storage"]["properties"]["medium"]["enum"], json!(["", "Memory"]));
    assert_eq!(defaults["storage"]["properties"]["medium"]["type"], "string");
    for (kind, crd) in committed() {
        let status =
            crd.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/status/properties").unwrap();
        assert!(status["conditions"].is_object(), "{kind}");
    }
}
