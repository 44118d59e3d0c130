//! Decides how a cluster that has lost its quorum for good comes back from one member that a person names. Does no
//! I/O.
//!
//! The named survivor starts once with `--force-new-cluster`, which makes it the only member of a cluster with the
//! same ID. What it had not committed is lost, and whatever the others still hold. So nobody but a person asks for it,
//! each request acts at most once, and before the flag is given every other member is fenced: its Pod is gone, none is
//! made, and its EtcdMember is on its way out. Two halves with one cluster ID could not be told apart afterwards. The
//! others' volumes stay until the survivor serves.

use std::time::Duration;

use crate::{
    cluster::{ClusterDecision, delete},
    etcd::MemberStatus,
    healing::dead_end,
    ids::MemberName,
    member::{MemberAction, MemberDecision, instruction, record, wait},
    reason::Reason,
    report::ready,
    time::{Time, timeouts},
    version::EtcdVersion,
    view::{ClusterRecord, ClusterSituation, ListFact, MemberFacts, MemberSituation, Presence},
    volume::{is_volume_doomed, volume},
};

/// The first 3.5 whose `--force-new-cluster` drops learners too (etcd 3.5.25).
pub const SAFE_3_5: EtcdVersion = EtcdVersion::new(3, 5, 25);
/// The same of 3.6 (etcd 3.6.6); 3.7 came after it.
pub const SAFE_3_6: EtcdVersion = EtcdVersion::new(3, 6, 6);

/// The longest request that is taken up: a member's name and a few words. It is kept in the status.
pub const LONGEST_REQUEST: usize = 200;

/// For so long at least the others are fenced before the flag is given. A create of a Pod that was sent before anybody
/// knew of the recovery, by a former life of the operator, has landed by then and is seen, or never will: the status
/// that says so takes one call to be written, the create another.
pub const FENCING: Duration = timeouts::API_CALL.saturating_mul(2);

/// For so long nobody joins the survivor once it serves. The create of its recovery Pod may still be on its way from a
/// former life, and that Pod's etcd would drop whoever has joined.
pub const ALONE: Duration = timeouts::API_CALL;

/// In a request: go on although another member may have more.
const FORCE: &str = "force";

/// A recovery that was taken up.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Recovery {
    /// The request as it was made. The same text never acts again.
    pub request: String,
    /// The member whose data the cluster goes on with.
    pub survivor: MemberName,
    /// How far it is.
    pub phase: Phase,
    /// The Raft term and the last committed index of the survivor when the request was taken up; none if it did not
    /// answer.
    pub reached: Option<(u64, u64)>,
    /// The members that were fenced.
    pub others: Vec<MemberName>,
    /// When it was taken up, by the operator's clock.
    pub begun: Time,
    /// When it ended, by the operator's clock.
    pub ended: Option<Time>,
}

impl Recovery {
    /// Whether it has neither ended nor been taken back.
    pub fn is_under_way(&self) -> bool {
        matches!(self.phase, Phase::Fencing | Phase::Rewriting | Phase::Returning)
    }
}

/// How far a recovery is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// The others' Pods are ended. Until they are gone it can be taken back.
    Fencing,
    /// The request is used up. The others' EtcdMembers are on their way out, and the survivor runs once with the flag,
    /// reachable by nobody.
    Rewriting,
    /// The flag has done its work. The survivor starts as any member does.
    Returning,
    /// The survivor serves alone; from here the cluster grows as it always does.
    Recovered,
    /// It was taken back, or the quorum returned, before anything had been changed.
    Cancelled,
}

/// A request that was refused. It stays on record as long as it stands, so that it is not taken up later, in another
/// situation than the one in which it was made.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RefusedRequest {
    /// The request as it was made.
    pub request: String,
    /// A sentence that says why, and what to do.
    pub why: String,
}

/// What a member does while its cluster is being recovered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Its Pod goes, and none is made; its volume stays.
    Fenced,
    /// It is the survivor: it runs once with the flag.
    Rewrites,
}

/// The recovery that is under way, if one is.
pub fn active(s: &ClusterSituation) -> Option<&Recovery> {
    s.cluster.recorded.recovery.as_ref().filter(|r| r.is_under_way())
}

fn others<'a>(s: &'a ClusterSituation, r: &Recovery) -> impl Iterator<Item = &'a MemberFacts> {
    let survivor = r.survivor.clone();
    s.members.iter().filter(move |m| m.member.name != survivor)
}

