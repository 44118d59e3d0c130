//! The builders against golden files, and the promises that a golden file does not show by itself.

use etcd_operator_api::{EtcdCluster, EtcdMember, EtcdMemberTls, ObservedClusterSpec};
use etcd_operator_core::{roll::Part, view::JoinInstruction};
use k8s_openapi::api::core::v1::{LocalObjectReference, Pod};
use serde_json::{Value, json};

use super::*;

fn cluster(spec: Value) -> EtcdCluster {
    serde_json::from_value(json!({
        "apiVersion": "etcd-operator.cozystack.io/v1alpha2", "kind": "EtcdCluster",
        "metadata": {"name": "db", "namespace": "tenant", "uid": "cluster-uid"}, "spec": spec,
    }))
    .unwrap()
}

fn build_member(spec: Value, seed: bool) -> EtcdMember {
    let cluster = cluster(spec);
    let target = ObservedClusterSpec::from(&cluster.spec);
    let mut member = member(&cluster, &target, NewMember { name: "db-x7k2p", seed }).unwrap();
    member.metadata.uid = Some("member-uid".into());
    member
}

fn plain() -> EtcdMember {
    build_member(json!({"version": "3.6.16"}), true)
}

fn join(member: &EtcdMember) -> JoinInstruction {
    let initial_cluster = member.spec.initial_cluster.clone();
    if member.spec.bootstrap {
        JoinInstruction::New { initial_cluster }
    } else {
        JoinInstruction::Existing { initial_cluster }
    }
}

fn build_pod(member: &EtcdMember) -> Pod {
    pod(member, &PodSettings::default(), &join(member)).unwrap()
}

fn args(pod: &Pod) -> Vec<String> {
    pod.spec.as_ref().unwrap().containers[0].args.clone().unwrap()
}

fn full_spec() -> Value {
    json!({
        "version": "3.6.16",
        "storage": {"size": "20Gi", "storageClassName": "fast"},
        "resources": {"requests": {"cpu": "2"}, "limits": {"memory": "4Gi"}, "claims": [{"name": "nic"}]},
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname",
             "labelSelector": {"matchLabels": {"etcd-operator.cozystack.io/cluster": "db"}}}]}},
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "DoNotSchedule"}],
        "imagePullSecrets": [{"name": "registry"}],
        "options": {"quotaBackendBytes": 8589934592_i64, "autoCompactionMode": "periodic",
            "autoCompactionRetention": "1h", "snapshotCount": 5000, "heartbeatIntervalMs": 250,
            "electionTimeoutMs": 2500, "maxRequestBytes": 4194304, "maxTxnOps": 1024, "maxSnapshots": 3,
            "maxWals": 4, "logLevel": "warn", "metrics": "extensive"},
        "priorityClassName": "tenant-critical",
        "tolerations": [{"key": "etcd", "operator": "Exists"}],
        "nodeSelector": {"disk": "nvme"},
        "additionalMetadata": {
            "labels": {"team": "a", "app.kubernetes.io/name": "junk", "etcd-operator.cozystack.io/role": "voter"},
            "annotations": {"note": "b", "etcd-operator.cozystack.io/initial-cluster-state": "new"}},
    })
}

#[test]
fn golden_services() {
    let cluster = cluster(json!({"version": "3.6.16"}));
    insta::assert_yaml_snapshot!("headless_service", headless_service(&cluster, None).unwrap());
    insta::assert_yaml_snapshot!("client_service", client_service(&cluster, None).unwrap());
}

#[test]
fn golden_budgets() {
    let cluster = cluster(full_spec());
    insta::assert_yaml_snapshot!("budget_plain", disruption_budget(&cluster, 2, None).unwrap());
    let extra = cluster.spec.additional_metadata.as_ref();
    insta::assert_yaml_snapshot!("budget_full", disruption_budget(&cluster, 3, extra).unwrap());
}

