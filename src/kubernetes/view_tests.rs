//! What stored objects look like to decisions, with the words that real kubelets and schedulers use.

use etcd_operator_core::ids::{ClusterId, MemberId};
use serde_json::{Value, json};

use super::*;

fn cluster_object(extra: Value) -> EtcdCluster {
    let mut object = json!({"apiVersion": "etcd-operator.cozystack.io/v1alpha2", "kind": "EtcdCluster",
        "metadata": {"namespace": "ns", "name": "db", "uid": "u"}, "spec": {"version": "3.6.16"}});
    crate::patch::apply(&mut object, &extra);
    serde_json::from_value(object).unwrap()
}

fn member_object(extra: Value) -> EtcdMember {
    let mut object = json!({"apiVersion": "etcd-operator.cozystack.io/v1alpha2", "kind": "EtcdMember",
        "metadata": {"namespace": "ns", "name": "db-x7k2p", "uid": "member-uid"},
        "spec": {"clusterName": "db", "version": "3.6.16", "storage": {}, "initialCluster": "",
            "clusterToken": "t"}});
    crate::patch::apply(&mut object, &extra);
    serde_json::from_value(object).unwrap()
}

fn pod_object(extra: Value) -> Pod {
    let mut object = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "ns", "name": "db-x7k2p", "uid": "pod-uid",
            "labels": labels::for_member("db", "db-x7k2p"),
            "ownerReferences": [{"apiVersion": "x", "kind": "EtcdMember", "name": "db-x7k2p",
                "uid": "member-uid", "controller": true}]},
        "spec": {"containers": [{"name": "etcd", "image": "registry/etcd:v3.6.16"}]}});
    crate::patch::apply(&mut object, &extra);
    serde_json::from_value(object).unwrap()
}

fn seen(extra: Value) -> PodView {
    pod(&pod_object(extra), &member_object(json!({})))
}

fn container(state: Value, last: Value, started: bool) -> Value {
    json!({"status": {"phase": "Running", "containerStatuses": [{"name": "etcd", "image": "i", "imageID": "i",
        "ready": false, "started": started, "restartCount": 3, "state": state, "lastState": last}]}})
}

#[test]
fn a_new_cluster_has_recorded_nothing() {
    let view = cluster(&cluster_object(json!({})));
    assert_eq!(view.recorded, ClusterRecord::default());
    assert_eq!((view.replicas, view.progress_deadline_seconds), (3, 600));
    assert_eq!(view.refused, []);
    assert!(!view.paused && !view.deleting);
}

#[test]
fn the_recorded_target_equals_the_spec_that_it_was_taken_from() {
    let spec = json!({"spec": {"replicas": 5, "storage": {"size": "10Gi"},
        "affinity": {"podAntiAffinity": {}}, "options": {"snapshotCount": 5}, "additionalMetadata": {}}});
    let mut object = cluster_object(spec);
    let mut status = object.status_or_default();
    status.observed = Some(ObservedClusterSpec::from(&object.spec));
    // Through the wire, as the next look gets it.
    object.status = serde_json::from_value(serde_json::to_value(status).unwrap()).unwrap();
    let view = cluster(&object);
    let target = view.recorded.target.unwrap();
    assert_eq!((target.replicas, target.template), (view.replicas, view.template));
}

#[test]
fn the_number_of_members_is_no_part_of_the_template_and_everything_else_is() {
    let template_of = |spec: Value| cluster(&cluster_object(json!({ "spec": spec }))).template;
    let plain = template_of(json!({}));
    assert_eq!(template_of(json!({"replicas": 5})), plain);
    for spec in [
        json!({"version": "3.6.17"}),
        json!({"storage": {"size": "2Gi"}}),
        json!({"resources": {"requests": {"cpu": "1"}}}),
        json!({"affinity": {"nodeAffinity": {}}}),
        json!({"additionalMetadata": {"labels": {"a": "b"}}}),
        json!({"options": {"snapshotCount": 7}}),
        json!({"options": {"logLevel": "warn"}}),
        json!({"imagePullSecrets": [{"name": "s"}]}),
        json!({"priorityClassName": "p"}),
        json!({"tolerations": [{"operator": "Exists"}]}),
        json!({"nodeSelector": {"a": "b"}}),
        json!({"topologySpreadConstraints":
            [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]}),
    ] {
        assert_ne!(template_of(spec.clone()), plain, "{spec}");
    }
}

