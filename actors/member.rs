//! The MemberActor: one for each EtcdMember. It looks at its member's process, and carries out what
//! [`etcd_operator_core::member::decide`] says, one effect at a time. It asks the guard for every
//! membership change and decides nothing for another member.

mod situation;

use std::{sync::Arc, time::Duration};

use etcd_operator_core::{
    budget::RestartBudget,
    etcd::Look,
    ids::Uid,
    lost_node::is_stranded,
    member::{MemberAction, MemberDecision, decide},
    membership::Change,
    progress::Progress,
    reason::Reason,
    time::{Time, timeouts},
    view::{ListFact, MemberFacts, PodView, ThrownOut},
};
use etcd_operator_etcd::MemberReader;
use etcd_operator_kubernetes::failure::{ApiFailure, Call};
use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::{
    board::Board,
    clock::Clock,
    messages::{Answer, GuardMsg, MemberMsg, SupervisorMsg},
    metrics::Metrics,
    noteworthy::{differs, notable},
    pace::{JUST_DONE, Pace},
    ports::{Hands, MemberKey, Outcome, SeenCluster, SeenMember, Sight},
    tasks::{Tasks, bounded},
    wake::{Waker, WakerSlot},
};

/// How often the process of a settled member is looked at, before jitter. The Pod's readiness probe
/// asks the same question every few seconds and its verdict comes through the watch; this look is
/// for what a watch cannot tell.
const STEADY_LOOK: Duration = Duration::from_secs(30);
/// Looks closer together than this tell nothing new.
const CLOSEST_LOOK: Duration = Duration::from_millis(200);

/// How soon a volume whose growth was refused is asked for again: a person may have edited its StorageClass.
const GROW_AGAIN: Duration = Duration::from_secs(60);

/// How long a granted restart may be begun. The guard counts the member as gone for longer than this and the call that
/// ends its Pod.
const GRANT: Duration = Duration::from_secs(2);

/// A question that must wait is asked again as soon as the answer says for so many times, then half
/// as often, and so on, down to once in [`LONGEST_WAIT`].
const PATIENT_ASKS: u32 = 20;
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// The actor. Its state is in [`MemberState`].
pub(crate) struct MemberActor;

/// What a member actor starts with.
pub(crate) struct MemberArgs {
    /// Its member.
    pub key: MemberKey,
    /// The stores.
    pub sight: Arc<dyn Sight>,
    /// The effects.
    pub hands: Arc<dyn Hands>,
    /// Reading etcd.
    pub reader: MemberReader,
    /// The cluster's shared knowledge.
    pub board: Arc<Board>,
    /// The cluster's guard.
    pub guard: ActorRef<GuardMsg>,
    /// Woken when a look brought news.
    pub supervisor: Waker<SupervisorMsg>,
    /// The time.
    pub clock: Clock,
    /// Counters.
    pub metrics: Metrics,
}

/// A member actor's state. Dropping it aborts what is in flight.
pub(crate) struct MemberState {
    args: MemberArgs,
    /// On every log line of this member.
    span: tracing::Span,
    me: Waker<MemberMsg>,
    tasks: Tasks,
    busy: bool,
    looking: bool,
    /// The Pod as it was at the last look, and when that began.
    looked_at: Option<(PodView, Time)>,
    pace: Pace,
    /// What the last turn saw: the cluster's version, the member's, the list.
    viewed: Option<(String, String, ListFact)>,
    /// The version on which the last effect was decided: until the store moves on, the same view
    /// would only lead to the same effect again.
    acted_on: Option<(String, Time)>,
    /// The effect in flight, until it has ended.
    acting: Option<MemberAction>,
    /// The last effect that succeeded, and when.
    done: Option<(MemberAction, Time)>,
    question: Option<(Change, Time)>,
    ask_not_before: Time,
    /// How often in a row the guard has said to wait.
    waits: u32,
    removed: bool,
    /// When the API server last refused to let its volume grow.
    refused_growth: Option<Time>,
    /// The Pod whose restart the guard granted, and when.
    granted: Option<(Uid, Time)>,
    owner_confirmed: bool,
    progress: Option<Progress>,
    stranded: Option<Time>,
    /// The pauses between Pods whose process never answers.
    pods: RestartBudget,
}

impl MemberState {
    fn now(&self) -> Time {
        self.args.clock.now()
    }
}

impl Actor for MemberActor {
    type Msg = MemberMsg;
    type State = MemberState;
    type Arguments = (MemberArgs, WakerSlot<MemberMsg>);

