//! The ClusterSupervisor: one for each owner UID, as long as its EtcdCluster or an EtcdMember with
//! that owner exists. It keeps a guard and one actor for each EtcdMember alive, carries out what
//! [`etcd_operator_core::cluster::decide`] says about the *set* of members, and keeps the status
//! true. It never touches a Pod and never changes etcd's membership.
//!
//! The status has a slot of its own beside the actions, so that it stays true while an action
//! fails or takes long.

mod telling;

use std::{sync::Arc, time::Duration};

use etcd_operator_core::{
    cluster::{ClusterAction, ClusterDecision, STEADY_LOOK, decide},
    healing::is_replacement,
    ids::MemberName,
    pause::is_paused,
    reason::Reason,
    time::Time,
    view::{ClusterSituation, ListFact, Presence},
};
use etcd_operator_kubernetes::failure::{ApiFailure, Call};
use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use tracing::Instrument;

use crate::{
    board::Board,
    children::{Children, Ended},
    context::Context,
    messages::{GuardMsg, SupervisorMsg},
    pace::{JUST_DONE, Pace},
    ports::{ClusterKey, Effect, Outcome, SeenCluster},
    tasks::{Tasks, bounded},
    wake::{Waker, WakerSlot},
};
use telling::ONE_WRITE;

/// How long a supervisor that ends waits for its guard to finish its turn.
const GUARD_STOP: Duration = Duration::from_secs(21);

/// How often an EtcdCluster that the store does not show is looked for live.
const GONE_CHECK: Duration = Duration::from_secs(5);

/// The actor. Its state is in [`SupervisorState`].
pub(crate) struct ClusterSupervisor;

/// What a supervisor starts with.
pub(crate) struct SupervisorArgs {
    /// Its cluster.
    pub key: ClusterKey,
    /// What all actors share.
    pub context: Arc<Context>,
    /// Where its waker goes.
    pub slot: WakerSlot<SupervisorMsg>,
    /// What its former life died of, to be told in the status.
    pub fault: Option<String>,
}

/// A supervisor's state. Dropping it aborts what is in flight.
pub(crate) struct SupervisorState {
    key: ClusterKey,
    /// On every log line of this cluster.
    span: tracing::Span,
    context: Arc<Context>,
    board: Arc<Board>,
    me: Waker<SupervisorMsg>,
    children: Children,
    tasks: Tasks,
    acting: Option<ClusterAction>,
    writing_status: bool,
    checking_gone: bool,
    /// When the EtcdCluster was last looked for live.
    gone_checked: Option<Time>,
    pace: Pace,
    status_pace: Pace,
    acted_on: Option<(String, Time)>,
    status_on: Option<(String, Time)>,
    /// The last action that succeeded, and when.
    done: Option<(ClusterAction, Time)>,
    /// The name of a member whose creation is not known to have failed: a retry must not make a second.
    pending_name: Option<MemberName>,
    surveyed: Option<Time>,
    said: Option<Reason>,
    warned: Vec<(Reason, String)>,
    /// This life wrote the first target. That write was refused if the status had been written before,
    /// and members are only made for a recorded target, so there was none: the first needs no live look.
    began_it: bool,
    /// The status write in flight is of the first target.
    beginning: bool,
    /// Since when the status waits for a label that is on its way.
    waits_for_label: Option<Time>,
}