// SD-02, SD-05
#[test]
fn a_budget_is_a_number_of_voters_and_leaves_the_strict_policy() {
    let budget = disruption_budget(&cluster(json!({"version": "3.6.16"})), 2, None).unwrap();
    let spec = json!(budget.spec.unwrap());
    assert_eq!(spec["minAvailable"], 2);
    assert_eq!(spec["selector"]["matchLabels"], json!(labels::voter_selector("db")));
    assert_eq!((&spec["maxUnavailable"], &spec["unhealthyPodEvictionPolicy"]), (&Value::Null, &Value::Null));
}

#[test]
fn golden_members() {
    insta::assert_yaml_snapshot!("member_seed", plain());
    insta::assert_yaml_snapshot!("member_full", build_member(full_spec(), false));
}

#[test]
fn golden_claims() {
    insta::assert_yaml_snapshot!("pvc_plain", pvc(&plain()).unwrap());
    insta::assert_yaml_snapshot!("pvc_full", pvc(&build_member(full_spec(), false)).unwrap());
}

#[test]
fn golden_pods() {
    insta::assert_yaml_snapshot!("pod_seed", build_pod(&plain()));
    let mut full = build_member(full_spec(), false);
    full.spec.initial_cluster =
        "db-x7k2p=http://db-x7k2p.db.tenant.svc:2380,db-b=http://db-b.db.tenant.svc:2380".into();
    insta::assert_yaml_snapshot!("pod_full", build_pod(&full));
}

#[test]
fn golden_pod_of_an_adopted_member() {
    let mut adopted = plain();
    adopted.metadata.annotations = Some(
        [(labels::HEADLESS_SERVICE_NAME, "db-headless"), (labels::DATA_DIR_SUBPATH, "default.etcd")]
            .into_iter()
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .collect(),
    );
    let secret = |name: &str| Some(LocalObjectReference { name: name.into() });
    adopted.spec.tls = Some(EtcdMemberTls {
        client_server_secret_ref: secret("db-server-tls"),
        client_mtls: true,
        peer_secret_ref: secret("db-peer-tls"),
        peer_auto_tls: true,
    });
    insta::assert_yaml_snapshot!("pod_adopted_tls", build_pod(&adopted));
}

#[test]
fn golden_command_lines_of_each_minor() {
    for version in ["3.5.35", "3.6.16", "3.7.3"] {
        let mut spec = full_spec();
        spec["version"] = json!(version);
        let line = args(&build_pod(&build_member(spec, true)));
        insta::assert_yaml_snapshot!(format!("args_{version}"), line);
    }
}

#[test]
fn a_version_without_known_flags_has_no_pod() {
    for version in ["3.4.30", "3.5.10", "3.8.0", "4.0.0", "x"] {
        let mut member = plain();
        member.spec.version = version.into();
        let refused = pod(&member, &PodSettings::default(), &join(&member)).unwrap_err().to_string();
        assert!(refused.contains("db-x7k2p"), "{refused}");
    }
}

// LS-11
#[test]
fn every_member_checks_itself_for_diverging_data_whatever_its_options_are() {
    for (version, wanted) in [
        (
            "3.5.11",
            [
                "--experimental-initial-corrupt-check=true",
                "--experimental-compact-hash-check-enabled=true",
                "--experimental-corrupt-check-time=4h",
            ]
            .as_slice(),
        ),
        (
            "3.6.0",
            &["--feature-gates=InitialCorruptCheck=true,CompactHashCheck=true", "--corrupt-check-time=4h"],
        ),
        (
            "3.7.3",
            &["--feature-gates=InitialCorruptCheck=true,CompactHashCheck=true", "--corrupt-check-time=4h"],
        ),
    ] {
        for spec in [json!({ "version": version }), json!({ "version": version, "options": {} })] {
            let line = args(&build_pod(&build_member(spec, false)));
            let checks: Vec<&String> =
                line.iter().filter(|arg| arg.contains("check") || arg.contains("feature-gates")).collect();
            assert_eq!(checks, wanted, "{version}");
        }
    }
}

