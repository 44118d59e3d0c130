//! The QuorumGuard: one for each cluster, the sole owner of its membership. Does I/O with etcd
//! only; what is safe is decided by [`etcd_operator_core::membership::judge`].
//!
//! It is the one actor that awaits in its handler: that it handles one message at a time *is* the
//! mutual exclusion. It asks no other actor anything, so nobody can wait for it in a circle.
//!
//! A turn reads the list linearizably, looks at every listed member, judges the questions in order
//! and makes at most one membership call. One list answers all who must wait.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use etcd_operator_core::{
    etcd::{EtcdFailure, Look, MemberList, Refusal},
    ids::{MemberId, MemberName, PeerUrl, Uid},
    membership::{Call, Change, Doubt, Evidence, STEADY, Verdict, judge},
    reason::Reason,
    time::{Time, timeouts},
    view::{ListFact, Presence},
    volume::is_volume_doomed,
};
use etcd_operator_etcd::{MemberReader, MembershipWriter, Target};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tracing::Instrument;

use crate::{
    board::Board,
    clock::Clock,
    messages::{Answer, GuardMsg, MemberMsg, SupervisorMsg},
    metrics::Metrics,
    ports::{ClusterKey, Hands, SeenCluster, SeenMember, Sight, Step},
    wake::Waker,
};

/// How soon to ask again after etcd's own refusals that time cures (its 5 s rule).
const SOON: Duration = Duration::from_millis(500);

/// etcd refuses a change until every voter has been connected for so long (its `HealthInterval`).
const CONNECTED: Duration = Duration::from_secs(5);

/// A granted restart may end its Pod for so long: the asker begins within 2 s, and its call to the API server is over
/// after [`timeouts::API_CALL`].
const RESTART: Duration = Duration::from_secs(timeouts::API_CALL.as_secs() + 3);

/// The actor. Its state is in [`GuardState`].
pub(crate) struct QuorumGuard;

/// What a guard starts with.
pub(crate) struct GuardArgs {
    /// Its cluster.
    pub key: ClusterKey,
    /// Reading.
    pub reader: MemberReader,
    /// Changing: moved in, so that nobody else can.
    pub writer: MembershipWriter,
    /// Where to dial whom.
    pub sight: Arc<dyn Sight>,
    /// For events.
    pub hands: Arc<dyn Hands>,
    /// Where the list goes.
    pub board: Arc<Board>,
    /// Woken when the list has changed.
    pub supervisor: Waker<SupervisorMsg>,
    /// The time.
    pub clock: Clock,
    /// Counters.
    pub metrics: Metrics,
    /// See [`crate::Context::owns_for`].
    pub owns_for: Arc<dyn Fn(Duration) -> bool + Send + Sync>,
    /// Nothing can be in flight from a former life: the cluster has no recorded ID yet, and
    /// without one no guard makes any call.
    pub fresh: bool,
}

/// A question that has not been answered.
struct Question {
    name: MemberName,
    change: Change,
    asked: Time,
    reply: ActorRef<MemberMsg>,
}

/// A guard's state.
pub(crate) struct GuardState {
    args: GuardArgs,
    doubt: Option<Doubt>,
    questions: BTreeMap<Uid, Question>,
    survey: bool,
    turn_pending: bool,
    /// When the voter that was promoted last was first seen to run: etcd counts its [`CONNECTED`] from then.
    newest: Option<Time>,
    /// The restart that was granted last: the member, its Pod, and until when that may end.
    granted: Option<(MemberId, Uid, Time)>,
    /// When this guard began.
    began: Time,
}

impl Actor for QuorumGuard {
    type Msg = GuardMsg;
    type State = GuardState;
    type Arguments = GuardArgs;

