//! Judges whether one membership change is safe now. Does no I/O.
//!
//! The judge sees a member list that was read linearizably in the same turn, the looks taken in
//! that turn, and what is still in doubt from before. It is a chain of checks, each named after
//! what it finds wrong; the first that finds something answers. etcd's own checks stay on behind
//! it (strict reconfiguration check, one learner): this is the first line, etcd the second.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    etcd::{ListedMember, Look, MemberList, quorum},
    ids::{ClusterId, MemberId, PeerUrl, Uid},
    reason::Reason,
    time::{Time, timeouts},
};

/// A membership change that somebody asks for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Change {
    /// Add a learner at this peer URL.
    Add {
        /// Where.
        peer_url: PeerUrl,
    },
    /// Make the learner at this peer URL a voter.
    Promote {
        /// Which.
        peer_url: PeerUrl,
    },
    /// Remove the member at this peer URL.
    Remove {
        /// Which.
        peer_url: PeerUrl,
        /// Its recorded member ID, if it ever had one. Another ID at this URL is another member.
        id: Option<MemberId>,
    },
    /// Restart the member at this peer URL by ending its Pod. No change of membership, and as dangerous: it is judged
    /// in the same queue.
    Restart {
        /// Which.
        peer_url: PeerUrl,
        /// The Pod that is to go.
        pod_uid: Uid,
    },
}

impl Change {
    /// The peer URL that it concerns.
    pub fn peer_url(&self) -> &PeerUrl {
        match self {
            Change::Add { peer_url }
            | Change::Promote { peer_url }
            | Change::Remove { peer_url, .. }
            | Change::Restart { peer_url, .. } => peer_url,
        }
    }
}

/// A call whose outcome is open. It may still be applied until [`timeouts::DOUBT`] has passed.
///
/// A later success of the same change does not end it: the first sending may land after that, and
/// bring back a member that was added, and removed since. Only time ends it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Doubt {
    /// The change, if it was ours; none for what a former life of the operator may have sent.
    pub change: Option<Change>,
    /// When it can no longer be applied.
    pub until: Time,
}

impl Doubt {
    /// A call of ours that got no clear answer at `now`.
    pub fn about(change: Change, now: Time) -> Self {
        Self { change: Some(change), until: now + timeouts::DOUBT }
    }

    /// What a former life may have sent right before `now`.
    pub fn former_life(now: Time) -> Self {
        Self { change: None, until: now + timeouts::DOUBT }
    }
}

/// What one turn of the guard looks at.
#[derive(Debug, Clone)]
pub struct Evidence<'a> {
    /// The time at which the turn began, before the list was asked for. Not the time of the judgement:
    /// a doubt may end while the turn looks around, and the list would be from before its end.
    pub now: Time,
    /// The cluster ID on record.
    pub cluster_id: Option<ClusterId>,
    /// The list, read linearizably in this turn.
    pub list: &'a MemberList,
    /// Looks taken in this turn, by member ID. A member that is missing here was not looked at.
    pub looks: &'a BTreeMap<MemberId, Look>,
    /// For a promotion: a second look at the learner, taken at least [`STEADY`] after the first.
    pub second_look: Option<&'a Look>,
    /// The volume of the member that the change is about is gone or on its way out (see
    /// [`crate::volume::is_volume_doomed`]), or the Pod is that has its data in memory.
    pub doomed: bool,
    /// The voter whose restart was granted and whose Pod is still there: it may end at any moment, and counts as not
    /// serving.
    pub restarting: Option<MemberId>,
    /// What is still open from before.
    pub doubt: Option<&'a Doubt>,
}

/// How far apart the two looks at a learner must be: a process that is about to fall over
/// answers once. (design figure; etcd itself would promote a learner that is dead.)
pub const STEADY: Duration = Duration::from_secs(1);

/// How many entries a learner may be behind when it is promoted. etcd asks for 90 % of the leader's
/// index, which in an old cluster is satisfied thousands of entries behind; it keeps 5,000 entries
/// for followers to catch up with.
pub const CLOSE_ENOUGH: u64 = 1_000;

