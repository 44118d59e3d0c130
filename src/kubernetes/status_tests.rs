//! What is written of a report, and that the same report again is no write.

use etcd_operator_api::EtcdClusterSpec;
use etcd_operator_core::{
    ids::ClusterId,
    view::{ClusterRecord, MemberRecord, Presence, Target, ThrownOut},
};
use serde_json::json;

use super::*;
use crate::{patch, view};

fn object() -> EtcdCluster {
    let mut object = EtcdCluster::new("db", EtcdClusterSpec::new("3.6.16"));
    object.metadata.namespace = Some("ns".into());
    object.metadata.uid = Some("u".into());
    object.metadata.generation = Some(4);
    object
}

fn target_of(object: &EtcdCluster) -> Target {
    let view = view::cluster(object);
    Target { replicas: view.replicas, template: view.template, blueprint: view.blueprint }
}

fn said(verdict: Verdict, reason: CoreReason, message: &str) -> Condition {
    Condition { verdict, reason, message: message.into() }
}

fn report(object: &EtcdCluster) -> Report {
    Report {
        record: ClusterRecord {
            cluster_id: Some(ClusterId(0xab)),
            target: Some(target_of(object)),
            progress_deadline: Some(Time(1_767_225_601_999)),
            drift: Some(Drift::Rolled),
            ..ClusterRecord::default()
        },
        ready_members: Some(2),
        broken_members: 1,
        leader: Some("db-x7k2p".into()),
        db_size: Some(1_000),
        available: said(Verdict::True, CoreReason::QuorumAvailable, "2 of 3 voters serve"),
        progressing: said(Verdict::True, CoreReason::SpecChanged, "a member is joining"),
        degraded: said(Verdict::True, CoreReason::MembersUnhealthy, "not serving: db-x7k2p"),
        spec_warnings: None,
        disruptions: Some(said(Verdict::True, CoreReason::BudgetLeavesQuorum, "a quorum is left")),
    }
}

#[test]
fn every_reason_of_core_has_a_namesake_in_the_api() {
    for core in CoreReason::ALL {
        assert_eq!(core.as_str().parse::<Reason>().map(Reason::as_str), Ok(core.as_str()), "{core}");
    }
}

#[test]
fn the_size_of_the_database_is_written_with_other_news_or_when_it_has_moved_by_a_quarter() {
    let mut object = object();
    let mut report = report(&object);
    object.status = Some(cluster(&object, &report, Time(0)));
    for (bytes, told) in [(1_200, 1_000), (1_251, 1_251), (1_000, 1_251), (900, 900)] {
        report.db_size = Some(bytes);
        let status = cluster(&object, &report, Time(0));
        assert_eq!(status.db_size_bytes, Some(told), "{bytes}");
        object.status = Some(status);
    }
    report.db_size = Some(901);
    report.leader = Some("db-other".into());
    let status = cluster(&object, &report, Time(0));
    assert_eq!((status.db_size_bytes, status.leader.as_deref()), (Some(901), Some("db-other")));
}

// MT-03
#[test]
fn the_same_report_again_is_nothing_to_write_however_much_later() {
    let mut object = object();
    let report = report(&object);
    object.status = Some(cluster(&object, &report, Time(1_767_225_600_123)));
    // Through the wire, as the next look gets it.
    object.status = serde_json::from_value(json!(object.status)).unwrap();
    for hour in 1..48 {
        let again = cluster(&object, &report, Time(1_767_225_600_123 + hour * 3_600_000));
        assert_eq!(patch::diff_of(object.status.as_ref(), &again).unwrap(), None, "after {hour} hours");
    }
}