impl Actor for ClusterSupervisor {
    type Msg = SupervisorMsg;
    type State = SupervisorState;
    type Arguments = SupervisorArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<SupervisorMsg>,
        SupervisorArgs { key, context, slot, fault }: SupervisorArgs,
    ) -> Result<SupervisorState, ActorProcessingErr> {
        let me = Waker::new(myself, || SupervisorMsg::Wake);
        slot.set(me.clone());
        me.wake();
        let now = context.clock.now();
        let board = Arc::new(Board::new(now, context.lost_node_after));
        let children = Children::new(key.clone(), context.clone(), board.clone(), me.clone());
        let children = children.after(fault.map(|words| (words, now)));
        board.set_fault(children.fault());
        let span = tracing::info_span!("cluster", namespace = %key.namespace, cluster = %key.name);
        Ok(SupervisorState {
            span,
            children,
            key,
            context,
            board,
            me,
            tasks: Tasks::default(),
            acting: None,
            writing_status: false,
            checking_gone: false,
            gone_checked: None,
            pace: Pace::new(),
            status_pace: Pace::new(),
            acted_on: None,
            status_on: None,
            done: None,
            pending_name: None,
            surveyed: None,
            said: None,
            warned: vec![],
            began_it: false,
            beginning: false,
            waits_for_label: None,
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<SupervisorMsg>,
        message: SupervisorMsg,
        state: &mut SupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            SupervisorMsg::Wake => {
                state.me.arrived();
                state.pace.news();
            }
            SupervisorMsg::Tick(generation) if !state.pace.is_current(generation) => return Ok(()),
            SupervisorMsg::Tick(_) | SupervisorMsg::Respawn => {}
            SupervisorMsg::Effect(result) => state.acted(result),
            SupervisorMsg::StatusWritten(result) => state.status_written(result),
            SupervisorMsg::Gone(result) => state.gone(result),
            SupervisorMsg::Confirmed(at, result) => state.confirmed(at, result),
            SupervisorMsg::Panicked(words) => return Err(words.into()),
        }
        let span = state.span.clone();
        state.turn(&myself).instrument(span).await
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<SupervisorMsg>,
        event: SupervisionEvent,
        state: &mut SupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        let ended = match event {
            SupervisionEvent::ActorTerminated(cell, _, _) => Ended { id: cell.get_id(), fault: None },
            SupervisionEvent::ActorFailed(cell, fault) => {
                Ended { id: cell.get_id(), fault: Some(fault.to_string()) }
            }
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => return Ok(()),
        };
        if let Some(pause) = state.children.ended(&ended, state.context.clock.now()) {
            state.board.set_fault(state.children.fault());
            myself.send_after(pause, || SupervisorMsg::Respawn);
        }
        let span = state.span.clone();
        state.turn(&myself).instrument(span).await
    }

    async fn post_stop(
        &self,
        myself: ActorRef<SupervisorMsg>,
        state: &mut SupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        state.context.replacements.leave(&state.key.uid);
        // Ending would kill the guard in the middle of a call; this lets it finish its turn first.
        myself.stop_children_and_wait(Some("the supervisor ends".into()), Some(GUARD_STOP)).await;
        Ok(())
    }
}

impl SupervisorState {
    fn acted(&mut self, result: Result<Outcome, ApiFailure>) {
        let action = self.acting.take();
        match (&action, &result) {
            (Some(ClusterAction::CreateMember { .. }), Ok(outcome)) => {
                let made = matches!(outcome, Outcome::Done | Outcome::Already);
                if let Some(name) = self.pending_name.take().filter(|_| made) {
                    self.board.made(name);
                }
            }
            // It is known not to be there, so the next try may take another name.
            (Some(ClusterAction::CreateMember { .. }), Err(failure))
                if !matches!(failure, ApiFailure::Ambiguous(_)) =>
            {
                self.pending_name = None;
            }
            _ => {}
        }
        match result {
            Ok(_) => {
                self.done = action.map(|action| (action, self.context.clock.now()));
                self.pace.succeeded();
            }
            Err(failure) => {
                tracing::debug!(?action, %failure, "an effect did not succeed");
                self.acted_on = None;
                self.pace.failed(self.context.clock.now(), &failure);
            }
        }
        self.note_fault();
    }

    fn note_fault(&self) {
        let fault = self.pace.fault().map(ToOwned::to_owned).or_else(|| self.children.fault());
        self.board.set_fault(fault);
        self.board.set_refused(self.pace.refused().map(ToOwned::to_owned));
    }

    fn status_written(&mut self, result: Result<Outcome, ApiFailure>) {
        self.writing_status = false;
        match result {
            Ok(_) => {
                if self.beginning {
                    self.began_it = true;
                    self.board.began();
                }
                self.status_pace.succeeded();
            }
            Err(failure) => {
                tracing::debug!(%failure, "the status was not written");
                self.status_on = None;
                self.status_pace.failed(self.context.clock.now(), &failure);
            }
        }
    }