    async fn pre_start(
        &self,
        _: ActorRef<GuardMsg>,
        args: GuardArgs,
    ) -> Result<GuardState, ActorProcessingErr> {
        let doubt = (!args.fresh).then(|| Doubt::former_life(args.clock.now()));
        let questions = BTreeMap::new();
        let began = args.clock.now();
        Ok(GuardState {
            args,
            doubt,
            questions,
            survey: false,
            turn_pending: false,
            newest: None,
            granted: None,
            began,
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<GuardMsg>,
        message: GuardMsg,
        state: &mut GuardState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            GuardMsg::Ask { asker, name, change, asked, reply } => {
                state.questions.insert(asker, Question { name, change, asked, reply });
            }
            GuardMsg::Survey => state.survey = true,
            GuardMsg::Turn => {
                state.turn_pending = false;
                let key = &state.args.key;
                let span = tracing::info_span!("guard", namespace = %key.namespace, cluster = %key.name);
                state.turn().instrument(span).await;
            }
        }
        let work = state.survey || !state.questions.is_empty();
        if work && !state.turn_pending {
            // Behind whatever is in the mailbox, so that one turn answers all of it.
            state.turn_pending = myself.cast(GuardMsg::Turn).is_ok();
        }
        Ok(())
    }
}

/// The order in which questions are judged: who is dead makes room first, then who is on the way
/// becomes a voter, then somebody new comes, then somebody healthy goes.
fn rank(change: &Change, looks: &BTreeMap<MemberId, Look>, list: &MemberList) -> u8 {
    match change {
        Change::Remove { peer_url, .. } => {
            let dead = list.at(peer_url).and_then(|m| looks.get(&m.id)).is_none_or(Look::is_silent);
            if dead { 0 } else { 3 }
        }
        Change::Promote { .. } => 1,
        Change::Add { .. } => 2,
        Change::Restart { .. } => 3,
    }
}

impl GuardState {
    fn now(&self) -> Time {
        self.args.clock.now()
    }

    async fn turn(&mut self) {
        self.survey = false;
        let now = self.now();
        // Their askers have given up on them and will ask again.
        self.questions.retain(|_, q| now.since(q.asked) < timeouts::QUESTION);
        let seen = self.args.sight.cluster(&self.args.key);
        let Presence::Present(cluster) = &seen.cluster else {
            return self.answer_all(&Answer::Wait { reason: Reason::NotKnownYet, again: SOON });
        };
        let Some(cluster_id) = cluster.recorded.cluster_id else {
            return self.answer_all(&Answer::Wait { reason: Reason::NotFormed, again: SOON });
        };
        let targets = targets(&seen);
        let listed = match self.args.reader.list(&targets).await {
            Ok(list) => list,
            Err(failure) => {
                tracing::debug!(%failure, "no linearizable member list");
                self.publish(ListFact::Unknown { since: now });
                return self.answer_all(&Answer::Wait {
                    reason: Reason::AwaitingQuorum,
                    again: Duration::from_secs(1),
                });
            }
        };
        self.publish(ListFact::Known { at: now, list: listed.clone() });
        if self.questions.is_empty() {
            return;
        }
        // A former life may have sent an eviction that ends a Pod yet.
        let permitted = seen.members.iter().any(|m| m.member.permit.is_some());
        if permitted && self.doubt.is_some() && now.since(self.began) < RESTART {
            return self.answer_all(&Answer::Wait { reason: Reason::MembershipInDoubt, again: SOON });
        }
        let restarting = self.restarting(&seen, now);
        let by_id = by_id(&listed, &seen);
        let looks = self.look_at(&by_id, &leaving(&listed, &seen)).await;
        let mut order: Vec<Uid> = self.questions.keys().cloned().collect();
        order.sort_by_key(|uid| {
            let question = self.questions.get(uid);
            (question.map(|q| rank(&q.change, &looks, &listed)), question.map(|q| q.asked), uid.clone())
        });
        for asker in order {
            let Some(question) = self.questions.get(&asker) else { continue };
            let change = question.change.clone();
            let second = self.second_look(&change, &listed, &looks, &by_id).await;
            let evidence = Evidence {
                // The moment before the list was asked for: by now a doubt may be over, and the list still
                // be from before its end.
                now,
                cluster_id: Some(cluster_id),
                list: &listed,
                looks: &looks,
                second_look: second.as_ref(),
                doomed: is_doomed(change.peer_url(), &seen),
                restarting,
                doubt: self.doubt.as_ref(),
            };
            let verdict = judge(&change, &evidence);
            self.args.metrics.judged(&change, &verdict);
            match verdict {
                Verdict::AlreadyDone => self.answer(&asker, Answer::Done),
                Verdict::Wait { reason, again } => self.answer(&asker, Answer::Wait { reason, again }),
                Verdict::Refuse(reason) => self.answer(&asker, Answer::Refused(reason)),
                Verdict::Allow(call) => {
                    let answer = self.make(call, &change, &by_id, &looks).await;
                    self.tell(&asker, &change, &answer);
                    self.answer(&asker, answer);
                    // The list is another one now: the rest is judged in the next turn.
                    break;
                }
            }
        }
    }