#[test]
fn an_option_that_is_not_set_is_no_flag() {
    let line = args(&build_pod(&plain())).join(" ");
    for flag in ["heartbeat", "election", "max-", "log-level", "--metrics=", "quota", "compaction"] {
        assert!(!line.contains(flag), "{flag}: {line}");
    }
}

// DN-07
#[test]
fn no_variable_is_one_that_etcd_would_take_for_a_flag() {
    let pod = build_pod(&build_member(full_spec(), false));
    let spec = pod.spec.unwrap();
    assert_eq!(spec.enable_service_links, Some(false));
    for variable in spec.containers[0].env.as_ref().unwrap() {
        assert!(!variable.name.starts_with("ETCD_"), "{}", variable.name);
    }
}

// DN-02
#[test]
fn a_member_finds_itself_and_its_peers_before_anyone_is_ready() {
    let service = headless_service(&cluster(json!({"version": "3.6.16"})), None).unwrap();
    let pod = build_pod(&plain()).spec.unwrap();
    assert_eq!(service.spec.unwrap().publish_not_ready_addresses, Some(true));
    assert_eq!((pod.hostname.as_deref(), pod.subdomain.as_deref()), (Some("db-x7k2p"), Some("db")));
}

// DN-03, DN-06
#[test]
fn what_is_advertised_is_a_name_that_ends_at_svc() {
    for arg in args(&build_pod(&plain())) {
        if let Some(url) = arg.strip_prefix("--advertise-client-urls=") {
            assert_eq!(url, "http://db-x7k2p.db.tenant.svc:2379");
        }
        if let Some(url) = arg.strip_prefix("--initial-advertise-peer-urls=") {
            assert_eq!(url, "http://db-x7k2p.db.tenant.svc:2380");
        }
        assert!(!arg.contains("cluster.local"), "{arg}");
    }
}

// VC-08
#[test]
fn a_users_metadata_replaces_nothing_of_ours_on_any_kind() {
    let mut spec = full_spec();
    spec["additionalMetadata"]["labels"]["etcd-operator.cozystack.io/cluster"] = json!("junk");
    spec["additionalMetadata"]["annotations"]["etcd-operator.cozystack.io/initial-cluster"] = json!("junk");
    let cluster = cluster(spec.clone());
    let extra = cluster.spec.additional_metadata.as_ref();
    let member = build_member(spec, false);
    let pod = build_pod(&member);
    let metas = [
        headless_service(&cluster, extra).unwrap().metadata,
        client_service(&cluster, extra).unwrap().metadata,
        disruption_budget(&cluster, 2, extra).unwrap().metadata,
        pvc(&member).unwrap().metadata,
        pod.metadata.clone(),
        member.metadata.clone(),
    ];
    for meta in metas {
        let labels = meta.labels.unwrap();
        assert_eq!(labels["team"], "a");
        assert_eq!(labels[labels::NAME], "etcd");
        assert_eq!(labels[labels::CLUSTER], "db");
        assert!(!labels.contains_key(labels::ROLE), "a user's label must not make a voter");
        assert_eq!(meta.annotations.unwrap()["note"], "b");
    }
    let annotations = pod.metadata.annotations.unwrap();
    assert_eq!(annotations[labels::INITIAL_CLUSTER_STATE], "existing");
    assert_ne!(annotations[labels::INITIAL_CLUSTER], "junk");
}

// RB-04
#[test]
fn everything_is_owned_by_the_clusters_own_objects_and_by_uid() {
    let cluster = cluster(json!({"version": "3.6.16"}));
    let member = plain();
    assert!(is_controlled_by(&headless_service(&cluster, None).unwrap().metadata, "cluster-uid"));
    assert!(is_controlled_by(&client_service(&cluster, None).unwrap().metadata, "cluster-uid"));
    assert!(is_controlled_by(&disruption_budget(&cluster, 2, None).unwrap().metadata, "cluster-uid"));
    assert!(is_controlled_by(&member.metadata, "cluster-uid"));
    assert!(is_controlled_by(&build_pod(&member).metadata, "member-uid"));
    assert!(is_controlled_by(&pvc(&member).unwrap().metadata, "member-uid"));
}

