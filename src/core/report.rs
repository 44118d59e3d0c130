//! Decides what an EtcdCluster's status says. Does no I/O.
//!
//! It is computed apart from what is done, so that it stays true whatever else the operator is busy
//! with or failing at. Messages name objects and counts, never addresses or times, so that an
//! unchanged situation yields an unchanged text and no write.

use crate::{
    cluster::{ClusterAction, ClusterDecision, decide, hands_off, outdated_seed},
    disruption,
    etcd::Look,
    ids::MemberName,
    pause::{self, is_paused},
    reason::Reason,
    recovery, roll,
    time::Time,
    trouble::{alarm, trouble},
    upgrade,
    view::{
        BudgetState, ClusterRecord, ClusterSituation, Drift, MemberFacts, Presence, ServiceKind,
        ServiceState, Target,
    },
};

/// A condition's verdict: true, false, or not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// Nobody can tell yet; what was reported before stays.
    Unknown,
}

/// One condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Whether it holds.
    pub verdict: Verdict,
    /// Why.
    pub reason: Reason,
    /// A sentence for a person.
    pub message: String,
}

/// What the status says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// What later decisions rely on.
    pub record: ClusterRecord,
    /// Voters that serve linearizable reads; none while not every voter has been looked at.
    pub ready_members: Option<usize>,
    /// Members that are known not to run.
    pub broken_members: usize,
    /// The member that leads; none while nobody says so.
    pub leader: Option<MemberName>,
    /// Bytes of the leader's database file.
    pub db_size: Option<u64>,
    /// A quorum serves clients.
    pub available: Condition,
    /// Something is on its way and within its deadline.
    pub progressing: Condition,
    /// It delivers less than intended.
    pub degraded: Condition,
    /// The spec asks for what may do harm; none while it does not. It says nothing of how the cluster is.
    pub spec_warnings: Option<Condition>,
    /// Voters can be evicted; none before there is a cluster.
    pub disruptions: Option<Condition>,
}

/// Voters that serve, if every voter has been looked at.
pub(crate) fn ready(s: &ClusterSituation) -> Option<usize> {
    s.members.iter().filter(|m| s.is_voter(m)).all(|m| known(s, m)).then(|| s.serving())
}

fn condition(verdict: Verdict, reason: Reason, message: impl Into<String>) -> Condition {
    Condition { verdict, reason, message: message.into() }
}

/// What the status says about this situation.
pub fn report(s: &ClusterSituation) -> Report {
    let stop = match hands_off(s) {
        Some(ClusterDecision::HandsOff { reason, facts }) => Some((reason, facts)),
        _ => None,
    };
    let record = record(s, stop.is_some());
    Report {
        ready_members: ready(s),
        broken_members: s.members.iter().filter(|m| broken(s, m)).count(),
        leader: leader(s).map(|m| m.member.name.clone()),
        db_size: leader(s).and_then(|m| m.look.status()).map(|status| status.db_size),
        available: available(s, &record, stop.as_ref()),
        progressing: progressing(s, &record, stop.as_ref()),
        degraded: degraded(s, stop.as_ref()),
        spec_warnings: spec_warnings(s, &record),
        disruptions: disruption::condition(s, &record),
        record,
    }
}

/// The first warning gives the reason, and the message has all.
fn spec_warnings(s: &ClusterSituation, record: &ClusterRecord) -> Option<Condition> {
    let refused = record.refused_recovery.iter().map(|r| (Reason::RecoveryRefused, r.why.as_str()));
    let warnings = s.cluster.warnings.iter().map(|w| (w.reason, w.words.as_str()));
    let all: Vec<(Reason, &str)> = refused.chain(warnings).collect();
    let words: Vec<&str> = all.iter().map(|(_, words)| *words).collect();
    Some(condition(Verdict::True, all.first()?.0, words.join("; ")))
}

fn leader(s: &ClusterSituation) -> Option<&MemberFacts> {
    let id = s.leader()?;
    s.members.iter().find(|m| m.look.status().is_some_and(|status| status.member_id == id))
}

/// Whether the last look still says something: one at a learner that is a voter by now does not.
fn known(s: &ClusterSituation, m: &MemberFacts) -> bool {
    let outdated = s.is_voter(m) && m.look.status().is_some_and(|status| status.is_learner);
    (!matches!(m.look, Look::Unknown { .. }) && !outdated) || m.is_dead()
}

