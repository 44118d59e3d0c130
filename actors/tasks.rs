//! Owns an actor's tasks: each ends within a limit and its end becomes a message, also when it
//! panics. An actor that waits for a message which never comes would be stuck without failing.

use std::{any::Any, future::Future, panic::AssertUnwindSafe, time::Duration};

use etcd_operator_core::time::timeouts;
use etcd_operator_kubernetes::failure::{ApiFailure, Call};
use futures::FutureExt;
use ractor::{ActorRef, Message};
use tokio::task::JoinSet;
use tracing::Instrument;

/// An effect is at most five calls to the API server (GET, LIST, GET, POST, PATCH), each with a
/// deadline of its own; this is for the end that does not come all the same.
const LIMIT: Duration = Duration::from_secs(6 * timeouts::API_CALL.as_secs());

/// See the module. Dropping it aborts what is in flight.
#[derive(Debug, Default)]
pub(crate) struct Tasks(JoinSet<()>);

impl Tasks {
    /// Runs `task` and casts what `done` makes of its result to `actor`; what `panicked` makes of
    /// the words of a panic, if it panics. Nobody is told when the actor has ended.
    pub(crate) fn run<M: Message, T: Send + 'static>(
        &mut self,
        actor: &ActorRef<M>,
        task: impl Future<Output = T> + Send + 'static,
        done: impl FnOnce(T) -> M + Send + 'static,
        panicked: fn(String) -> M,
    ) {
        // Ended tasks are let go of; their results came as messages.
        while self.0.try_join_next().is_some() {}
        let actor = actor.clone();
        let task = async move {
            let message = match AssertUnwindSafe(task).catch_unwind().await {
                Ok(result) => done(result),
                Err(panic) => panicked(words(&*panic)),
            };
            let _ = actor.cast(message);
        };
        self.0.spawn(task.in_current_span());
    }
}

/// The words of a panic.
fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without words").to_owned()
}

/// An API call that ends within [`LIMIT`].
pub(crate) async fn bounded<T>(
    call: Call,
    effect: impl Future<Output = Result<T, ApiFailure>>,
) -> Result<T, ApiFailure> {
    tokio::time::timeout(LIMIT, effect)
        .await
        .unwrap_or_else(|_| Err(ApiFailure::unanswered(call, format!("no end within {} s", LIMIT.as_secs()))))
}