    fn gone(&mut self, result: Result<bool, ApiFailure>) {
        self.checking_gone = false;
        match result {
            Ok(true) => {
                self.board.set_gone();
                self.children.wake_members();
            }
            Ok(false) => {}
            Err(failure) => self.pace.failed(self.context.clock.now(), &failure),
        }
    }

    fn confirmed(&mut self, at: Time, result: Result<Box<SeenCluster>, ApiFailure>) {
        self.acting = None;
        match result {
            Ok(live) => self.board.confirmed(at, &live),
            Err(failure) => self.pace.failed(self.context.clock.now(), &failure),
        }
    }

    async fn turn(&mut self, myself: &ActorRef<SupervisorMsg>) -> Result<(), ActorProcessingErr> {
        let now = self.context.clock.now();
        let seen = self.context.sight.cluster(&self.key);
        let next = match self.board.situation(&seen, now) {
            Some(situation) => {
                self.children.keep(myself, &seen, now).await?;
                self.survey(&situation, now);
                let next = if self.is_due(&situation, now) {
                    self.write_status(myself, &seen, &situation, now);
                    self.act(myself, &seen, &situation, now)
                } else {
                    self.act(myself, &seen, &situation, now).min(ONE_WRITE)
                };
                self.children.wake_members();
                let listed = situation.list.list().is_some()
                    || situation.cluster.recorded.cluster_id.is_none()
                    || is_paused(&situation);
                if listed { next } else { next.min(Duration::from_secs(1)) }
            }
            None if matches!(seen.cluster, Presence::Unknown) => STEADY_LOOK,
            None if seen.members.is_empty() => {
                // Neither the EtcdCluster nor any EtcdMember of it is left.
                self.context.metrics.cluster_gone(&self.key);
                myself.stop(Some("nothing is left of this cluster".into()));
                return Ok(());
            }
            None => {
                self.children.keep(myself, &seen, now).await?;
                self.check_gone(myself, now);
                self.children.wake_members();
                GONE_CHECK
            }
        };
        self.pace.arm(myself, self.context.clock.jittered(next), SupervisorMsg::Tick);
        Ok(())
    }

    /// Asks the guard for a list: every second while there is none, else at each steady look.
    fn survey(&mut self, s: &ClusterSituation, now: Time) {
        if s.cluster.recorded.cluster_id.is_none() || is_paused(s) {
            return;
        }
        let every =
            if matches!(s.list, ListFact::Unknown { .. }) { Duration::from_secs(1) } else { STEADY_LOOK };
        // A timer may ring up to a fifth early: see `Clock::jittered`.
        if self.surveyed.is_none_or(|at| now.since(at) >= every.mul_f64(0.75)) {
            self.surveyed = Some(now);
            self.children.ask_guard(GuardMsg::Survey);
        }
    }