fn broken(s: &ClusterSituation, m: &MemberFacts) -> bool {
    let trouble = m.refused.is_some() || m.pod.present().is_some_and(|p| p.trouble.is_some());
    m.member.stays() && !m.member.dormant && (trouble || (s.is_voter(m) && m.is_dead() && !m.look.serves()))
}

/// The cluster ID is taken from the seed's own answer, once; the target follows the spec.
fn record(s: &ClusterSituation, stopped: bool) -> ClusterRecord {
    let mut record = s.cluster.recorded.clone();
    if stopped {
        return record;
    }
    let spec = Target {
        replicas: s.cluster.replicas,
        template: s.cluster.template.clone(),
        blueprint: s.cluster.blueprint.clone(),
    };
    // What was there when the cluster was taken over stays until the spec is edited.
    if record.drift.is_none() {
        let taken_over = record.target.is_some() && !roll::outdated(s).is_empty();
        record.drift = Some(if taken_over { Drift::Accepted } else { Drift::Rolled });
    }
    (record.recovery, record.refused_recovery) = recovery::records(s);
    let other = record.target.as_ref() != Some(&spec);
    if other && outdated_seed(s).is_none() && upgrade::refused(s).is_none() {
        if record.target.as_ref().is_some_and(|old| old.template != spec.template) {
            record.drift = Some(Drift::Rolled);
        }
        record.target = Some(spec);
        record.progress_deadline =
            Some(s.now + std::time::Duration::from_secs(s.cluster.progress_deadline_seconds));
    }
    if record.cluster_id.is_none() {
        record.cluster_id = formed_by_seed(s);
    }
    if matches!(decide(s), ClusterDecision::Settled) && s.cluster.recorded.target == record.target {
        record.progress_deadline = None;
    }
    record
}

/// The seed's answer counts when its volume is recorded, its Pod is the one that was asked, and it is the
/// cluster that this seed and no other forms.
fn formed_by_seed(s: &ClusterSituation) -> Option<crate::ids::ClusterId> {
    let seed = s.members.iter().find(|m| m.member.seed && m.member.stays())?;
    let pod = seed.pod.present().filter(|p| p.ours)?;
    let recorded = &seed.member.recorded;
    let holds_data = if seed.member.memory {
        recorded.pod_uid.as_ref() == Some(&pod.uid)
    } else {
        recorded.pvc_uid.is_some()
    };
    if !holds_data {
        return None;
    }
    let status = seed.look.status()?;
    let formed = !status.is_learner && status.leader == Some(status.member_id);
    (formed && status.cluster_id == seed.member.founds).then_some(status.cluster_id)
}

/// True only from the write that records the cluster ID: nobody may rely on a cluster that could not
/// be recognised again.
fn available(s: &ClusterSituation, record: &ClusterRecord, stop: Option<&(Reason, String)>) -> Condition {
    if is_paused(s) {
        return condition(Verdict::False, Reason::Paused, pause::words(s));
    }
    if record.cluster_id.is_none() {
        return match stop {
            Some((reason, facts)) => condition(Verdict::False, *reason, facts.clone()),
            None if past_deadline(s, record.progress_deadline) => {
                condition(Verdict::False, Reason::BootstrapFailed, seed_words(s))
            }
            None => condition(
                Verdict::False,
                Reason::WaitingForSeed,
                "the first member has not formed the cluster yet",
            ),
        };
    }
    if s.members.is_empty() {
        let words = "every EtcdMember of this cluster is gone, and their volumes with them; restore a snapshot into a new EtcdCluster";
        return condition(Verdict::False, Reason::AllMembersLost, words);
    }
    if let Some(r) = recovery::active(s) {
        return condition(Verdict::False, Reason::Recovering, recovery::words(s, r));
    }
    let voters: Vec<&MemberFacts> = s.members.iter().filter(|m| s.is_voter(m)).collect();
    let serving = s.serving();
    let wanted = s.wanted().unwrap_or(voters.len());
    if serving > 0 && serving == voters.len() && serving >= wanted {
        return condition(Verdict::True, Reason::QuorumHealthy, format!("all {serving} voters serve"));
    }
    if serving > 0 {
        let all = voters.len().max(wanted);
        return condition(Verdict::True, Reason::QuorumAvailable, format!("{serving} of {all} voters serve"));
    }
    if voters.iter().any(|m| !known(s, m)) || voters.is_empty() {
        return condition(Verdict::Unknown, Reason::NotKnownYet, "the members have not been looked at yet");
    }
    if voters.iter().any(|m| m.look.status().is_some()) {
        let words = "voters answer, but none is connected to a quorum; bring the others back, nothing is removed meanwhile";
        return condition(Verdict::False, Reason::QuorumLost, words);
    }
    condition(Verdict::False, Reason::ClusterUnreachable, "no member answers")
}

