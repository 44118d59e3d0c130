//! Starts and ends the whole system of actors, for whoever composes the process.

use std::{fmt, sync::Arc, time::Duration};

use etcd_operator_core::ids::Uid;
use ractor::{Actor, ActorRef};
use tokio::task::JoinHandle;

use crate::{
    context::Context,
    intake::Intake,
    messages::OperatorMsg,
    operator::{Operator, OperatorArgs},
    wake::{Waker, WakerSlot},
};

/// The system could not be started, which is a bug.
#[derive(Debug, thiserror::Error)]
#[error("the root actor did not start: {0}")]
pub struct LaunchError(String);

/// A running system of actors. Dropping it does not end it.
pub struct Running {
    root: ActorRef<OperatorMsg>,
    handle: JoinHandle<()>,
    waker: Waker<OperatorMsg>,
    intake: Intake,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Running")
    }
}

/// Tells a running system which clusters were touched.
#[derive(Debug, Clone)]
pub struct News {
    waker: Waker<OperatorMsg>,
    intake: Intake,
}

impl News {
    /// An object of this cluster was created, changed or deleted.
    pub fn touched(&self, namespace: &str, cluster: &str) {
        self.intake.touch(namespace, cluster, &self.waker);
    }
}

impl Running {
    /// Starts the root actor for the clusters that `owns` says yes to, by their UID.
    ///
    /// # Errors
    /// The root did not start, which is a bug.
    pub async fn launch(
        context: Arc<Context>,
        owns: Arc<dyn Fn(&Uid) -> bool + Send + Sync>,
    ) -> Result<Self, LaunchError> {
        let (slot, intake) = (WakerSlot::default(), Intake::default());
        let args = OperatorArgs { context, intake: intake.clone(), slot: slot.clone(), owns };
        let (root, handle) =
            Operator::spawn(None, Operator, args).await.map_err(|e| LaunchError(e.to_string()))?;
        let waker = slot.get().ok_or_else(|| LaunchError("it left no waker".into()))?;
        Ok(Self { root, handle, waker, intake })
    }

    /// Where news of touched clusters go.
    pub fn news(&self) -> News {
        News { waker: self.waker.clone(), intake: self.intake.clone() }
    }

    /// Returns when the root has ended by itself, which is a bug.
    pub async fn ended(&mut self) {
        let _ = (&mut self.handle).await;
    }

    /// Ends all actors in order: guards finish their turn. Returns whether they did within `limit`.
    pub async fn stop(self, limit: Duration) -> bool {
        self.root.stop(Some("the process was asked to end".into()));
        tokio::time::timeout(limit, self.handle).await.is_ok()
    }

    /// Ends all actors at once, in the middle of whatever they do.
    pub fn kill(&self) {
        self.root.kill();
    }
}