    /// Takes one decision and starts its effect. Returns when to look again.
    fn act(
        &mut self,
        myself: &ActorRef<SupervisorMsg>,
        seen: &SeenCluster,
        s: &ClusterSituation,
        now: Time,
    ) -> Duration {
        if self.acting.is_some() {
            return STEADY_LOOK;
        }
        if let Some((version, at)) = &self.acted_on {
            if *version == seen.version && now.since(*at) < Duration::from_secs(2) {
                return Duration::from_secs(2);
            }
            self.acted_on = None;
        }
        if let Some(pause) = self.pace.pause(now) {
            return pause;
        }
        let decision = decide(s);
        tracing::trace!(?decision, "decided");
        match decision {
            ClusterDecision::Act(ClusterAction::ConfirmMembers) => {
                self.acting = Some(ClusterAction::ConfirmMembers);
                let read = self.context.hands.confirm_members(&self.key);
                let done =
                    move |result: Result<SeenCluster, _>| SupervisorMsg::Confirmed(now, result.map(Box::new));
                self.tasks.run(myself, bounded(Call::Read, read), done, SupervisorMsg::Panicked);
                STEADY_LOOK
            }
            // Done a moment ago: the store is behind, and its next news wakes us.
            ClusterDecision::Act(action) if self.just_did(&action, now) => JUST_DONE,
            // Its turn comes when a cluster before it is whole again.
            ClusterDecision::Act(ClusterAction::DeleteMember { why, .. })
                if is_replacement(why) && !self.context.replacements.enter(&self.key.uid, now) =>
            {
                self.pace.stretched(Duration::from_secs(1))
            }
            ClusterDecision::Act(action) => {
                self.context.metrics.acted(action.name());
                let name = self.pending_name.clone().unwrap_or_else(|| self.context.fresh_name(&self.key));
                if matches!(action, ClusterAction::CreateMember { .. }) {
                    self.pending_name = Some(name.clone());
                }
                let effect = self.confirmed_effect(seen, action.clone(), name);
                // From now on a member may exist.
                self.began_it &= !matches!(action, ClusterAction::CreateMember { .. });
                self.acting = Some(action);
                self.acted_on = Some((seen.version.clone(), now));
                self.spawn(myself, effect, SupervisorMsg::Effect);
                STEADY_LOOK
            }
            ClusterDecision::Wait(Reason::MembersUnhealthy | Reason::NotKnownYet | Reason::InProgress) => {
                self.pace.stretched(Duration::from_secs(1))
            }
            ClusterDecision::Wait(_) | ClusterDecision::HandsOff { .. } => STEADY_LOOK,
            ClusterDecision::Settled => {
                self.context.replacements.leave(&self.key.uid);
                STEADY_LOOK
            }
        }
    }

    /// The effect of `action`. One that rests on what is absent, or that destroys, first reads the
    /// EtcdCluster and its EtcdMembers live and happens only if the same decision still stands.
    fn confirmed_effect(&self, seen: &SeenCluster, action: ClusterAction, name: MemberName) -> Effect {
        let (key, context, board) = (self.key.clone(), self.context.clone(), self.board.clone());
        let known_to_be_absent = match action {
            ClusterAction::CreateMember { seed: true } => self.began_it,
            ClusterAction::CreateMember { seed: false } => self.board.is_complete(seen),
            _ => false,
        };
        let live = match action {
            // Whether a seed is due depends on what the status records, which must not be stale either.
            ClusterAction::CreateMember { seed: true } if !known_to_be_absent => context.hands.confirm(&key),
            ClusterAction::CreateMember { seed: false } if !known_to_be_absent => {
                context.hands.confirm_members(&key)
            }
            ClusterAction::DeleteMember { .. }
            | ClusterAction::ParkMember { .. }
            | ClusterAction::DeleteBudget => context.hands.confirm_members(&key),
            _ => return context.hands.act(&key, action, name),
        };
        Box::pin(async move {
            let at = context.clock.now();
            let live = live.await?;
            board.confirmed(at, &live);
            let stands = board
                .situation(&live, context.clock.now())
                .is_some_and(|s| decide(&s) == ClusterDecision::Act(action.clone()));
            if !stands {
                return Ok(Outcome::Outdated);
            }
            context.hands.act(&key, action, name).await
        })
    }

    fn just_did(&self, action: &ClusterAction, now: Time) -> bool {
        self.done.as_ref().is_some_and(|(done, at)| done == action && now.since(*at) < JUST_DONE)
    }

    fn check_gone(&mut self, myself: &ActorRef<SupervisorMsg>, now: Time) {
        if self.checking_gone || self.board.is_gone() || self.pace.pause(now).is_some() {
            return;
        }
        // A timer may ring up to a fifth early: see `Clock::jittered`.
        if self.gone_checked.is_some_and(|at| now.since(at) < GONE_CHECK.mul_f64(0.75)) {
            return;
        }
        self.gone_checked = Some(now);
        self.checking_gone = true;
        let read = self.context.hands.is_gone(&self.key);
        self.tasks.run(myself, bounded(Call::Read, read), SupervisorMsg::Gone, SupervisorMsg::Panicked);
    }

    fn spawn(
        &mut self,
        myself: &ActorRef<SupervisorMsg>,
        effect: Effect,
        message: fn(Result<Outcome, ApiFailure>) -> SupervisorMsg,
    ) {
        self.tasks.run(myself, bounded(Call::Write, effect), message, SupervisorMsg::Panicked);
    }
}