    /// The member whose restart was granted, as long as its Pod may still end by that.
    fn restarting(&self, seen: &SeenCluster, now: Time) -> Option<MemberId> {
        let (id, pod_uid, until) = self.granted.as_ref()?;
        let there = seen.members.iter().any(|m| m.pod.present().is_some_and(|p| p.uid == *pod_uid));
        (there && now < *until).then_some(*id)
    }

    /// A look at every member that we have an address for, all at once.
    async fn look_at(
        &self,
        by_id: &HashMap<MemberId, Target>,
        leaving: &BTreeSet<MemberId>,
    ) -> BTreeMap<MemberId, Look> {
        let looks = by_id.iter().map(|(id, target)| async {
            let look = self.args.reader.look(target).await;
            // Another member at this address says nothing about the one that was meant, and one whose Pod is on its way
            // out serves no longer than that.
            let stranger = look.status().is_some_and(|s| s.member_id != *id);
            let ends = leaving.contains(id) && look.status().is_some();
            (*id, if stranger || ends { Look::Unknown { since: self.now() } } else { look })
        });
        futures::future::join_all(looks).await.into_iter().collect()
    }

    /// For a promotion whose learner has just answered: a second look, after [`STEADY`].
    async fn second_look(
        &self,
        change: &Change,
        list: &MemberList,
        looks: &BTreeMap<MemberId, Look>,
        by_id: &HashMap<MemberId, Target>,
    ) -> Option<Look> {
        let Change::Promote { peer_url } = change else { return None };
        let member = list.at(peer_url).filter(|m| m.is_learner)?;
        let target = by_id.get(&member.id)?;
        let Look::Answered { at, .. } = looks.get(&member.id)? else { return None };
        // Waiting here is the guard's privilege: see the module.
        tokio::time::sleep(STEADY.saturating_sub(self.now().since(*at))).await;
        Some(self.args.reader.look(target).await)
    }