/// How soon to ask again where etcd's own 5 s rule or a read decides.
const SOON: Duration = Duration::from_millis(500);

/// What the judge says.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Do this, now, and nothing else.
    Allow(Call),
    /// The list shows it as done, and nothing is in flight that could undo it.
    AlreadyDone,
    /// Not now; it may become right by itself.
    Wait {
        /// What is waited for.
        reason: Reason,
        /// When to ask again.
        again: Duration,
    },
    /// Not unless something else changes first.
    Refuse(Reason),
}

/// One call to etcd.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Call {
    /// MemberAdd, as learner.
    Add(PeerUrl),
    /// MemberPromote.
    Promote(MemberId),
    /// MemberRemove.
    Remove(MemberId),
    /// MoveLeader, which must be sent to `from`.
    MoveLeader {
        /// The present leader.
        from: MemberId,
        /// A voter that serves.
        to: MemberId,
    },
    /// No call to etcd: the asker may end its member's Pod, now.
    Restart(MemberId),
}

fn wait(reason: Reason) -> Option<Verdict> {
    Some(Verdict::Wait { reason, again: SOON })
}

fn refuse(reason: Reason) -> Option<Verdict> {
    Some(Verdict::Refuse(reason))
}

impl Evidence<'_> {
    /// Whether the member itself serves. Whoever else answers at its address (addresses are used
    /// again) says nothing about it.
    fn serves(&self, member: &ListedMember) -> bool {
        let itself = |look: &&Look| {
            look.status().is_some_and(|s| s.member_id == member.id && s.cluster_id == self.list.cluster_id)
        };
        self.restarting != Some(member.id) && self.look(member.id).filter(itself).is_some_and(Look::serves)
    }

    fn look(&self, id: MemberId) -> Option<&Look> {
        self.looks.get(&id)
    }

    /// Voters that serve, leaving out `without`.
    fn serving(&self, without: Option<MemberId>) -> usize {
        self.list.voters().filter(|m| Some(m.id) != without && self.serves(m)).count()
    }

    /// The leader that most recently answering voters follow, if they agree on one that is listed.
    fn leader(&self) -> Option<MemberId> {
        let by_term = self.list.voters().filter_map(|m| self.look(m.id)?.status()).max_by_key(|s| s.term)?;
        by_term.leader.filter(|id| self.list.by_id(*id).is_some_and(|m| !m.is_learner))
    }
}