#[test]
fn an_owner_that_was_never_stored_owns_nothing() {
    let mut member = plain();
    member.metadata.uid = None;
    assert!(matches!(pvc(&member), Err(BuildError::NotStored { field: "metadata.uid", .. })));
}

#[test]
fn resource_claims_alone_do_not_drop_the_default_requests() {
    let requests = |resources: Value| {
        let member = build_member(json!({"version": "3.6.16", "resources": resources}), true);
        json!(build_pod(&member).spec.unwrap().containers[0].resources)
    };
    let defaults = json!({"cpu": "100m", "memory": "128Mi"});
    assert_eq!(requests(json!({}))["requests"], defaults);
    let claims = requests(json!({"claims": [{"name": "nic"}]}));
    assert_eq!((&claims["requests"], &claims["claims"]), (&defaults, &json!([{"name": "nic"}])));
    assert_eq!(requests(json!({"requests": {"cpu": "1"}}))["requests"], json!({"cpu": "1"}));
    assert_eq!(requests(json!({"limits": {"memory": "1Gi"}}))["requests"], Value::Null);
}

#[test]
fn the_storage_class_is_passed_on_as_it_was_written() {
    let class = |storage: Value| {
        let member = build_member(json!({"version": "3.6.16", "storage": storage}), true);
        pvc(&member).unwrap().spec.unwrap().storage_class_name
    };
    assert_eq!(class(json!({})), None);
    assert_eq!(class(json!({"storageClassName": ""})), Some(String::new()));
}

#[test]
fn the_longest_cluster_name_fits_every_object() {
    let mut cluster = cluster(json!({"version": "3.6.16"}));
    let name = "a".repeat(etcd_operator_api::names::MAX_CLUSTER_NAME);
    cluster.metadata.name = Some(name.clone());
    let target = ObservedClusterSpec::from(&cluster.spec);
    let new = NewMember { name: &format!("{name}-x7k2p"), seed: true };
    let mut member = member(&cluster, &target, new).unwrap();
    member.metadata.uid = Some("u".into());
    let names = [
        client_service(&cluster, None).unwrap().metadata.name,
        build_pod(&member).spec.unwrap().hostname,
        build_pod(&member).spec.unwrap().subdomain,
    ];
    for name in names {
        assert!(name.as_ref().unwrap().len() <= 63, "{name:?}");
    }
    for value in build_pod(&member).metadata.labels.unwrap().values() {
        assert!(value.len() <= 63, "a label's value: {value}");
    }
    cluster.metadata.name = Some(format!("{name}a"));
    let new = NewMember { name: &format!("{name}a-x7k2p"), seed: true };
    assert!(matches!(super::member(&cluster, &target, new), Err(BuildError::Name(_))));
}

#[test]
fn a_member_name_that_was_not_made_for_this_cluster_is_refused() {
    let cluster = cluster(json!({"version": "3.6.16"}));
    let target = ObservedClusterSpec::from(&cluster.spec);
    for name in ["other-x7k2p", "db", "db-", "db-abc", "db-x7k2p-0", "db-aeiou"] {
        assert!(member(&cluster, &target, NewMember { name, seed: false }).is_err(), "{name}");
    }
}

#[test]
fn only_a_seed_knows_its_initial_cluster() {
    assert_eq!(plain().spec.initial_cluster, "db-x7k2p=http://db-x7k2p.db.tenant.svc:2380");
    let joiner = build_member(json!({"version": "3.6.16"}), false);
    assert_eq!(joiner.spec.initial_cluster, "");
    assert!(!joiner.spec.bootstrap);
}