#[test]
fn what_is_not_built_yet_and_what_can_never_work_are_told_apart() {
    let refused = |extra: Value| cluster(&cluster_object(extra)).refused;
    let not_yet = refused(json!({"spec": {"tls": {}}}));
    assert!(not_yet.iter().all(|r| r.not_yet) && !not_yet.is_empty(), "{not_yet:?}");
    let never = refused(json!({"spec": {"version": "9.9.9"}}));
    assert!(never.iter().all(|r| !r.not_yet) && !never.is_empty(), "{never:?}");
}

#[test]
fn a_damaged_cluster_id_stops_everything_instead_of_looking_like_a_new_cluster() {
    for damaged in ["", "xyz", "12345678901234567"] {
        let view = cluster(&cluster_object(json!({"status": {"clusterID": damaged}})));
        assert_eq!(view.recorded.cluster_id, None);
        assert_eq!(view.refused.first().map(|r| r.field.as_str()), Some("status.clusterID"), "{damaged:?}");
    }
    let view = cluster(&cluster_object(json!({"status": {"clusterID": "fffffffffffffffe"}})));
    assert_eq!(view.recorded.cluster_id, Some(ClusterId(0xffff_ffff_ffff_fffe)));
    assert_eq!(view.refused, []);
}

#[test]
fn only_true_pauses() {
    for (value, paused) in [("true", true), ("false", false), ("", false), ("True", false)] {
        let annotations = json!({ labels::RECONCILE_PAUSED: value });
        let view = cluster(&cluster_object(json!({"metadata": {"annotations": annotations}})));
        assert_eq!(view.paused, paused, "{value:?}");
    }
}