fn past_deadline(s: &ClusterSituation, deadline: Option<Time>) -> bool {
    deadline.is_some_and(|d| s.now >= d)
}

fn seed_words(s: &ClusterSituation) -> String {
    trouble(s).map_or_else(
        || "the first member did not form the cluster in time; see its Pod's events and log".into(),
        |(_, words)| format!("the first member did not form the cluster in time: {words}"),
    )
}

fn progressing(s: &ClusterSituation, record: &ClusterRecord, stop: Option<&(Reason, String)>) -> Condition {
    if let Some((reason, facts)) = stop {
        return condition(Verdict::False, *reason, facts.clone());
    }
    let changed = record.target != s.cluster.recorded.target;
    if is_paused(s) {
        return condition(Verdict::False, Reason::Paused, pause::words(s));
    }
    if record.cluster_id.is_none() {
        return if past_deadline(s, record.progress_deadline) {
            condition(Verdict::False, Reason::BootstrapFailed, seed_words(s))
        } else {
            let words = || "the first member is being started".to_owned();
            condition(
                Verdict::True,
                Reason::WaitingForSeed,
                trouble(s).map_or_else(words, |(_, words)| words),
            )
        };
    }
    if let Some(r) = recovery::active(s) {
        return condition(Verdict::True, Reason::Recovering, recovery::words(s, r));
    }
    if let Some((reason, words)) = upgrade::refused(s) {
        return condition(Verdict::False, reason, words);
    }
    let decision = if changed { ClusterDecision::Wait(Reason::InProgress) } else { decide(s) };
    match decision {
        ClusterDecision::Settled => condition(Verdict::False, Reason::Reconciled, settled_words(s)),
        ClusterDecision::Wait(Reason::AllMembersLost) | ClusterDecision::Act(ClusterAction::DeleteBudget)
            if s.members.is_empty() =>
        {
            condition(Verdict::False, Reason::AllMembersLost, "nothing is left to work with")
        }
        // It follows from what was reported already, and is over with the next look.
        ClusterDecision::Act(ClusterAction::PutBudget { .. } | ClusterAction::DeleteBudget)
            if record.progress_deadline.is_none() =>
        {
            condition(Verdict::Unknown, Reason::InProgress, "the disruption budget is being put right")
        }
        // Right after a start nobody has been looked at, and what was said before may well be true.
        ClusterDecision::Wait(Reason::MembersUnhealthy)
            if record.progress_deadline.is_none() && ready(s).is_none() =>
        {
            condition(Verdict::Unknown, Reason::NotKnownYet, "the members have not been looked at yet")
        }
        // Without a deadline the target was reached before: what fell ill since is Degraded's to tell.
        ClusterDecision::Wait(Reason::MembersUnhealthy) if record.progress_deadline.is_none() => condition(
            Verdict::False,
            Reason::Reconciled,
            "the members are as the spec says; not all of them serve",
        ),
        ClusterDecision::Wait(Reason::RollingUpdate) if !past_deadline(s, record.progress_deadline) => {
            condition(Verdict::True, Reason::RollingUpdate, doing(s))
        }
        _ if past_deadline(s, record.progress_deadline) => {
            let words = format!("the target was not reached in time; the efforts go on: {}", doing(s));
            condition(Verdict::False, Reason::DeadlineExceeded, words)
        }
        ClusterDecision::Wait(reason @ (Reason::MemberJoining | Reason::MemberLeaving))
            if record.progress_deadline.is_none() =>
        {
            condition(Verdict::True, reason, doing(s))
        }
        _ => condition(Verdict::True, Reason::SpecChanged, doing(s)),
    }
}

/// What is to be said when nothing is to be done.
fn settled_words(s: &ClusterSituation) -> String {
    let outdated: Vec<&str> = roll::outdated(s).iter().map(|m| m.member.name.as_str()).collect();
    if outdated.is_empty() {
        return "everything is as the spec says".into();
    }
    format!(
        "these members were made from another spec when the cluster was taken over, and follow its next edit: {}",
        outdated.join(" ")
    )
}