fn survivor<'a>(s: &'a ClusterSituation, r: &Recovery) -> Option<&'a MemberFacts> {
    s.members.iter().find(|m| m.member.name == r.survivor)
}

/// What this member does while its cluster is being recovered; none if it lives as always.
pub fn role(s: &ClusterSituation, name: &MemberName) -> Option<Role> {
    let r = active(s)?;
    if r.survivor != *name {
        return Some(Role::Fenced);
    }
    let begun = survivor(s, r).and_then(|m| m.pod.present()).is_some_and(|pod| pod.rewrites);
    let fenced = others(s, r).all(|m| !m.member.stays() && matches!(m.pod, Presence::Absent));
    (r.phase == Phase::Rewriting && (begun || fenced)).then_some(Role::Rewrites)
}

/// The part of a recovery that concerns the set of members: the others are on their way out before the flag is given.
pub(crate) fn decide(s: &ClusterSituation) -> Option<ClusterDecision> {
    // A clock that was set back must not hold the cluster for as long as it is behind.
    let recent = |ended: Time| ended <= s.now && s.now.since(ended) < ALONE;
    let over = |r: &Recovery| r.phase == Phase::Recovered && r.ended.is_some_and(recent);
    if s.cluster.recorded.recovery.as_ref().is_some_and(over) {
        return Some(ClusterDecision::Wait(Reason::InProgress));
    }
    let r = active(s)?;
    let staying = others(s, r).find(|m| m.member.stays());
    Some(match staying {
        Some(m) if r.phase == Phase::Rewriting => delete(m, Reason::Recovering),
        _ => ClusterDecision::Wait(Reason::Recovering),
    })
}

/// What a member with this role does next.
pub(crate) fn member(s: &MemberSituation, role: Role) -> MemberDecision {
    if let Some(action) = record(s, s.facts.pod.present()) {
        return MemberDecision::Act(action);
    }
    match &s.facts.pod {
        Presence::Unknown => wait(Reason::NotKnownYet),
        Presence::Present(pod) if !pod.ours => wait(Reason::ForeignObject),
        Presence::Present(pod) if pod.deleting => wait(Reason::PodTerminating),
        Presence::Present(pod) if role == Role::Rewrites && pod.rewrites && !pod.ended => {
            wait(Reason::Recovering)
        }
        Presence::Present(pod) => {
            MemberDecision::Act(MemberAction::DeletePod { pod_uid: pod.uid.clone(), why: Reason::Recovering })
        }
        Presence::Absent if role == Role::Fenced => wait(Reason::Recovering),
        Presence::Absent if s.now < s.facts.thrown_out.until => {
            MemberDecision::Wait { reason: Reason::PodEnded, again: s.facts.thrown_out.until.since(s.now) }
        }
        Presence::Absent => match (volume(s), instruction(&s.facts.member, true)) {
            (Ok(Some(pvc)), Some(instruction)) => {
                MemberDecision::Act(MemberAction::CreateRecoveryPod { instruction, pvc_uid: pvc.uid.clone() })
            }
            (Ok(_), _) => wait(Reason::MemoryLost),
            (Err(decision), _) => decision,
        },
    }
}

/// What the next status records of recoveries: the one that was taken up last, and the request that is refused.
pub(crate) fn records(s: &ClusterSituation) -> (Option<Recovery>, Option<RefusedRequest>) {
    let old = &s.cluster.recorded;
    let Some(request) = s.cluster.recover_from.as_ref() else {
        return (old.recovery.clone().map(|r| advance(s, cancelled(s, r))), None);
    };
    let refused = old.refused_recovery.clone().filter(|refused| refused.request == *request);
    let used_up = old.recovery.as_ref().is_some_and(|r| r.request == *request);
    if used_up || refused.is_some() {
        return (old.recovery.clone().map(|r| advance(s, r)), refused);
    }
    match judge(s, request) {
        Judgement::TakenUp(recovery) => (Some(recovery), None),
        Judgement::Refused(why) => {
            let recovery = old.recovery.clone().map(|r| advance(s, cancelled(s, r)));
            (recovery, Some(RefusedRequest { request: request.clone(), why }))
        }
        Judgement::NotYet => (old.recovery.clone().map(|r| advance(s, r)), None),
    }
}

/// The request no longer stands. Once the flag may have been given there is no way back.
fn cancelled(s: &ClusterSituation, mut r: Recovery) -> Recovery {
    if r.phase == Phase::Fencing {
        r.phase = Phase::Cancelled;
        r.ended = Some(s.now);
    }
    r
}

