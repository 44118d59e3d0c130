//! The Operator: the root, one for each shard that this process owns. It keeps a supervisor alive
//! for every owner UID and touches no cluster's objects.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use etcd_operator_core::{budget::RestartBudget, ids::Uid, time::Time};
use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};

use crate::{
    cluster_supervisor::{ClusterSupervisor, SupervisorArgs},
    context::Context,
    intake::{ClusterName, Intake},
    messages::{OperatorMsg, SupervisorMsg},
    ports::ClusterKey,
    wake::{Waker, WakerSlot},
};

/// The actor. Its state is in [`OperatorState`].
pub struct Operator;

/// What the operator starts with.
pub struct OperatorArgs {
    /// What all actors share.
    pub context: Arc<Context>,
    /// Where touched names come from.
    pub intake: Intake,
    /// Where its waker goes.
    pub slot: WakerSlot<OperatorMsg>,
    /// Whether a cluster, by its UID, is of the shard that this operator owns.
    pub owns: Arc<dyn Fn(&Uid) -> bool + Send + Sync>,
}

/// The operator's state.
pub struct OperatorState {
    context: Arc<Context>,
    intake: Intake,
    owns: Arc<dyn Fn(&Uid) -> bool + Send + Sync>,
    me: Waker<OperatorMsg>,
    supervisors: BTreeMap<Uid, Slot>,
    by_name: BTreeMap<ClusterName, BTreeSet<Uid>>,
}

struct Slot {
    key: ClusterKey,
    child: Option<(ActorId, Waker<SupervisorMsg>)>,
    budget: RestartBudget,
    not_before: Time,
    /// What the last one died of.
    fault: Option<String>,
}

impl Actor for Operator {
    type Msg = OperatorMsg;
    type State = OperatorState;
    type Arguments = OperatorArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<OperatorMsg>,
        args: OperatorArgs,
    ) -> Result<OperatorState, ActorProcessingErr> {
        let me = Waker::new(myself, || OperatorMsg::Wake);
        args.slot.set(me.clone());
        me.wake();
        Ok(OperatorState {
            context: args.context,
            intake: args.intake,
            owns: args.owns,
            me,
            supervisors: BTreeMap::new(),
            by_name: BTreeMap::new(),
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<OperatorMsg>,
        message: OperatorMsg,
        state: &mut OperatorState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            OperatorMsg::Wake => {
                state.me.arrived();
                for (namespace, name) in state.intake.take() {
                    state.touched(&myself, namespace, name).await?;
                }
            }
            OperatorMsg::Respawn(uid) => state.start(&myself, &uid).await?,
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<OperatorMsg>,
        event: SupervisionEvent,
        state: &mut OperatorState,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorTerminated(cell, _, _) => state.ended(&myself, cell.get_id(), None),
            SupervisionEvent::ActorFailed(cell, fault) => {
                state.ended(&myself, cell.get_id(), Some(fault.to_string()));
            }
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => {}
        }
        Ok(())
    }

    async fn post_stop(
        &self,
        myself: ActorRef<OperatorMsg>,
        _: &mut OperatorState,
    ) -> Result<(), ActorProcessingErr> {
        // Longer than a supervisor waits for its guard.
        let limit = std::time::Duration::from_secs(25);
        myself.stop_children_and_wait(Some("the operator ends".into()), Some(limit)).await;
        Ok(())
    }
}

impl OperatorState {
    async fn touched(
        &mut self,
        myself: &ActorRef<OperatorMsg>,
        namespace: String,
        name: String,
    ) -> Result<(), ActorProcessingErr> {
        for key in self.context.sight.owners(&namespace, &name) {
            if !(self.owns)(&key.uid) {
                continue;
            }
            let uid = key.uid.clone();
            if !self.supervisors.contains_key(&uid) {
                self.by_name.entry((namespace.clone(), name.clone())).or_default().insert(uid.clone());
                self.supervisors.insert(
                    uid.clone(),
                    Slot {
                        key,
                        child: None,
                        budget: RestartBudget::for_actors(),
                        not_before: Time(0),
                        fault: None,
                    },
                );
            }
            self.start(myself, &uid).await?;
        }
        // Also those that the store no longer shows: their supervisors have to find that out.
        for uid in self.by_name.get(&(namespace, name)).into_iter().flatten() {
            if let Some(Slot { child: Some((_, waker)), .. }) = self.supervisors.get(uid) {
                waker.wake();
            }
        }
        self.context.metrics.clusters(self.supervisors.len());
        Ok(())
    }

    /// Starts the supervisor if there is none and its pause is over.
    async fn start(&mut self, myself: &ActorRef<OperatorMsg>, uid: &Uid) -> Result<(), ActorProcessingErr> {
        let now = self.context.clock.now();
        let Some(slot) = self.supervisors.get_mut(uid) else { return Ok(()) };
        if slot.child.is_some() || now < slot.not_before {
            return Ok(());
        }
        let waker = WakerSlot::default();
        let args = SupervisorArgs {
            key: slot.key.clone(),
            context: self.context.clone(),
            slot: waker.clone(),
            fault: slot.fault.take(),
        };
        let (actor, _) =
            ClusterSupervisor::spawn_linked(None, ClusterSupervisor, args, myself.get_cell()).await?;
        slot.child = waker.get().map(|waker| (actor.get_id(), waker));
        Ok(())
    }

    fn ended(&mut self, myself: &ActorRef<OperatorMsg>, id: ActorId, fault: Option<String>) {
        let now = self.context.clock.now();
        let ours = self.supervisors.iter_mut().find(|(_, s)| s.child.as_ref().is_some_and(|(c, _)| *c == id));
        let Some((uid, slot)) = ours else { return };
        let uid = uid.clone();
        slot.child = None;
        let name = (slot.key.namespace.clone(), slot.key.name.clone());
        match fault {
            Some(fault) => {
                let pause = slot.budget.failed(now);
                slot.not_before = now + pause;
                tracing::error!(namespace = name.0, cluster = name.1, fault, ?pause, "a supervisor failed");
                slot.fault = Some(fault);
                self.context.metrics.restarted();
                myself.send_after(pause, move || OperatorMsg::Respawn(uid));
            }
            None => {
                self.supervisors.remove(&uid);
                if let Some(uids) = self.by_name.get_mut(&name) {
                    uids.remove(&uid);
                    if uids.is_empty() {
                        self.by_name.remove(&name);
                    }
                }
                // It may have ended a moment before the store showed a member again.
                self.intake.touch(&name.0, &name.1, &self.me);
            }
        }
        self.context.metrics.clusters(self.supervisors.len());
    }
}