    /// Makes one membership call, and notes what it leaves open.
    async fn make(
        &mut self,
        call: Call,
        change: &Change,
        by_id: &HashMap<MemberId, Target>,
        looks: &BTreeMap<MemberId, Look>,
    ) -> Answer {
        if let (Call::Restart(id), Change::Restart { pod_uid, .. }) = (&call, change) {
            self.granted = Some((*id, pod_uid.clone(), self.now() + RESTART));
            return Answer::Done;
        }
        let voters = voters(by_id, looks);
        // AP-06: a call that outlives our ownership could run beside a successor's.
        if !(self.args.owns_for)(timeouts::MEMBERSHIP_CALL + Duration::from_millis(500)) {
            return Answer::Wait { reason: Reason::NotOwner, again: Duration::from_secs(1) };
        }
        let sent = self.now();
        self.args.metrics.called(&call);
        let writer = &mut self.args.writer;
        let result = match &call {
            Call::Add(peer_url) => writer.add_learner(&voters, peer_url).await.map(|added| Some(added.list)),
            Call::Promote(id) => writer.promote(&voters, *id).await.map(Some),
            // Not of the member itself: it ends as soon as it has applied its own removal, and its answer
            // then says nothing.
            Call::Remove(id) => {
                let others: Vec<_> =
                    voters.into_iter().filter(|v| v.expected.member_id != Some(*id)).collect();
                writer.remove(&others, *id).await.map(Some)
            }
            // Granted above, without a call.
            Call::Restart(_) => Ok(None),
            Call::MoveLeader { from, to } => match by_id.get(from) {
                Some(leader) => writer.move_leader(leader, *to).await.map(|()| None),
                None => Err(EtcdFailure::Unreachable("the leader has no address".into())),
            },
        };
        match result {
            // The answer to a call is as good as a linearizable read: it was applied to be given.
            Ok(Some(list)) => {
                // A doubt stays: an earlier sending of the same change may still land, and after another
                // change it would undo that one.
                self.publish(ListFact::Known { at: self.now(), list });
                if let Call::Promote(id) = &call
                    && let Some(Look::Answered { at, .. }) = looks.get(id)
                {
                    self.newest = Some(*at);
                }
                Answer::Done
            }
            // Leadership has moved; the change itself is judged anew on a fresh list.
            Ok(None) => {
                self.args.hands.tell(
                    &self.args.key,
                    Step::LeaderMoved,
                    None,
                    "leadership handed over".into(),
                );
                Answer::Wait { reason: Reason::InProgress, again: Duration::ZERO }
            }
            Err(failure) => self.failed(change, failure, sent),
        }
    }

    fn failed(&mut self, change: &Change, failure: EtcdFailure, sent: Time) -> Answer {
        tracing::info!(?change, %failure, "a membership call did not succeed");
        match failure {
            // Definite: nothing was done.
            EtcdFailure::Refused(Refusal::UnhealthyCluster) => {
                // To ask before etcd can agree costs a list, a look at each member and a connection.
                let left = self.newest.map(|at| (at + CONNECTED).since(self.now()));
                let again = left.unwrap_or_default().max(SOON);
                Answer::Wait { reason: Reason::UnhealthyCluster, again }
            }
            EtcdFailure::Refused(refusal) => refused(&refusal),
            EtcdFailure::Unreachable(_)
            | EtcdFailure::Tls(_)
            | EtcdFailure::Auth(_)
            | EtcdFailure::WrongPeer(_) => {
                Answer::Wait { reason: Reason::AwaitingQuorum, again: Duration::from_secs(1) }
            }
            EtcdFailure::Ambiguous(_) => {
                let doubt = Doubt::about(change.clone(), sent.max(self.now()));
                self.doubt = Some(doubt);
                Answer::Wait { reason: Reason::MembershipInDoubt, again: SOON }
            }
        }
    }

    fn publish(&self, list: ListFact) {
        if self.args.board.listed(list) {
            self.args.supervisor.wake();
        }
    }

    fn answer(&mut self, asker: &Uid, answer: Answer) {
        if let Some(question) = self.questions.remove(asker) {
            // An asker that has ended does not need the answer; its successor asks again.
            let _ = question.reply.cast(MemberMsg::Answered(question.change, answer));
        }
    }

    fn answer_all(&mut self, answer: &Answer) {
        let askers: Vec<Uid> = self.questions.keys().cloned().collect();
        for asker in askers {
            self.answer(&asker, answer.clone());
        }
    }