    async fn pre_start(
        &self,
        myself: ActorRef<MemberMsg>,
        (args, slot): Self::Arguments,
    ) -> Result<MemberState, ActorProcessingErr> {
        let me = Waker::new(myself, || MemberMsg::Wake);
        slot.set(me.clone());
        me.wake();
        let span = tracing::info_span!(
            "member",
            namespace = %args.key.cluster.namespace,
            cluster = %args.key.cluster.name,
            member = %args.key.name,
        );
        Ok(MemberState {
            span,
            pace: Pace::new(),
            viewed: None,
            args,
            me,
            tasks: Tasks::default(),
            busy: false,
            looking: false,
            looked_at: None,
            acted_on: None,
            acting: None,
            done: None,
            question: None,
            ask_not_before: Time(0),
            waits: 0,
            removed: false,
            refused_growth: None,
            granted: None,
            owner_confirmed: false,
            progress: None,
            stranded: None,
            pods: RestartBudget::for_pods(),
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<MemberMsg>,
        message: MemberMsg,
        state: &mut MemberState,
    ) -> Result<(), ActorProcessingErr> {
        // Nothing awaits below, so the span covers this turn and nothing else.
        let span = state.span.clone();
        let _inside = span.enter();
        match message {
            // Whether it is news shows in the view.
            MemberMsg::Wake => state.me.arrived(),
            MemberMsg::Tick(generation) if !state.pace.is_current(generation) => return Ok(()),
            MemberMsg::Tick(_) => {}
            MemberMsg::Effect(result) => state.ended(result),
            MemberMsg::OwnerRead(result) => {
                state.busy = false;
                // Only the absence is remembered; a cluster ID that is there will come by the watch.
                state.owner_confirmed = matches!(result, Ok(false));
                state.settle(result.map(|_| Outcome::Done));
            }
            MemberMsg::Looked(pod_uid, look) => state.looked(pod_uid, look),
            MemberMsg::Answered(change, answer) => state.answered(&change, &answer),
            MemberMsg::Panicked(words) => return Err(words.into()),
        }
        state.turn(&myself);
        Ok(())
    }
}

impl MemberState {
    fn ended(&mut self, result: Result<Outcome, ApiFailure>) {
        self.busy = false;
        self.settle(result);
    }

    /// What the end of an effect means for the next look.
    fn settle(&mut self, result: Result<Outcome, ApiFailure>) {
        let acting = self.acting.take();
        // A volume that may not grow keeps nothing else waiting, and is asked for again now and then.
        if let (Some(MemberAction::GrowPvc { .. }), Err(ApiFailure::Forbidden(_) | ApiFailure::Invalid(_))) =
            (&acting, &result)
        {
            let words = result.err().map(|failure| failure.to_string());
            self.args.board.set_cannot_grow(&self.args.key.uid, words);
            self.refused_growth = Some(self.now());
            return self.args.supervisor.wake();
        }
        match result {
            Ok(outcome) => {
                let done = acting.filter(|_| outcome == Outcome::Done);
                if matches!(done, Some(MemberAction::GrowPvc { .. })) {
                    self.refused_growth = None;
                    self.args.board.set_cannot_grow(&self.args.key.uid, None);
                }
                if matches!(
                    done,
                    Some(MemberAction::CreatePod { .. } | MemberAction::CreateRecoveryPod { .. })
                ) {
                    let pause = self.pods.failed(self.now());
                    self.note_pods(self.now() + pause);
                }
                self.done = done.map(|action| (action, self.now())).or(self.done.take());
                self.pace.succeeded();
            }
            Err(failure) => {
                self.acted_on = None;
                self.pace.failed(self.args.clock.now(), &failure);
                tracing::debug!(%failure, "an effect did not succeed");
            }
        }
        if self.args.board.member_refused(&self.args.key.uid, self.pace.refused()) {
            self.args.supervisor.wake();
        }
    }

    /// Tells the board of the Pods that this member has had since its process last answered.
    fn note_pods(&self, until: Time) {
        let thrown_out = ThrownOut { pods: self.pods.failures(), until };
        self.args.board.set_thrown_out(&self.args.key.uid, thrown_out);
    }

    fn looked(&mut self, pod_uid: Uid, look: Look) {
        self.looking = false;
        if look.status().is_some() && self.pods.failures() > 0 {
            self.pods = RestartBudget::for_pods();
            self.note_pods(Time(0));
        }
        let now = self.now();
        let stalled = self.watch_progress(&look, now);
        let seen = self.args.sight.cluster(&self.args.key.cluster);
        let news = self.find(&seen).is_some_and(|m| {
            let before = self.args.board.facts(m, now);
            differs(&before.look, &look) || before.stalled != stalled
        });
        self.args.board.looked(&self.args.key.uid, pod_uid, look, stalled);
        if news {
            self.pace.news();
            self.args.supervisor.wake();
        }
    }

    fn watch_progress(&mut self, look: &Look, now: Time) -> bool {
        match look.status() {
            Some(status) if status.is_learner => {
                let progress = self.progress.get_or_insert_with(|| Progress::new(now, status));
                progress.observe(now, status);
                progress.stalled(now, status.db_size, 0)
            }
            Some(_) => {
                self.progress = None;
                false
            }
            None => false,
        }
    }

    /// Keeps the time since which its node has seemed to be gone without a break.
    fn watch_node(&mut self, facts: &mut MemberFacts, now: Time) {
        self.stranded = is_stranded(facts).then(|| self.stranded.unwrap_or(now));
        if facts.stranded != self.stranded {
            facts.stranded = self.stranded;
            self.args.board.set_stranded(&self.args.key.uid, self.stranded);
        }
    }

    fn answered(&mut self, change: &Change, answer: &Answer) {
        if self.question.as_ref().is_some_and(|(asked, _)| asked == change) {
            self.question = None;
        }
        let now = self.now();
        match answer {
            Answer::Done => {
                self.waits = 0;
                self.removed |= matches!(change, Change::Remove { .. });
                if let Change::Restart { pod_uid, .. } = change {
                    self.granted = Some((pod_uid.clone(), now));
                }
                self.ask_not_before = now;
                self.pace.news();
                // What etcd now says of this member is to be seen at once.
                self.looked_at = None;
            }
            Answer::Wait { again, .. } => {
                // Each question costs a list and a look at every member.
                let stretched = again.saturating_mul(1 << (self.waits / PATIENT_ASKS).min(6));
                self.ask_not_before = now + stretched.min(LONGEST_WAIT.max(*again));
                self.waits = self.waits.saturating_add(1);
            }
            Answer::Refused(reason) => {
                tracing::warn!(?change, %reason, "the guard refused");
                self.ask_not_before = now + Duration::from_secs(5);
            }
        }
    }

    fn find<'a>(&self, seen: &'a SeenCluster) -> Option<&'a SeenMember> {
        seen.members.iter().find(|m| m.member.uid == self.args.key.uid)
    }