// MG-06
#[test]
fn reserved_annotations_that_are_not_safe_are_not_used() {
    let data_dir = |subpath: &str| {
        let mut member = plain();
        let annotations = member.metadata.annotations.get_or_insert_default();
        annotations.insert(labels::DATA_DIR_SUBPATH.into(), subpath.into());
        args(&build_pod(&member)).into_iter().find(|a| a.starts_with("--data-dir")).unwrap()
    };
    assert_eq!(data_dir("default.etcd"), "--data-dir=/var/lib/etcd/default.etcd");
    for bad in ["", "..", "a/b", "/etc", "$(JOIN_CLUSTER)"] {
        assert_eq!(data_dir(bad), "--data-dir=/var/lib/etcd", "{bad:?}");
    }
    for bad in ["", "a.b", "-a", "A", "a/b"] {
        let mut member = plain();
        let annotations = member.metadata.annotations.get_or_insert_default();
        annotations.insert(labels::HEADLESS_SERVICE_NAME.into(), bad.into());
        assert_eq!(peer_url(&member), "http://db-x7k2p.db.tenant.svc:2380", "{bad:?}");
    }
}

#[test]
fn the_join_instruction_survives_the_way_through_the_annotations() {
    for instruction in [
        JoinInstruction::New { initial_cluster: "a=b".into() },
        JoinInstruction::Existing { initial_cluster: "a=b,c=d".into() },
    ] {
        let pod = pod(&plain(), &PodSettings::default(), &instruction).unwrap();
        assert_eq!(super::pod::read_instruction(pod.metadata.annotations.as_ref()), Some(instruction));
    }
    assert_eq!(super::pod::read_instruction(None), None);
    let damaged = [(labels::INITIAL_CLUSTER, "a=b"), (labels::INITIAL_CLUSTER_STATE, "old")];
    let damaged = damaged.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
    assert_eq!(super::pod::read_instruction(Some(&damaged)), None);
}

/// The member after this part of a spec of version 3.6.17 on 2Gi, with another label and other options, has reached it.
fn after(part: Part) -> (EtcdMember, EtcdMember) {
    let metadata = |team: &str| json!({"labels": {"team": team, labels::CLUSTER: "junk"}, "annotations": {"note": team}});
    let mut more = metadata("a");
    more["labels"]["tier"] = json!("1");
    more["annotations"]["others"] = json!("once");
    let old = json!({"version": "3.6.16", "additionalMetadata": more});
    let new = json!({"version": "3.6.17", "storage": {"size": "2Gi"}, "options": {"snapshotCount": 7},
        "additionalMetadata": metadata("b")});
    let mut member = build_member(old, false);
    member.metadata.labels.get_or_insert_default().insert("others".into(), "kept".into());
    member.spec.initial_cluster = "db-x7k2p=url".into();
    member.spec.dormant = true;
    let target = ObservedClusterSpec::from(&cluster(new).spec);
    (updated(&member, &target, part), member)
}

#[test]
fn each_part_of_a_spec_reaches_a_member_by_itself() {
    let (sized, before) = after(Part::Size);
    assert_eq!(sized.spec.storage.size.0, "2Gi");
    assert_eq!(EtcdMember { spec: before.spec.clone(), ..sized.clone() }, before);
    let (labelled, _) = after(Part::Metadata);
    let (has, notes) = (labelled.metadata.labels.unwrap(), labelled.metadata.annotations.unwrap());
    assert_eq!((has["team"].as_str(), has["others"].as_str(), notes["note"].as_str()), ("b", "kept", "b"));
    assert_eq!(has[labels::CLUSTER], "db", "ours win");
    assert_eq!((has.get("tier"), notes.get("others")), (None, None), "the spec has them no more");
    assert_eq!(labelled.spec.version, "3.6.16");
    let (renewed, before) = after(Part::Pod);
    assert_eq!((renewed.spec.version.as_str(), renewed.spec.options.is_some()), ("3.6.17", true));
    assert_eq!(renewed.spec.storage, before.spec.storage);
    assert_eq!(renewed.spec.additional_metadata, before.spec.additional_metadata);
    assert_eq!((renewed.spec.initial_cluster.as_str(), renewed.spec.dormant), ("db-x7k2p=url", true));
    assert_eq!(renewed.spec.cluster_token, before.spec.cluster_token);
}