#[test]
fn a_first_report_records_what_later_decisions_rely_on() {
    let mut object = object();
    let report = report(&object);
    object.status = Some(cluster(&object, &report, Time(1_767_225_600_000)));
    let status = object.status.as_ref().unwrap();
    assert_eq!(status.cluster_id.as_deref(), Some("00000000000000ab"));
    assert_eq!(status.cluster_token.as_deref(), Some("ns-db-u"));
    assert_eq!((status.ready_members, status.broken_members), (2, 1));
    assert!(status.conditions.iter().all(|c| c.observed_generation == Some(4)));
    assert_eq!(status.conditions.len(), 4);
    let back = view::cluster(&object).recorded;
    assert_eq!(back.cluster_id, report.record.cluster_id);
    assert_eq!(back.target, report.record.target);
}

#[test]
fn a_spec_that_is_not_taken_up_does_not_become_the_target() {
    let mut object = object();
    object.status = Some(cluster(&object, &report(&object), Time(0)));
    let taken_up = target_of(&object);
    // Paused or refused: the report's target stays the old one while the spec is another.
    let mut stopped = report(&object);
    stopped.record.target = Some(taken_up.clone());
    object.spec.version = "9.9.9".into();
    object.spec.replicas = 7;
    object.status = Some(cluster(&object, &stopped, Time(0)));
    assert_eq!(view::cluster(&object).recorded.target, Some(taken_up));
}

#[test]
fn the_cluster_id_is_never_taken_away_again() {
    let mut object = object();
    object.status = Some(cluster(&object, &report(&object), Time(0)));
    let mut forgetful = report(&object);
    forgetful.record.cluster_id = None;
    let status = cluster(&object, &forgetful, Time(0));
    assert_eq!(status.cluster_id.as_deref(), Some("00000000000000ab"));
}

// MT-02
#[test]
fn what_is_not_known_yet_neither_replaces_what_was_nor_claims_anything() {
    let mut object = object();
    let mut unknown = report(&object);
    unknown.available = said(Verdict::Unknown, CoreReason::NotKnownYet, "not looked at yet");
    unknown.ready_members = None;
    let first = cluster(&object, &unknown, Time(0));
    let available = conditions::find(&first.conditions, conditions::AVAILABLE).unwrap();
    assert_eq!(available.status, "Unknown");

    object.status = Some(cluster(&object, &report(&object), Time(0)));
    let later = cluster(&object, &unknown, Time(99_000));
    assert!(conditions::is_true(&later.conditions, conditions::AVAILABLE));
    assert_eq!(later.ready_members, 2);
}

#[test]
fn conditions_and_fields_of_others_stay() {
    let mut object = object();
    let mut status = object.status_or_default();
    status.auth_enabled = true;
    conditions::upsert(
        &mut status.conditions,
        "example.com/Blessed",
        Status::True,
        Reason::Reconciled,
        "",
        None,
        &timestamp(Time(0)),
    );
    object.status = Some(status);
    let after = cluster(&object, &report(&object), Time(0));
    assert!(after.auth_enabled && conditions::is_true(&after.conditions, "example.com/Blessed"));
}

fn member_object() -> EtcdMember {
    serde_json::from_value(json!({"apiVersion": "etcd-operator.cozystack.io/v1alpha2", "kind": "EtcdMember",
        "metadata": {"namespace": "ns", "name": "db-x7k2p", "uid": "member-uid", "generation": 2},
        "spec": {"clusterName": "db", "version": "3.6.16", "storage": {}, "initialCluster": "",
            "clusterToken": "t"}}))
    .unwrap()
}

fn facts(object: &EtcdMember, recorded: MemberRecord) -> MemberFacts {
    let mut member = view::member(object);
    member.recorded = recorded;
    MemberFacts {
        member,
        pod: Presence::Unknown,
        pvc: Presence::Unknown,
        look: Look::Unknown { since: Time(0) },
        stalled: false,
        refused: None,
        cannot_grow: None,
        thrown_out: ThrownOut::default(),
        stranded: None,
    }
}

fn full_record() -> MemberRecord {
    MemberRecord {
        version: None,
        member_id: Some(etcd_operator_core::ids::MemberId(0xcd)),
        is_voter: true,
        ready: true,
        pvc_uid: Some("p".into()),
        pod_uid: Some("q".into()),
    }
}