fn advance(s: &ClusterSituation, mut r: Recovery) -> Recovery {
    match r.phase {
        // The quorum has come back before anybody was stopped for good.
        Phase::Fencing if s.serving() > 0 => return cancelled(s, r),
        Phase::Fencing if s.now.since(r.begun) < FENCING => {}
        Phase::Fencing if others(s, &r).all(|m| matches!(m.pod, Presence::Absent)) => {
            r.phase = Phase::Rewriting;
        }
        // It serves a linearizable read, which as a quorum of one it does only after the flag's work.
        Phase::Rewriting => {
            let pod = survivor(s, &r).and_then(|m| m.pod.present());
            if pod.is_some_and(|pod| pod.ours && pod.rewrites && pod.ready) {
                r.phase = Phase::Returning;
            }
        }
        Phase::Returning if serves_alone(s, &r) => {
            r.phase = Phase::Recovered;
            r.ended = Some(s.now);
        }
        Phase::Fencing | Phase::Returning | Phase::Recovered | Phase::Cancelled => {}
    }
    r
}

/// etcd itself lists nobody but the survivor, which serves.
fn serves_alone(s: &ClusterSituation, r: &Recovery) -> bool {
    let ListFact::Known { list, .. } = &s.list else { return false };
    let alone = |m: &MemberFacts| list.members.iter().all(|l| l.is_at(&m.member.peer_url));
    list.members.len() == 1 && survivor(s, r).is_some_and(|m| m.look.serves() && alone(m))
}

/// What becomes of a request.
enum Judgement {
    TakenUp(Recovery),
    /// For good: a sentence that says why.
    Refused(String),
    /// Something has not been looked at yet.
    NotYet,
}

fn judge(s: &ClusterSituation, request: &str) -> Judgement {
    let mut words = request.split_whitespace();
    let name = words.next().unwrap_or_default();
    let forced = words.any(|word| word == FORCE);
    let refuse = |why: String| Judgement::Refused(why);
    if name.is_empty() || request.len() > LONGEST_REQUEST {
        return refuse(format!(
            "recover-from must begin with the name of an EtcdMember and have at most {LONGEST_REQUEST} characters"
        ));
    }
    if s.cluster.recorded.cluster_id.is_none() {
        return refuse("recover-from: the cluster has not formed, so there is nothing to recover".into());
    }
    let voters: Vec<&MemberFacts> = s.members.iter().filter(|m| s.is_voter(m)).collect();
    let Some(m) = s.members.iter().find(|m| m.member.name.as_str() == name) else {
        let all: Vec<&str> = voters.iter().map(|m| m.member.name.as_str()).collect();
        return refuse(format!("recover-from: there is no member {name}; the voters are: {}", all.join(" ")));
    };
    // Not by who is known to vote: a promotion may have been the last thing that the quorum did.
    let alone = s.members.iter().filter(|m| s.is_listed(m)).count() < 2;
    if let Some(why) = unfit(s, m).or_else(|| alone.then(|| only_member(m))) {
        return refuse(format!("recover-from: {why}"));
    }
    if s.serving() > 0 {
        return refuse(
            "recover-from: the voters hold a quorum, so there is nothing to recover. If they lose it later, ask again in other words, as after the name of the member".into(),
        );
    }
    if ready(s).is_none() {
        return Judgement::NotYet;
    }
    if let Some(why) = better(s, m).filter(|_| !forced) {
        return refuse(format!(
            "recover-from: {why}. To go on from {name} all the same, write {FORCE} after its name"
        ));
    }
    let mut others: Vec<MemberName> = s.members.iter().map(|m| m.member.name.clone()).collect();
    others.retain(|other| *other != m.member.name);
    Judgement::TakenUp(Recovery {
        request: request.to_owned(),
        survivor: m.member.name.clone(),
        phase: Phase::Fencing,
        reached: m.look.status().map(reached),
        others,
        begun: s.now,
        ended: None,
    })
}

fn only_member(m: &MemberFacts) -> String {
    format!("{} is the only member, so nobody's vote is missing; see its Pod", m.member.name)
}