// MQ-03
#[test]
fn a_member_is_seen_with_its_record_and_its_address() {
    let view = member(&member_object(json!({
        "metadata": {"finalizers": [labels::MEMBER_FINALIZER], "creationTimestamp": "2026-01-01T00:00:01Z"},
        "spec": {"bootstrap": true, "initialCluster": "a=b"},
        "status": {"memberID": "fffffffffffffffe", "isVoter": true, "pvcUID": "p", "podUID": "q",
            "conditions": [{"type": "Ready", "status": "True", "reason": "r", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    })));
    assert_eq!(view.peer_url.as_str(), "http://db-x7k2p.db.ns.svc:2380");
    assert_eq!(view.recorded.member_id, Some(MemberId(0xffff_ffff_ffff_fffe)));
    assert!(view.recorded.is_voter && view.recorded.ready && view.seed && view.finalizer);
    assert_eq!(view.created, Time(1_767_225_601_000));
    assert_eq!((view.stays(), view.recorded.pvc_uid), (true, Some("p".into())));
}

#[test]
fn a_pod_is_ours_by_the_uid_of_its_controller_and_by_nothing_else() {
    assert!(seen(json!({})).ours);
    let other = json!([{"apiVersion": "x", "kind": "EtcdMember", "name": "db-x7k2p", "uid": "former",
        "controller": true}]);
    assert!(!seen(json!({"metadata": {"ownerReferences": other}})).ours);
    assert!(!seen(json!({"metadata": {"ownerReferences": null}})).ours);
    let not_controller = json!([{"apiVersion": "x", "kind": "EtcdMember", "name": "db-x7k2p",
        "uid": "member-uid"}]);
    assert!(!seen(json!({"metadata": {"ownerReferences": not_controller}})).ours);
}

#[test]
fn a_stripped_label_is_seen_and_a_foreign_one_is_no_matter() {
    assert!(seen(json!({"metadata": {"labels": {"team": "a"}}})).labels_right);
    for key in [labels::MANAGED_BY, labels::CLUSTER, labels::COMPONENT] {
        assert!(!seen(json!({"metadata": {"labels": {key: null}}})).labels_right, "{key}");
        assert!(!seen(json!({"metadata": {"labels": {key: "junk"}}})).labels_right, "{key}");
    }
    assert!(seen(json!({"metadata": {"labels": {labels::ROLE: "voter"}}})).voter_label);
    assert!(!seen(json!({"metadata": {"labels": {labels::ROLE: "learner"}}})).voter_label);
}

#[test]
fn addresses_of_both_families_are_read() {
    for ip in ["10.1.2.3", "fd00::7"] {
        assert_eq!(seen(json!({"status": {"podIP": ip}})).ip, Some(ip.parse().unwrap()));
    }
    assert_eq!(seen(json!({"status": {"podIP": ""}})).ip, None);
}

#[test]
fn a_pod_that_ended_never_runs_again() {
    assert!(seen(json!({"status": {"phase": "Failed", "reason": "Evicted"}})).ended);
    assert!(seen(json!({"status": {"phase": "Succeeded"}})).ended);
    for phase in ["Pending", "Running", "Unknown"] {
        assert!(!seen(json!({"status": {"phase": phase}})).ended, "{phase}");
    }
}

#[test]
fn the_schedulers_words_reach_the_person() {
    let message = "0/3 nodes are available: 3 Insufficient cpu. preemption: 0/3 nodes are available.";
    let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": message});
    assert_eq!(
        seen(json!({"status": {"phase": "Pending", "conditions": [condition]}})).trouble,
        Some(PodTrouble::Unschedulable("0/3 nodes are available: 3 Insufficient cpu".into()))
    );
}

// MT-03
#[test]
fn a_pull_that_fails_reads_the_same_at_each_try() {
    let words = "registry/etcd:v3.6.16";
    let troubles = ["ErrImagePull", "ImagePullBackOff", "InvalidImageName"].map(|reason| {
        let message = format!("try number {reason} failed");
        seen(container(json!({"waiting": {"reason": reason, "message": message}}), json!({}), false)).trouble
    });
    for trouble in &troubles {
        assert_eq!(trouble, &troubles[0]);
        assert!(matches!(trouble, Some(PodTrouble::ImagePull(said)) if said.contains(words)), "{trouble:?}");
    }
}

// AP-08
#[test]
fn a_container_that_is_being_created_is_no_trouble() {
    let creating = json!({"waiting": {"reason": "ContainerCreating"}});
    assert_eq!(seen(container(creating, json!({}), false)).trouble, None);
    assert_eq!(seen(container(json!({"running": {}}), json!({}), false)).trouble, None);
    assert_eq!(seen(json!({"status": {"phase": "Pending"}})).trouble, None);
}

// MT-03
#[test]
fn a_crash_loop_is_one_trouble_from_its_first_end_to_its_first_start() {
    let line = r#"{"level":"info","ts":"2026-01-01T00:00:00Z","msg":"starting"}
{"level":"fatal","ts":"2026-01-01T00:00:01Z","msg":"discovery failed","error":"member count is unequal"}"#;
    let terminated = json!({"terminated": {"exitCode": 1, "reason": "Error", "message": line}});
    let back_off = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting"}});
    let running = json!({"running": {"startedAt": "2026-01-01T00:00:02Z"}});
    let expected = Some(PodTrouble::CrashLooping("discovery failed: member count is unequal".into()));
    assert_eq!(seen(container(terminated.clone(), json!({}), false)).trouble, expected);
    assert_eq!(seen(container(back_off, terminated.clone(), false)).trouble, expected);
    assert_eq!(seen(container(running.clone(), terminated.clone(), false)).trouble, expected);
    assert_eq!(seen(container(running, terminated, true)).trouble, None, "it is up");
}

fn words_of(message: &str) -> Option<PodTrouble> {
    let terminated = json!({"terminated": {"exitCode": 2, "reason": "Error", "message": message}});
    let back_off = json!({"waiting": {"reason": "CrashLoopBackOff"}});
    seen(container(back_off, terminated, false)).trouble
}

// LS-04: as the kubelet keeps them, the last 2048 bytes, of etcd 3.6.16.
#[test]
fn a_panic_is_heard_also_where_its_stack_has_pushed_out_the_log_line() {
    let cut = "t/v3.(*raft).Step\\n\\tgo.etcd.io/raft/v3@v3.6.0/raft.go:1257\"}
panic: tocommit(160) is out of range [lastIndex(158)]. Was the raft log corrupted, truncated, or lost?

goroutine 112 [running]:
go.uber.org/zap/zapcore.CheckWriteAction.OnWrite(0x0?, 0x2a28cf6721e0?, {0x0?, 0x0?, 0x2a28cf8b7420?})
\tgo.uber.org/zap@v1.27.0/zapcore/entry.go:196 +0x54
";
    let words =
        "tocommit(160) is out of range [lastIndex(158)]. Was the raft log corrupted, truncated, or lost?";
    assert_eq!(words_of(cut), Some(PodTrouble::CrashLooping(words.into())));
    let whole = r#"{"level":"panic","msg":"failed to open database","path":"/var/lib/etcd/member/snap/db","error":"invalid database"}
panic: failed to open database"#;
    let words = "failed to open database: invalid database";
    assert_eq!(words_of(whole), Some(PodTrouble::CrashLooping(words.into())));
    let unlogged = r#"{"level":"info","msg":"bootstrap successfully"}
panic: cannot use none as id"#;
    assert_eq!(words_of(unlogged), Some(PodTrouble::CrashLooping("cannot use none as id".into())));
}

// LS-05
#[test]
fn an_error_that_did_not_end_the_process_is_no_last_word() {
    let killed = r#"{"level":"error","msg":"failed to receive database snapshot from remote raft message","error":"unexpected EOF"}
{"level":"info","msg":"received signal; shutting down"}"#;
    let words = "its process ended; see its log";
    assert_eq!(words_of(killed), Some(PodTrouble::CrashLooping(words.into())));
}

#[test]
fn an_end_that_was_asked_for_is_no_trouble() {
    let done = json!({"terminated": {"exitCode": 0, "reason": "Completed"}});
    assert_eq!(seen(container(json!({"running": {}}), done, false)).trouble, None);
}

#[test]
fn memory_is_named_when_it_was_the_cause() {
    let killed = json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}});
    let back_off = json!({"waiting": {"reason": "CrashLoopBackOff"}});
    assert_eq!(seen(container(back_off, killed, false)).trouble, Some(PodTrouble::OutOfMemory));
}

