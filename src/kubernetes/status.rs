//! Translates reports into statuses, and core's reasons into the API's. Pure. A status that says the
//! same again comes out equal, so that nothing is written.

use etcd_operator_api::{
    DriftMode, EtcdCluster, EtcdClusterStatus, EtcdMember, EtcdMemberStatus, ObservedClusterSpec, Reason,
    conditions::{self, Status},
    labels, names,
};
use etcd_operator_core::{
    etcd::Look,
    reason::Reason as CoreReason,
    report::{Condition, Report, Verdict},
    time::Time,
    view::{Drift, MemberFacts, Target},
};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1, jiff::Timestamp};
use kube::ResourceExt;

use crate::{recovery, view};

/// The API's reason of the same name.
pub fn reason(reason: CoreReason) -> Reason {
    // A test proves that every core reason has a namesake; this is for the compiler.
    reason.as_str().parse().unwrap_or(Reason::OperatorFault)
}

pub(crate) fn timestamp(time: Time) -> v1::Time {
    let millis = i64::try_from(time.0).unwrap_or(i64::MAX);
    // Whole seconds, as the API server stores them: a finer value would differ after each read.
    v1::Time(Timestamp::from_second(millis / 1000).unwrap_or(Timestamp::MAX))
}

/// The cluster's status after this report.
pub fn cluster(object: &EtcdCluster, report: &Report, now: Time) -> EtcdClusterStatus {
    let mut status = object.status_or_default();
    let name = object.name_any();
    if let Some(ready) = report.ready_members {
        status.ready_members = i32::try_from(ready).unwrap_or(i32::MAX);
    }
    status.broken_members = i32::try_from(report.broken_members).unwrap_or(i32::MAX);
    status.selector = Some(labels::as_text(&labels::voter_selector(&name)));
    // Not every voter has been looked at otherwise, and what was said may well be true.
    if report.ready_members.is_some() {
        status.leader = report.leader.as_ref().map(ToString::to_string);
    }
    if let Some(id) = report.record.cluster_id {
        status.cluster_id = Some(id.to_string());
    }
    // Paused or refused, the target stays what it was; only a target that is this very spec is taken up.
    let spec = ObservedClusterSpec::from(&object.spec);
    let wanted = Target {
        replicas: usize::try_from(spec.replicas).unwrap_or_default(),
        template: view::template(&spec),
        blueprint: view::blueprint(&spec),
    };
    if report.record.target.as_ref() == Some(&wanted) {
        status.observed = Some(spec);
        if status.cluster_token.is_none() {
            let namespace = object.namespace().unwrap_or_default();
            let uid = object.uid().unwrap_or_default();
            status.cluster_token = Some(names::cluster_token(&namespace, &name, &uid));
        }
    }
    status.drift = report.record.drift.map(|drift| match drift {
        Drift::Accepted => DriftMode::Accepted,
        Drift::Rolled => DriftMode::Rolled,
    });
    status.recovery = report.record.recovery.as_ref().map(recovery::status);
    status.refused_recovery = report.record.refused_recovery.as_ref().map(recovery::refused_status);
    status.progress_deadline = report.record.progress_deadline.map(timestamp);
    let generation = object.metadata.generation;
    for (kind, condition) in [
        (conditions::AVAILABLE, &report.available),
        (conditions::PROGRESSING, &report.progressing),
        (conditions::DEGRADED, &report.degraded),
    ]
    .into_iter()
    .chain(report.disruptions.as_ref().map(|c| (conditions::DISRUPTIONS_ALLOWED, c)))
    {
        // What is not known yet does not replace what was.
        if condition.verdict == Verdict::Unknown && conditions::find(&status.conditions, kind).is_some() {
            continue;
        }
        set(&mut status.conditions, kind, condition, generation, now);
    }
    match &report.spec_warnings {
        Some(warnings) => {
            set(&mut status.conditions, conditions::SPEC_WARNINGS, warnings, generation, now);
        }
        None => {
            conditions::remove(&mut status.conditions, conditions::SPEC_WARNINGS);
        }
    }
    status.db_size_bytes = db_size(object, &status, report.db_size);
    status
}

/// The size of the database is worth no write of its own until it has changed by a quarter.
fn db_size(object: &EtcdCluster, status: &EtcdClusterStatus, now: Option<u64>) -> Option<i64> {
    let before = object.status.as_ref().and_then(|status| status.db_size_bytes);
    let Some(now) = now.and_then(|bytes| i64::try_from(bytes).ok()) else { return before };
    let Some(before) = before else { return Some(now) };
    let moved = now.abs_diff(before) > before.unsigned_abs() / 4;
    let else_changed = object.status.as_ref() != Some(status);
    Some(if moved || else_changed { now } else { before })
}