/// Why the cluster cannot go on with this member's data, whatever the others have.
fn unfit(s: &ClusterSituation, m: &MemberFacts) -> Option<String> {
    let name = &m.member.name;
    if m.member.memory {
        return Some(format!(
            "{name} keeps its data in its Pod's memory, which no other Pod can take over; restore a snapshot into a new EtcdCluster"
        ));
    }
    if m.member.dormant {
        return Some(format!("{name} is paused; set replicas to resume it"));
    }
    if m.member.recorded.member_id.is_none() || !s.is_voter(m) {
        return Some(format!("{name} is no voter, so it may lack what was acknowledged; name a voter"));
    }
    let damaged = matches!(dead_end(m), Some(Reason::DataDirectoryEmpty | Reason::DataDamaged));
    if damaged || is_volume_doomed(&m.pvc, &m.member.recorded) {
        return Some(format!("the data of {name} is lost; name another voter"));
    }
    let safe = m.member.blueprint.version.is_some_and(|version| match version.minor {
        ..=5 => version >= SAFE_3_5,
        _ => version >= SAFE_3_6,
    });
    (!safe).then(|| {
        format!(
            "before etcd {SAFE_3_5} and {SAFE_3_6} --force-new-cluster keeps learners of the lost members; set version to a later patch, which members that do not run take up at once"
        )
    })
}

fn reached(status: &MemberStatus) -> (u64, u64) {
    (status.term, status.raft_index)
}

/// Why another member may have more than this one, or a quorum may stand that the operator cannot reach.
fn better(s: &ClusterSituation, m: &MemberFacts) -> Option<String> {
    let name = &m.member.name;
    let rest = || s.members.iter().filter(|other| other.member.name != *name);
    // The kubelet asks for a linearizable read, and it may reach what we do not.
    if let Some(other) = rest().find(|o| o.pod.present().is_some_and(|pod| pod.ours && pod.ready)) {
        return Some(format!(
            "Pod {} is Ready, so its node sees it serve a quorum that the operator may not reach",
            other.member.name
        ));
    }
    let Some(mine) = m.look.status().map(reached) else {
        return Some(format!("{name} does not answer, so nobody can tell how much it has"));
    };
    let best =
        rest().filter_map(|o| Some((reached(o.look.status()?), o))).max_by_key(|(reached, _)| *reached);
    let (theirs, other) = best.filter(|(theirs, _)| *theirs > mine)?;
    Some(format!(
        "{name} has committed up to term {}, index {}, and {} up to term {}, index {}; name {}",
        mine.0, mine.1, other.member.name, theirs.0, theirs.1, other.member.name
    ))
}

/// What is being done, for a person; none if no recovery is under way.
pub(crate) fn words(s: &ClusterSituation, r: &Recovery) -> String {
    let name = &r.survivor;
    match r.phase {
        Phase::Fencing => {
            let there: Vec<&str> = others(s, r)
                .filter(|m| !matches!(m.pod, Presence::Absent))
                .map(|m| m.member.name.as_str())
                .collect();
            format!(
                "recovery from member {name}: waits until these Pods are gone: {}. If the node of one does not come back, see to it that the machine is off and delete its Node",
                there.join(" ")
            )
        }
        Phase::Rewriting => {
            let trouble = survivor(s, r).and_then(|m| m.pod.present()?.trouble.as_ref());
            let trouble = trouble.map(|t| format!(". Pod {name}: {}", t.words())).unwrap_or_default();
            format!(
                "recovery from member {name}: it starts once with --force-new-cluster, reachable by nobody{trouble}"
            )
        }
        Phase::Returning => {
            format!("recovery from member {name}: it is the only member now and starts again")
        }
        Phase::Recovered => {
            let reached = r.reached.map(|(term, index)| format!(", term {term}, index {index}"));
            format!(
                "the cluster goes on with the data of member {name}{}; let go with their volumes: {}",
                reached.unwrap_or_default(),
                r.others.iter().map(MemberName::as_str).collect::<Vec<_>>().join(" ")
            )
        }
        Phase::Cancelled => format!("recovery from member {name} was taken back before anything was changed"),
    }
}

/// The reason under which a phase is told.
fn reason(phase: Phase) -> Reason {
    match phase {
        Phase::Fencing | Phase::Rewriting | Phase::Returning => Reason::Recovering,
        Phase::Recovered => Reason::Recovered,
        Phase::Cancelled => Reason::RecoveryCancelled,
    }
}

/// The step that a person is told when `said` follows on what was recorded; none if there was none.
pub fn step(s: &ClusterSituation, said: &ClusterRecord) -> Option<(Reason, String)> {
    let r = said.recovery.as_ref()?;
    let before = s.cluster.recorded.recovery.as_ref();
    let same = before.is_some_and(|b| b.request == r.request && b.phase == r.phase);
    (!same).then(|| (reason(r.phase), words(s, r)))
}
