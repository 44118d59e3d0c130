//! Owns a supervisor's children: one guard and one actor for each EtcdMember. Starts them, notices
//! their end, and starts them again after the pause that [`RestartBudget`] says. An actor that
//! fails is a bug of ours: it is counted and said, its neighbours live on, and it is never given up.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use etcd_operator_core::{budget::RestartBudget, ids::Uid, time::Time, view::Presence};
use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef};

use crate::{
    board::Board,
    context::Context,
    member::{MemberActor, MemberArgs},
    messages::{GuardMsg, MemberMsg, SupervisorMsg},
    ports::{ClusterKey, MemberKey, SeenCluster, SeenMember},
    quorum_guard::{GuardArgs, QuorumGuard},
    wake::{Waker, WakerSlot},
};

/// The end of a child.
pub(crate) struct Ended {
    /// Which.
    pub id: ActorId,
    /// What it died of; none for a clean end.
    pub fault: Option<String>,
}

/// See the module.
pub(crate) struct Children {
    key: ClusterKey,
    context: Arc<Context>,
    board: Arc<Board>,
    supervisor: Waker<SupervisorMsg>,
    guard: Slot<ActorRef<GuardMsg>>,
    members: BTreeMap<Uid, Slot<Waker<MemberMsg>>>,
    guards_started: u64,
    fault: Option<(String, Time)>,
}

/// One child, or the pause before its next start.
struct Slot<T> {
    child: Option<(ActorId, T)>,
    budget: RestartBudget,
    not_before: Time,
}

impl<T> Slot<T> {
    fn new() -> Self {
        Self { child: None, budget: RestartBudget::for_actors(), not_before: Time(0) }
    }

    fn is_due(&self, now: Time) -> bool {
        self.child.is_none() && now >= self.not_before
    }

    /// Notes the end of the child with this ID; none if it is not this slot's present child.
    fn ended(&mut self, ended: &Ended, now: Time) -> Option<Duration> {
        self.child.as_ref().filter(|(id, _)| *id == ended.id)?;
        self.child = None;
        let pause = if ended.fault.is_some() { self.budget.failed(now) } else { Duration::ZERO };
        self.not_before = now + pause;
        Some(pause)
    }
}

impl Children {
    /// No children yet.
    pub(crate) fn new(
        key: ClusterKey,
        context: Arc<Context>,
        board: Arc<Board>,
        supervisor: Waker<SupervisorMsg>,
    ) -> Self {
        Self {
            key,
            context,
            board,
            supervisor,
            guard: Slot::new(),
            members: BTreeMap::new(),
            guards_started: 0,
            fault: None,
        }
    }

    /// The same, with what the supervisor's former life died of.
    pub(crate) fn after(mut self, fault: Option<(String, Time)>) -> Self {
        self.fault = fault.map(|(words, at)| {
            (format!("the supervisor of this cluster failed and was started again: {words}"), at)
        });
        self
    }

    /// Starts what is missing and stops what has no EtcdMember any more.
    ///
    /// # Errors
    /// A child's start failed, which is a bug: the supervisor ends with it and is started anew.
    pub(crate) async fn keep(
        &mut self,
        myself: &ActorRef<SupervisorMsg>,
        seen: &SeenCluster,
        now: Time,
    ) -> Result<(), ActorProcessingErr> {
        if self.guard.is_due(now) {
            self.start_guard(myself, seen).await?;
        }
        let Some(guard) = self.guard.child.as_ref().map(|(_, guard)| guard.clone()) else { return Ok(()) };
        for member in &seen.members {
            let args = self.args(member, &guard);
            let slot = self.members.entry(member.member.uid.clone()).or_insert_with(Slot::new);
            if slot.is_due(now) {
                let waker = start_member(myself, args).await?;
                slot.child = Some((waker.actor().get_id(), waker));
            }
        }
        let board = &self.board;
        self.members.retain(|uid, slot| {
            let stays = seen.members.iter().any(|m| m.member.uid == *uid);
            if !stays {
                if let Some((_, waker)) = &slot.child {
                    waker.actor().stop(Some("its EtcdMember is gone".into()));
                }
                board.forget(uid);
            }
            stays
        });
        Ok(())
    }