    fn tell(&self, asker: &Uid, change: &Change, answer: &Answer) {
        let (Answer::Done, Some(question)) = (answer, self.questions.get(asker)) else { return };
        let name = &question.name;
        let (step, note) = match change {
            Change::Add { .. } => (Step::LearnerAdded, format!("member {name} was added as learner")),
            Change::Promote { .. } => (Step::MemberPromoted, format!("member {name} is a voter now")),
            Change::Remove { .. } => (Step::MemberRemoved, format!("member {name} was removed from etcd")),
            Change::Restart { .. } => return,
        };
        self.args.hands.tell(&self.args.key, step, Some(name), note);
    }
}

/// etcd's definite refusals, as reasons to wait. That the wanted state is there already shows in
/// the next list.
fn refused(refusal: &Refusal) -> Answer {
    let wait = |reason, again| Answer::Wait { reason, again };
    match refusal {
        Refusal::UnhealthyCluster | Refusal::NotEnoughStarted => wait(Reason::UnhealthyCluster, SOON),
        Refusal::LearnerNotReady => wait(Reason::AwaitingLearnerSync, SOON),
        Refusal::TooManyLearners => wait(Reason::LearnerPresent, Duration::from_secs(1)),
        Refusal::NotLearner | Refusal::PeerUrlExists | Refusal::MemberIdExists | Refusal::MemberNotFound => {
            wait(Reason::InProgress, SOON)
        }
        Refusal::LearnerAsked | Refusal::BadLeaderTransferee | Refusal::NotLeader => {
            wait(Reason::AwaitingQuorum, Duration::from_secs(1))
        }
        Refusal::NoSpace | Refusal::Corrupt | Refusal::Other(_) => {
            wait(Reason::UnhealthyCluster, Duration::from_secs(5))
        }
    }
}

/// Whether the data of the member at this peer URL is lost or about to be, as far as the stores show.
fn is_doomed(peer_url: &PeerUrl, seen: &SeenCluster) -> bool {
    let member = seen.members.iter().find(|m| m.member.peer_url == *peer_url);
    member.is_some_and(|m| {
        let pod_goes = m.pod.present().is_none_or(|pod| pod.deleting || pod.ended);
        if m.member.memory { pod_goes } else { is_volume_doomed(&m.pvc, &m.member.recorded) }
    })
}

/// Members whose Pod is on its way out, by whomever.
fn leaving(list: &MemberList, seen: &SeenCluster) -> BTreeSet<MemberId> {
    let ends = |m: &&SeenMember| m.pod.present().is_some_and(|pod| pod.deleting);
    seen.members.iter().filter(ends).filter_map(|m| Some(list.at(&m.member.peer_url)?.id)).collect()
}

/// Every member that can be dialled.
fn targets(seen: &SeenCluster) -> Vec<Target> {
    let mut members: Vec<_> = seen.members.iter().filter(|m| m.target.is_some()).collect();
    // Voters by record first: a learner refuses a linearizable list.
    members.sort_by_key(|m| (!m.member.recorded.is_voter, !m.member.recorded.ready));
    members.into_iter().filter_map(|m| m.target.clone()).collect()
}

/// Where to dial whom, by etcd's own list: matched by peer URL, expected under the listed ID.
fn by_id(list: &MemberList, seen: &SeenCluster) -> HashMap<MemberId, Target> {
    list.members
        .iter()
        .filter_map(|listed| {
            let member = seen.members.iter().find(|m| listed.is_at(&m.member.peer_url))?;
            let mut target = member.target.clone()?;
            target.expected.cluster_id = Some(list.cluster_id);
            target.expected.member_id = Some(listed.id);
            Some((listed.id, target))
        })
        .collect()
}

/// The voters that serve, for calls that any voter takes; the one furthest ahead first.
fn voters(by_id: &HashMap<MemberId, Target>, looks: &BTreeMap<MemberId, Look>) -> Vec<Target> {
    let mut serving: Vec<(&MemberId, u64)> = looks
        .iter()
        .filter(|(_, look)| look.serves())
        .map(|(id, look)| (id, look.status().map_or(0, |s| s.applied_index)))
        .collect();
    serving.sort_by_key(|(id, applied)| (std::cmp::Reverse(*applied), **id));
    serving.into_iter().filter_map(|(id, _)| by_id.get(id).cloned()).collect()
}