// MT-03
#[test]
fn ids_that_change_at_each_try_stay_out_of_the_words() {
    let words = |id: &str| {
        let message = format!("failed to create containerd task for {id}: no such file");
        let waiting = json!({"waiting": {"reason": "CreateContainerError", "message": message}});
        seen(container(waiting, json!({}), false)).trouble
    };
    let first = words("0f3a9c1d22b44e55");
    assert_eq!(first, words("aa11bb22cc33dd44ee55ff66"));
    let expected = "failed to create containerd task for ...: no such file";
    assert_eq!(first, Some(PodTrouble::CannotStart(expected.into())));
}

#[test]
fn a_claim_is_ours_by_uid_and_may_be_on_its_way_out() {
    let claim = |extra: Value| {
        let mut object = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"namespace": "ns", "name": "data-db-x7k2p", "uid": "claim-uid",
                "ownerReferences": [{"apiVersion": "x", "kind": "EtcdMember", "name": "db-x7k2p",
                    "uid": "member-uid", "controller": true}]}});
        crate::patch::apply(&mut object, &extra);
        pvc(&serde_json::from_value(object).unwrap(), &member_object(json!({})))
    };
    let view = claim(json!({}));
    assert_eq!((view.uid.as_str(), view.ours, view.deleting), ("claim-uid", true, false));
    assert!(claim(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})).deleting);
    assert!(!claim(json!({"metadata": {"ownerReferences": null}})).ours);
    let labels = etcd_operator_api::labels::for_member("db", "db-x7k2p");
    assert!(!view.labels_right);
    assert!(claim(json!({"metadata": {"labels": labels}})).labels_right);
}

// The IDs that real etcd 3.6.16 servers reported for these peer URLs and tokens.
#[test]
fn the_cluster_that_a_member_founds_is_known_beforehand() {
    let formed = [
        ("grow3-ef62a-29a2-5", "db-hqxdc", "3769e5fd-42d1-447c-bf33-54b3c74749f5", 0x17a6_66b8_8a64_41df),
        ("mind-ef5bb-29a2-1", "db-g2lx9", "d7b8984e-d87f-4ef1-9858-d57763cf139d", 0x7a71_6e1e_6fe7_8950),
    ];
    for (namespace, name, uid, id) in formed {
        let seed = member_object(json!({
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"bootstrap": true, "clusterToken": format!("{namespace}-db-{uid}")},
        }));
        assert_eq!(member(&seed).founds, etcd_operator_core::ids::ClusterId(id), "{name}");
    }
}