/// Whether `change` is safe now.
pub fn judge(change: &Change, evidence: &Evidence<'_>) -> Verdict {
    let chain: &[fn(&Change, &Evidence<'_>) -> Option<Verdict>] = match change {
        Change::Add { .. } => &[
            not_formed,
            foreign_cluster,
            in_doubt,
            added_already,
            learner_present,
            member_not_started,
            some_voter_not_serving,
            add,
        ],
        Change::Promote { .. } => &[
            not_formed,
            foreign_cluster,
            in_doubt,
            promoted_already,
            learner_doomed,
            learner_not_answering,
            learner_behind,
            quorum_of_more_not_serving,
            promote,
        ],
        Change::Remove { .. } => &[
            not_formed,
            foreign_cluster,
            in_doubt,
            removed_already,
            id_mismatch,
            last_voter,
            quorum_of_rest_not_serving,
            other_voter_not_serving,
            leader_leaves,
            remove,
        ],
        Change::Restart { .. } => &[
            not_formed,
            foreign_cluster,
            in_doubt,
            restart_not_listed,
            another_voter_not_serving,
            leader_leaves,
            restart,
        ],
    };
    // The last link of each chain always answers; a chain that does not is a chain that waits.
    chain
        .iter()
        .find_map(|check| check(change, evidence))
        .unwrap_or(Verdict::Wait { reason: Reason::NotKnownYet, again: SOON })
}

/// Without a recorded cluster ID there is no way to tell whose list this is.
fn not_formed(_: &Change, e: &Evidence<'_>) -> Option<Verdict> {
    if e.cluster_id.is_none() { wait(Reason::NotFormed) } else { None }
}

/// The list is another cluster's.
fn foreign_cluster(_: &Change, e: &Evidence<'_>) -> Option<Verdict> {
    if e.cluster_id != Some(e.list.cluster_id) { refuse(Reason::ForeignClusterID) } else { None }
}

/// A call is open. Only the same change may follow it, since etcd then answers that it is done; a
/// different one waits until the open one can no longer be applied.
fn in_doubt(change: &Change, e: &Evidence<'_>) -> Option<Verdict> {
    let doubt = e.doubt?;
    if e.now >= doubt.until || doubt.change.as_ref() == Some(change) {
        return None;
    }
    Some(Verdict::Wait { reason: Reason::MembershipInDoubt, again: doubt.until.since(e.now) })
}

fn added_already(change: &Change, e: &Evidence<'_>) -> Option<Verdict> {
    e.list.at(change.peer_url()).map(|_| Verdict::AlreadyDone)
}

/// etcd allows one learner. Raising that limit is closed: it is checked again when the log is replayed.
fn learner_present(_: &Change, e: &Evidence<'_>) -> Option<Verdict> {
    if e.list.learners().next().is_some() { wait(Reason::LearnerPresent) } else { None }
}

/// A joiner compares its list with etcd's and gives up when they differ, so there may be only one.
fn member_not_started(_: &Change, e: &Evidence<'_>) -> Option<Verdict> {
    if e.list.members.iter().any(|m| !m.started()) { wait(Reason::MemberNotStarted) } else { None }
}

fn some_voter_not_serving(_: &Change, e: &Evidence<'_>) -> Option<Verdict> {
    if e.list.voters().any(|m| !e.serves(m)) { wait(Reason::VoterNotServing) } else { None }
}

fn add(change: &Change, _: &Evidence<'_>) -> Option<Verdict> {
    Some(Verdict::Allow(Call::Add(change.peer_url().clone())))
}

fn promoted_already(change: &Change, e: &Evidence<'_>) -> Option<Verdict> {
    match e.list.at(change.peer_url()) {
        None => refuse(Reason::NotListed),
        Some(m) if !m.is_learner => Some(Verdict::AlreadyDone),
        Some(_) => None,
    }
}

/// Its process may still answer, and ends with its Pod: the voter would be lost as soon as it is one. The asker
/// knows by now, and the question is from before.
fn learner_doomed(_: &Change, e: &Evidence<'_>) -> Option<Verdict> {
    if e.doomed { wait(Reason::VolumeMissing) } else { None }
}

/// etcd would promote a learner that has died, and in a cluster of one voter quorum is then lost
/// for good. So the learner's own process must have answered twice, as the member that is meant, in
/// the cluster that is meant, with a leader.
fn learner_not_answering(change: &Change, e: &Evidence<'_>) -> Option<Verdict> {
    let member = e.list.at(change.peer_url())?;
    let steady = match (e.look(member.id), e.second_look) {
        (
            Some(Look::Answered { at: first_at, status: first, .. }),
            Some(Look::Answered { at: second_at, status: second, .. }),
        ) => {
            second_at.since(*first_at) >= STEADY
                && [first, second].iter().all(|s| {
                    s.member_id == member.id && s.cluster_id == e.list.cluster_id && s.leader.is_some()
                })
        }
        _ => false,
    };
    if member.started() && steady { None } else { wait(Reason::LearnerNotAnswering) }
}

fn learner_behind(_: &Change, e: &Evidence<'_>) -> Option<Verdict> {
    let learner = e.second_look.and_then(Look::status).map(|s| s.applied_index);
    let leader = e.leader().and_then(|id| e.look(id)?.status()).map(|s| s.applied_index.max(s.raft_index));
    match (learner, leader) {
        (Some(learner), Some(leader)) if learner.saturating_add(CLOSE_ENOUGH) >= leader => None,
        _ => wait(Reason::AwaitingLearnerSync),
    }
}

/// After the promotion the quorum is that of one voter more, and the new voter counts as serving.
fn quorum_of_more_not_serving(_: &Change, e: &Evidence<'_>) -> Option<Verdict> {
    let voters = e.list.voters().count() + 1;
    if e.serving(None) + 1 < quorum(voters) { wait(Reason::AwaitingQuorum) } else { None }
}

fn promote(change: &Change, e: &Evidence<'_>) -> Option<Verdict> {
    e.list.at(change.peer_url()).map(|m| Verdict::Allow(Call::Promote(m.id)))
}

/// An open add of this very member is behind us here: [`in_doubt`] came first.
fn removed_already(change: &Change, e: &Evidence<'_>) -> Option<Verdict> {
    if e.list.at(change.peer_url()).is_none() { Some(Verdict::AlreadyDone) } else { None }
}

fn id_mismatch(change: &Change, e: &Evidence<'_>) -> Option<Verdict> {
    let Change::Remove { peer_url, id: Some(recorded) } = change else { return None };
    let listed = e.list.at(peer_url)?;
    if listed.id != *recorded { refuse(Reason::MemberIdMismatch) } else { None }
}

fn target<'a>(change: &Change, e: &'a Evidence<'_>) -> Option<&'a ListedMember> {
    e.list.at(change.peer_url())
}

fn last_voter(change: &Change, e: &Evidence<'_>) -> Option<Verdict> {
    let member = target(change, e)?;
    if !member.is_learner && e.list.voters().count() == 1 { refuse(Reason::LastVoter) } else { None }
}

fn quorum_of_rest_not_serving(change: &Change, e: &Evidence<'_>) -> Option<Verdict> {
    let member = target(change, e)?;
    let rest = e.list.voters().filter(|m| m.id != member.id).count();
    if e.serving(Some(member.id)) < quorum(rest) { wait(Reason::AwaitingQuorum) } else { None }
}

/// Removing a voter that serves costs tolerance, so nothing else may be down.
fn other_voter_not_serving(change: &Change, e: &Evidence<'_>) -> Option<Verdict> {
    let member = target(change, e)?;
    let others_down = e.list.voters().any(|m| m.id != member.id && !e.serves(m));
    let alive = !member.is_learner && e.look(member.id).is_none_or(|l| !l.is_silent());
    if alive && others_down { wait(Reason::VoterNotServing) } else { None }
}

fn restart_not_listed(change: &Change, e: &Evidence<'_>) -> Option<Verdict> {
    if target(change, e).is_none() { refuse(Reason::NotListed) } else { None }
}

/// All others serve, which is more than a quorum of all from three voters on. One or two voters have no quorum while
/// one of them starts again; that cannot be had otherwise.
fn another_voter_not_serving(change: &Change, e: &Evidence<'_>) -> Option<Verdict> {
    let member = target(change, e)?;
    if e.list.voters().any(|m| m.id != member.id && !e.serves(m)) {
        wait(Reason::VoterNotServing)
    } else {
        None
    }
}

fn restart(change: &Change, e: &Evidence<'_>) -> Option<Verdict> {
    target(change, e).map(|m| Verdict::Allow(Call::Restart(m.id)))
}

/// The leader hands over first, to the serving voter that has applied most.
fn leader_leaves(change: &Change, e: &Evidence<'_>) -> Option<Verdict> {
    let member = target(change, e)?;
    if e.leader() != Some(member.id) || !e.serves(member) {
        return None;
    }
    let heir = e
        .list
        .voters()
        .filter(|m| m.id != member.id && e.serves(m))
        .max_by_key(|m| (e.look(m.id).and_then(Look::status).map(|s| s.applied_index), m.id));
    // The only voter has nobody to hand over to, and is never removed.
    if heir.is_none() && matches!(change, Change::Restart { .. }) {
        return None;
    }
    match heir {
        Some(heir) => Some(Verdict::Allow(Call::MoveLeader { from: member.id, to: heir.id })),
        None => wait(Reason::AwaitingQuorum),
    }
}

fn remove(change: &Change, e: &Evidence<'_>) -> Option<Verdict> {
    target(change, e).map(|m| Verdict::Allow(Call::Remove(m.id)))
}