fn set(
    all: &mut Vec<v1::Condition>,
    kind: &str,
    condition: &Condition,
    generation: Option<i64>,
    now: Time,
) -> bool {
    let status = match condition.verdict {
        Verdict::True => Status::True,
        Verdict::False => Status::False,
        Verdict::Unknown => Status::Unknown,
    };
    let reason = reason(condition.reason);
    conditions::upsert(all, kind, status, reason, condition.message.clone(), generation, &timestamp(now))
}

/// The same status with each condition's observedGeneration as it was, if that is all that differs:
/// the operator's own writes to a member's spec are no news about it.
fn unless_only_the_generation(
    before: Option<&EtcdMemberStatus>,
    mut after: EtcdMemberStatus,
) -> EtcdMemberStatus {
    let Some(before) = before else { return after };
    let blank = |status: &EtcdMemberStatus| {
        let mut status = status.clone();
        for condition in &mut status.conditions {
            condition.observed_generation = None;
        }
        status
    };
    if blank(before) == blank(&after) {
        after = before.clone();
    }
    after
}

/// The member's status: its record, what its process last said, and what troubles it.
pub fn member(
    object: &EtcdMember,
    facts: &MemberFacts,
    trouble: Option<(CoreReason, String)>,
    now: Time,
) -> EtcdMemberStatus {
    let mut status = object.status.clone().unwrap_or_default();
    let record = &facts.member.recorded;
    let name = object.name_any();
    status.member_id = record.member_id.map(|id| id.to_string());
    status.is_voter = record.is_voter;
    status.pvc_uid = record.pvc_uid.as_ref().map(ToString::to_string);
    status.pvc_name = record.pvc_uid.as_ref().map(|_| names::pvc(&name));
    status.pod_uid = record.pod_uid.as_ref().map(ToString::to_string);
    status.pod_name = record.pod_uid.as_ref().map(|_| name.clone());
    status.replicas = i32::from(record.pod_uid.is_some());
    status.selector = Some(labels::as_text(&labels::member_selector(&object.spec.cluster_name, &name)));
    if let Look::Answered { status: said, .. } = &facts.look
        && let Some(version) = said.version
        && record.member_id == Some(said.member_id)
    {
        status.version = Some(version.to_string());
    }
    let generation = object.metadata.generation;
    let at = timestamp(now);
    if let Some(version) = record.version {
        status.version = Some(version.to_string());
    }
    let joined = record.member_id.is_some();
    let (joined_reason, joined_words) = match (joined, record.is_voter) {
        (true, true) => (Reason::MemberJoined, "it is a voter"),
        (true, false) => (Reason::MemberIsLearner, "it is a learner"),
        (false, _) => (Reason::NotJoined, "its process has not answered as a member yet"),
    };
    let all = &mut status.conditions;
    conditions::upsert(
        all,
        conditions::JOINED,
        (joined && record.is_voter).into(),
        joined_reason,
        joined_words,
        generation,
        &at,
    );
    let (ready_reason, ready_words) = match (record.ready, trouble) {
        (true, _) => (Reason::MemberServing, "it is a voter and serves linearizable reads".to_owned()),
        (false, Some((why, words))) => (reason(why), words),
        (false, None) if !(joined && record.is_voter) => {
            (Reason::NotJoined, "it is not a voter yet".to_owned())
        }
        (false, None) => (Reason::MemberNotServing, "it does not serve linearizable reads".to_owned()),
    };
    conditions::upsert(
        all,
        conditions::READY,
        record.ready.into(),
        ready_reason,
        ready_words,
        generation,
        &at,
    );
    let drifted = status.version.as_ref().is_some_and(|running| *running != object.spec.version);
    if status.version.is_some() {
        let (why, words) = if drifted {
            (
                Reason::VersionDiffers,
                format!("it does not run {}, which its spec asks for", object.spec.version),
            )
        } else {
            (Reason::VersionMatches, "it runs the version that its spec asks for".to_owned())
        };
        conditions::upsert(
            &mut status.conditions,
            conditions::VERSION_DRIFTED,
            drifted.into(),
            why,
            words,
            generation,
            &at,
        );
    }
    unless_only_the_generation(object.status.as_ref(), status)
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