#[test]
fn a_members_record_comes_back_as_it_was_written() {
    let mut object = member_object();
    let record = full_record();
    object.status = Some(member(&object, &facts(&object, record.clone()), None, Time(5_000)));
    assert_eq!(view::member(&object).recorded, record);
    let status = object.status.as_ref().unwrap();
    assert_eq!(status.pvc_name.as_deref(), Some("data-db-x7k2p"));
    assert_eq!((status.pod_name.as_deref(), status.replicas), (Some("db-x7k2p"), 1));
    let again = member(&object, &facts(&object, record), None, Time(500_000));
    assert_eq!(patch::diff_of(object.status.as_ref(), &again).unwrap(), None);
}

#[test]
fn a_member_that_is_not_a_serving_voter_is_not_ready_and_says_why() {
    let object = member_object();
    let record = MemberRecord { ready: false, ..full_record() };
    let trouble = Some((CoreReason::PodCrashLooping, "Pod db-x7k2p: no space".to_owned()));
    let status = member(&object, &facts(&object, record), trouble, Time(0));
    let ready = conditions::find(&status.conditions, conditions::READY).unwrap();
    assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "PodCrashLooping"));
    let learner = MemberRecord { ready: false, is_voter: false, ..full_record() };
    let status = member(&object, &facts(&object, learner), None, Time(0));
    assert!(!conditions::is_true(&status.conditions, conditions::READY));
}

// MT-07
#[test]
fn the_version_that_a_member_runs_is_told_and_kept_while_it_does_not_answer() {
    let mut object = member_object();
    let answered = |version: &str| {
        let status = etcd_operator_core::etcd::MemberStatus {
            cluster_id: ClusterId(0xab),
            member_id: etcd_operator_core::ids::MemberId(0xcd),
            is_learner: false,
            leader: None,
            term: 2,
            raft_index: 9,
            applied_index: 9,
            db_size: 0,
            db_size_in_use: 0,
            version: Some(version.parse().unwrap()),
            errors: vec![],
        };
        Look::Answered { at: Time(0), status, linearizable: true }
    };
    let told = |object: &EtcdMember, look: Look| {
        let facts = MemberFacts { look, ..facts(object, full_record()) };
        let status = member(object, &facts, None, Time(0));
        let drifted = conditions::is_true(&status.conditions, conditions::VERSION_DRIFTED);
        let ready = conditions::is_true(&status.conditions, conditions::READY);
        (status.clone(), (status.version, drifted, ready))
    };
    let (status, seen) = told(&object, answered("3.6.14"));
    assert_eq!(seen, (Some("3.6.14".into()), true, true), "another version than wanted is no less ready");
    object.status = Some(status);
    let (_, seen) = told(&object, Look::Silent { at: Time(0) });
    assert_eq!(seen, (Some("3.6.14".into()), true, true));
    let (_, seen) = told(&object, answered("3.6.16"));
    assert_eq!(seen, (Some("3.6.16".into()), false, true));
}

// LS-07
#[test]
fn a_warning_of_the_spec_has_a_condition_of_its_own_only_while_it_holds() {
    let mut object = object();
    let calm = report(&object);
    let warned = Report {
        spec_warnings: Some(said(Verdict::True, CoreReason::MemoryLimitTooSmall, "raise the limit")),
        ..calm.clone()
    };
    let before = cluster(&object, &calm, Time(1_000));
    assert_eq!(conditions::find(&before.conditions, conditions::SPEC_WARNINGS), None);
    object.status = Some(before.clone());
    let told = cluster(&object, &warned, Time(2_000));
    let condition = conditions::find(&told.conditions, conditions::SPEC_WARNINGS).unwrap();
    assert_eq!(
        (condition.status.as_str(), condition.reason.as_str(), condition.message.as_str()),
        ("True", "MemoryLimitTooSmall", "raise the limit")
    );
    object.status = Some(told.clone());
    assert_eq!(cluster(&object, &warned, Time(3_000)), told, "nothing to write");
    assert_eq!(cluster(&object, &calm, Time(4_000)), before);
}