    async fn start_guard(
        &mut self,
        myself: &ActorRef<SupervisorMsg>,
        seen: &SeenCluster,
    ) -> Result<(), ActorProcessingErr> {
        let (reader, writer) = self.context.etcd.ports();
        let formed = match &seen.cluster {
            Presence::Present(cluster) => cluster.recorded.cluster_id.is_some(),
            Presence::Unknown | Presence::Absent => true,
        };
        let args = GuardArgs {
            key: self.key.clone(),
            reader,
            writer,
            sight: self.context.sight.clone(),
            hands: self.context.hands.clone(),
            board: self.board.clone(),
            supervisor: self.supervisor.clone(),
            clock: self.context.clock.clone(),
            metrics: self.context.metrics.clone(),
            owns_for: self.context.owns_for.clone(),
            // A cluster without a recorded ID has never had a membership call made for it.
            fresh: !formed && self.guards_started == 0,
        };
        self.guards_started += 1;
        let (guard, _) = QuorumGuard::spawn_linked(None, QuorumGuard, args, myself.get_cell()).await?;
        self.guard.child = Some((guard.get_id(), guard));
        // Member actors hold the former guard; a new life finds the new one.
        for slot in self.members.values() {
            if let Some((_, waker)) = &slot.child {
                waker.actor().stop(Some("the guard was replaced".into()));
            }
        }
        Ok(())
    }

    fn args(&self, member: &SeenMember, guard: &ActorRef<GuardMsg>) -> MemberArgs {
        MemberArgs {
            key: MemberKey {
                cluster: self.key.clone(),
                name: member.member.name.clone(),
                uid: member.member.uid.clone(),
            },
            sight: self.context.sight.clone(),
            hands: self.context.hands.clone(),
            reader: self.context.etcd.reader(),
            board: self.board.clone(),
            guard: guard.clone(),
            supervisor: self.supervisor.clone(),
            clock: self.context.clock.clone(),
            metrics: self.context.metrics.clone(),
        }
    }

    /// Notes the end of a child. Returns the pause before its next start, if it was a present one.
    pub(crate) fn ended(&mut self, ended: &Ended, now: Time) -> Option<Duration> {
        let guard = self.guard.ended(ended, now);
        let pause = guard.or_else(|| self.members.values_mut().find_map(|slot| slot.ended(ended, now)));
        if let (Some(_), Some(fault)) = (pause, &ended.fault) {
            let whose = if guard.is_some() { "the guard" } else { "a member actor" };
            tracing::error!(cluster = %self.key.name, namespace = %self.key.namespace, fault, "{whose} failed");
            self.context.metrics.restarted();
            self.fault = Some((format!("{whose} of this cluster failed and is started again: {fault}"), now));
        }
        pause
    }

    /// What a child last died of, until a quiet time has passed.
    pub(crate) fn fault(&self) -> Option<String> {
        let quiet = |slot_quiet: bool, at: Time| {
            slot_quiet && self.context.clock.now().since(at) > Duration::from_secs(60)
        };
        let (words, at) = self.fault.as_ref()?;
        let all_run = self.guard.child.is_some() && self.members.values().all(|s| s.child.is_some());
        (!quiet(all_run, *at)).then(|| words.clone())
    }

    /// Wakes every member actor.
    pub(crate) fn wake_members(&self) {
        for slot in self.members.values() {
            if let Some((_, waker)) = &slot.child {
                waker.wake();
            }
        }
    }

    /// Tells the guard something; lost if there is none at the moment.
    pub(crate) fn ask_guard(&self, message: GuardMsg) {
        if let Some((_, guard)) = &self.guard.child {
            let _ = guard.cast(message);
        }
    }
}

async fn start_member(
    myself: &ActorRef<SupervisorMsg>,
    args: MemberArgs,
) -> Result<Waker<MemberMsg>, ActorProcessingErr> {
    let slot = WakerSlot::default();
    MemberActor::spawn_linked(None, MemberActor, (args, slot.clone()), myself.get_cell()).await?;
    slot.get().ok_or_else(|| "a member actor started without its waker".into())
}
