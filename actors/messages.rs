//! Owns what the actors say to each other. A message is a hint or an answer, never the only place
//! where something is known: a lost one costs time, never correctness.

use etcd_operator_core::{
    etcd::Look,
    ids::{MemberName, Uid},
    membership::Change,
    reason::Reason,
    time::Time,
};
use etcd_operator_kubernetes::failure::ApiFailure;
use ractor::ActorRef;
use std::time::Duration;

use crate::ports::{Outcome, SeenCluster};

/// To the operator, the root.
#[derive(Debug)]
pub enum OperatorMsg {
    /// Objects were touched; which ones is in the intake's set.
    Wake,
    /// A supervisor's pause after a fault is over.
    Respawn(Uid),
}

/// To a cluster's supervisor.
#[derive(Debug)]
pub(crate) enum SupervisorMsg {
    /// Something about this cluster may have changed.
    Wake,
    /// Its timer rang; the number tells a timer that was replaced.
    Tick(u64),
    /// An effect ended.
    Effect(Result<Outcome, ApiFailure>),
    /// A status write ended.
    StatusWritten(Result<Outcome, ApiFailure>),
    /// The live GET of the cluster ended.
    Gone(Result<bool, ApiFailure>),
    /// The live reads of the cluster and its members ended; sent at this time.
    Confirmed(Time, Result<Box<SeenCluster>, ApiFailure>),
    /// A child's pause after a fault is over.
    Respawn,
    /// A task of its own panicked, with these words.
    Panicked(String),
}

/// To a member's actor.
#[derive(Debug)]
pub(crate) enum MemberMsg {
    /// Something about this member may have changed.
    Wake,
    /// Its timer rang.
    Tick(u64),
    /// An effect ended.
    Effect(Result<Outcome, ApiFailure>),
    /// A live read of the owner ended: whether its cluster ID is recorded.
    OwnerRead(Result<bool, ApiFailure>),
    /// A look at its process ended. The UID is that of the Pod that was looked at.
    Looked(Uid, Look),
    /// The guard's answer.
    Answered(Change, Answer),
    /// A task of its own panicked, with these words.
    Panicked(String),
}

/// To a cluster's guard.
pub(crate) enum GuardMsg {
    /// A member asks for a change. Cast, never called: the answer is a message too.
    Ask {
        /// Who asks, by the EtcdMember's UID: one question for each.
        asker: Uid,
        /// Its name, for events.
        name: MemberName,
        /// What it asks for.
        change: Change,
        /// When it asked. Too old a question is dropped: its asker has asked again.
        asked: Time,
        /// Where the answer goes.
        reply: ActorRef<MemberMsg>,
    },
    /// The supervisor wants a fresh list on the board.
    Survey,
    /// The next turn.
    Turn,
}

impl std::fmt::Debug for GuardMsg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            GuardMsg::Ask { name, change, .. } => write!(f, "Ask({name}, {change:?})"),
            GuardMsg::Survey => f.write_str("Survey"),
            GuardMsg::Turn => f.write_str("Turn"),
        }
    }
}

/// What the guard answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The list shows it as done. The list is on the board.
    Done,
    /// Not now; ask again after `again`.
    Wait {
        /// What is waited for.
        reason: Reason,
        /// How long.
        again: Duration,
    },
    /// Not unless something else changes first.
    Refused(Reason),
}