/// What keeps the target from being reached, or how near it is. It changes together with the number
/// of ready members, so that one write says both.
fn doing(s: &ClusterSituation) -> String {
    if let Some((_, words)) = trouble(s) {
        return words;
    }
    if let Some(m) = s.restarting() {
        return format!("member {} is being restarted, so that the changed spec reaches it", m.member.name);
    }
    let wanted = s.cluster.replicas;
    match s.serving() {
        1 => format!("1 voter serves, {wanted} wanted"),
        serving => format!("{serving} voters serve, {wanted} wanted"),
    }
}

/// Whether the deletion of every voter was asked for, one by one or all at once: nobody who wants the cluster
/// does that, and only the replacements keep it alive.
fn nobody_stays(s: &ClusterSituation) -> bool {
    let mut voters = s.members.iter().filter(|m| s.is_voter(m)).peekable();
    s.cluster.recorded.cluster_id.is_some() && voters.peek().is_some() && voters.all(|m| !m.member.stays())
}

/// The volumes stay with their members, unless somebody deletes them too: Kubernetes itself does so for
/// `--cascade=foreground`.
fn nobody_stays_words(s: &ClusterSituation) -> String {
    let doomed = |m: &&MemberFacts| match &m.pvc {
        Presence::Absent => true,
        Presence::Present(pvc) => pvc.deleting,
        Presence::Unknown => false,
    };
    let voters = s.members.iter().filter(|m| s.is_voter(m));
    let lost: Vec<String> = voters.filter(doomed).map(|m| format!("data-{}", m.member.name)).collect();
    let told = "the EtcdMember of every voter is to be deleted; each stays until a replacement votes";
    if lost.is_empty() {
        format!("{told}, and so does its volume. Delete the EtcdCluster if the cluster is to go")
    } else {
        format!("{told}, but these PVCs were deleted with their data: {}", lost.join(" "))
    }
}

fn degraded(s: &ClusterSituation, stop: Option<&(Reason, String)>) -> Condition {
    if let Some((reason, facts)) = stop
        && *reason != Reason::ReconcilePaused
    {
        return condition(Verdict::True, *reason, facts.clone());
    }
    if let Some(fault) = &s.fault {
        return condition(Verdict::True, Reason::OperatorFault, fault.clone());
    }
    if let Some(words) = &s.refused {
        return condition(Verdict::True, Reason::ObjectRefused, words.clone());
    }
    for (kind, state) in &s.services {
        if *state == ServiceState::Foreign {
            let suffix = if *kind == ServiceKind::Client { "-client" } else { "" };
            let words = format!(
                "Service {}{suffix} exists and is not ours; it is left alone, delete or rename it",
                s.cluster.name
            );
            return condition(Verdict::True, Reason::ForeignObject, words);
        }
    }
    if s.budget == BudgetState::Foreign {
        let words = format!(
            "PodDisruptionBudget {} exists and is not ours; it is left alone, and evictions are not held back by us. Delete or rename it",
            s.cluster.name
        );
        return condition(Verdict::True, Reason::ForeignObject, words);
    }
    if let Some(r) = recovery::active(s) {
        return condition(Verdict::True, Reason::Recovering, recovery::words(s, r));
    }
    if nobody_stays(s) {
        return condition(Verdict::True, Reason::LastMemberKept, nobody_stays_words(s));
    }
    if let Some((reason, words)) = trouble(s) {
        return condition(Verdict::True, reason, words);
    }
    if is_paused(s) {
        return condition(Verdict::False, Reason::Paused, pause::words(s));
    }
    if let Some((reason, words)) = alarm(s) {
        return condition(Verdict::True, reason, words);
    }
    if s.cluster.recorded.cluster_id.is_some() {
        let voters: Vec<&MemberFacts> = s.members.iter().filter(|m| s.is_voter(m)).collect();
        let down: Vec<&str> = voters
            .iter()
            .filter(|m| known(s, m) && !m.look.serves())
            .map(|m| m.member.name.as_str())
            .collect();
        if s.members.is_empty() {
            return condition(Verdict::True, Reason::AllMembersLost, "every EtcdMember is gone");
        }
        if !down.is_empty() && down.len() == voters.len() {
            return condition(Verdict::True, Reason::QuorumLost, "no voter serves");
        }
        if !down.is_empty() {
            return condition(
                Verdict::True,
                Reason::MembersUnhealthy,
                format!("not serving: {}", down.join(" ")),
            );
        }
        if voters.iter().any(|m| !known(s, m)) {
            return condition(
                Verdict::Unknown,
                Reason::NotKnownYet,
                "the members have not been looked at yet",
            );
        }
    }
    condition(Verdict::False, Reason::Reconciled, "every member that exists is as it should be")
}