    fn turn(&mut self, myself: &ActorRef<MemberMsg>) {
        let now = self.now();
        let seen = self.args.sight.cluster(&self.args.key.cluster);
        let Some(mine) = self.find(&seen).cloned() else {
            // The supervisor stops an actor whose EtcdMember is gone; until then there is nothing to do.
            return self.pace.arm(myself, STEADY_LOOK, MemberMsg::Tick);
        };
        let mut facts = self.args.board.facts(&mine, now);
        // What is told of it stays until the answer is another one.
        if self.refused_growth.is_some_and(|at| now.since(at) >= GROW_AGAIN) {
            facts.cannot_grow = None;
        }
        self.watch_node(&mut facts, now);
        let view = (seen.version.clone(), mine.version.clone(), self.args.board.list());
        if self.viewed.as_ref() != Some(&view) {
            self.viewed = Some(view);
            self.pace.news();
        }
        let next = if self.busy { STEADY_LOOK } else { self.step(myself, &seen, &mine, &facts, now) };
        let every = if facts.look.serves() { STEADY_LOOK } else { self.pace.look_every() };
        self.look_if_due(myself, &mine, every, now);
        self.pace.arm(myself, self.args.clock.jittered(next.min(every).max(CLOSEST_LOOK)), MemberMsg::Tick);
    }

    /// Takes one decision and starts its effect. Returns when to look again.
    fn step(
        &mut self,
        myself: &ActorRef<MemberMsg>,
        seen: &SeenCluster,
        mine: &SeenMember,
        facts: &MemberFacts,
        now: Time,
    ) -> Duration {
        if let Some((version, at)) = &self.acted_on {
            // The store will tell; two seconds are for an object that nothing changed after all.
            if *version == mine.version && now.since(*at) < Duration::from_secs(2) {
                return Duration::from_secs(2);
            }
            self.acted_on = None;
        }
        if let Some(pause) = self.pace.pause(now) {
            return pause;
        }
        let situation = self.situation(seen, facts, now);
        let decision = decide(&situation);
        tracing::trace!(?decision, "decided");
        match decision {
            MemberDecision::Act(action) => self.act(myself, action, mine, facts, now),
            MemberDecision::Wait { reason, again } => {
                self.say(myself, mine, facts, Some(reason), now);
                self.pace.stretched(again)
            }
            MemberDecision::Settled => {
                self.say(myself, mine, facts, None, now);
                STEADY_LOOK
            }
        }
    }