#[test]
fn a_pods_zone_is_its_own_label_and_not_known_without_it() {
    assert_eq!(seen(json!({})).zone, None);
    let zone = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "x"}}});
    assert_eq!(seen(zone).zone.as_deref(), Some("x"));
}

#[test]
fn the_update_strategy_is_seen_and_no_part_of_what_members_are_made_from() {
    let of = |spec: Value| cluster(&cluster_object(json!({ "spec": spec })));
    let (plain, by_hand) = (of(json!({})), of(json!({"updateStrategy": {"type": "OnDelete"}})));
    assert!(plain.rolls && !by_hand.rolls);
    assert_eq!(plain.template, by_hand.template);
}

// LS-07
#[test]
fn a_memory_limit_below_the_data_in_memory_is_a_warning_and_no_refusal_of_its_own() {
    let of = |limit: &str| {
        let spec = json!({"storage": {"medium": "Memory", "size": "256Mi"},
            "resources": {"limits": {"memory": limit}}});
        cluster(&cluster_object(json!({ "spec": spec })))
    };
    let (small, large) = (of("128Mi"), of("1Gi"));
    assert_eq!(small.warnings.iter().map(|w| w.reason).collect::<Vec<_>>(), [Reason::MemoryLimitTooSmall]);
    assert_eq!(large.warnings, []);
    assert_eq!(small.refused, large.refused);
}

#[test]
fn a_spec_without_the_newer_fields_has_the_template_that_it_always_had() {
    let spec = json!({"version": "3.6.16", "options": {"snapshotCount": 5}});
    let view = cluster(&cluster_object(json!({ "spec": spec })));
    assert_eq!(
        view.template,
        r#"{"replicas":0,"version":"3.6.16","storage":{"size":"1Gi","medium":""},"options":{"snapshotCount":5}}"#
    );
}

// VC-08
#[test]
fn a_pod_with_a_label_that_the_spec_has_no_more_is_not_right_and_one_without_a_note_gets_one() {
    let owner = |extra: Value| member_object(json!({"spec": {"additionalMetadata": extra}}));
    let right = |object: Value, extra: Value| pod(&pod_object(object), &owner(extra)).labels_right;
    let team = json!({"labels": {"team": "a"}});
    let note = json!({"labels": ["team"], "annotations": []}).to_string();
    let noted =
        json!({"metadata": {"labels": {"team": "a"}, "annotations": {labels::ADDITIONAL_METADATA: note}}});
    assert!(right(noted.clone(), team.clone()));
    assert!(!right(noted, json!({})));
    let unnoted = json!({"metadata": {"labels": {"team": "a"}}});
    assert!(!right(unnoted.clone(), team));
    assert!(right(unnoted, json!({})), "somebody else's");
}

// UP-03: the last 2048 bytes of etcd 3.7.3 on the log of 3.5.35 that 3.6.16 had made no snapshot of.
#[test]
fn an_etcd_that_cannot_read_an_entry_of_another_version_is_known_by_its_stack() {
    let text = "}, {0x331b2d6c6980, 0x2, 0x2})\n\tgo.uber.org/zap@v1.27.1/logger.go:285 +0x4b\npanic({0xf38860?, 0x331b2d5c03b0?})\n\truntime/panic.go:860 +0x13a\ngo.etcd.io/etcd/pkg/v3/pbutil.MustUnmarshalMessage({0x11dab20?, 0x331b2d6e6640?})\n\tgo.etcd.io/etcd/pkg/v3@v3.7.3/pbutil/pbutil.go:63 +0x94\ngo.etcd.io/etcd/server/v3/etcdserver/apply.Apply(0x331b2d844580, 0x0)\n\tgo.etcd.io/etcd/server/v3@v3.7.3/etcdserver/apply/apply.go:29 +0x8c";
    let words = last_words(Some(text));
    assert!(words.contains("set version back"), "{words}");
    let cause = etcd_operator_core::last_words::cause(&words);
    assert_eq!(cause, etcd_operator_core::last_words::Cause::Configuration);
    let other = text.replace("etcdserver/apply.Apply(", "storage/wal.ReadAll(");
    assert_eq!(last_words(Some(&other)), "its process ended; see its log");
}