    fn act(
        &mut self,
        myself: &ActorRef<MemberMsg>,
        action: MemberAction,
        mine: &SeenMember,
        facts: &MemberFacts,
        now: Time,
    ) -> Duration {
        if self.done.as_ref().is_some_and(|(done, at)| *done == action && now.since(*at) < JUST_DONE) {
            // The store is behind, and its next news wakes us.
            return JUST_DONE;
        }
        let key = self.args.key.clone();
        match action {
            MemberAction::Ask(change) => return self.ask(myself, change, now),
            MemberAction::Record(ref record) => {
                let mut facts = facts.clone();
                facts.member.recorded = record.clone();
                match self.args.hands.write_member_status(&key, &facts, None, now) {
                    Some(effect) => self.start(myself, effect, Some(action), mine, now),
                    None => return self.pace.stretched(Duration::from_secs(1)),
                }
            }
            MemberAction::ConfirmOwner => {
                self.busy = true;
                self.acting = Some(action);
                let read = bounded(Call::Read, self.args.hands.confirm(&key.cluster));
                let formed = |seen: SeenCluster| {
                    seen.cluster.present().is_some_and(|c| c.recorded.cluster_id.is_some())
                };
                let done = move |read: Result<_, _>| MemberMsg::OwnerRead(read.map(formed));
                self.tasks.run(myself, read, done, MemberMsg::Panicked);
            }
            action => {
                self.args.metrics.acted(action.name());
                let effect = self.args.hands.act_member(&key, action.clone());
                self.start(myself, effect, Some(action), mine, now);
            }
        }
        STEADY_LOOK
    }

    /// Starts an effect: of this action, or none's when it only says in the status what is waited for.
    fn start(
        &mut self,
        myself: &ActorRef<MemberMsg>,
        effect: crate::ports::Effect,
        action: Option<MemberAction>,
        mine: &SeenMember,
        now: Time,
    ) {
        self.busy = true;
        self.acting = action;
        self.acted_on = Some((mine.version.clone(), now));
        self.tasks.run(myself, bounded(Call::Write, effect), MemberMsg::Effect, MemberMsg::Panicked);
    }

    fn ask(&mut self, myself: &ActorRef<MemberMsg>, change: Change, now: Time) -> Duration {
        if let Some((asked, at)) = &self.question
            && *asked == change
            && now.since(*at) < timeouts::QUESTION
        {
            return timeouts::QUESTION;
        }
        if now < self.ask_not_before {
            return self.ask_not_before.since(now);
        }
        self.question = Some((change.clone(), now));
        let ask = GuardMsg::Ask {
            asker: self.args.key.uid.clone(),
            name: self.args.key.name.clone(),
            change,
            asked: now,
            reply: myself.clone(),
        };
        if self.args.guard.cast(ask).is_err() {
            // The guard has ended; with it ends this actor's life, by its supervisor.
            self.question = None;
        }
        timeouts::QUESTION
    }

    /// Keeps the member's own status true about what a person should know.
    fn say(
        &mut self,
        myself: &ActorRef<MemberMsg>,
        mine: &SeenMember,
        facts: &MemberFacts,
        reason: Option<Reason>,
        now: Time,
    ) {
        let trouble = notable(facts, reason);
        if let Some(effect) = self.args.hands.write_member_status(&self.args.key, facts, trouble, now) {
            self.start(myself, effect, None, mine, now);
        }
    }

    /// Looks at the process when the last look is older than `every`, or when the Pod has changed.
    fn look_if_due(&mut self, myself: &ActorRef<MemberMsg>, mine: &SeenMember, every: Duration, now: Time) {
        let (Some(target), Some(pod)) = (&mine.target, mine.pod.present()) else { return };
        if self.looking || pod.ended {
            return;
        }
        // A timer may ring up to a fifth early: see `Clock::jittered`.
        let fresh = |at: Time| now.since(at) < every.mul_f64(0.75).max(CLOSEST_LOOK);
        let due = match &self.looked_at {
            Some((seen, at)) if seen == pod => !fresh(*at),
            Some((seen, at)) if seen.uid == pod.uid => now.since(*at) >= CLOSEST_LOOK,
            _ => true,
        };
        if !due {
            return;
        }
        self.looked_at = Some((pod.clone(), now));
        self.looking = true;
        let (reader, target, pod_uid) = (self.args.reader.clone(), target.clone(), pod.uid.clone());
        let look = async move { reader.look(&target).await };
        self.tasks.run(myself, look, move |look| MemberMsg::Looked(pod_uid, look), MemberMsg::Panicked);
    }
}
