//! Owns wakes: hints that something may have changed. At most one is on its way to an actor at any
//! time, however many causes there are, so that no mailbox can fill. Does no I/O.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use ractor::{ActorRef, Message};

/// Wakes one actor.
pub struct Waker<M: Message> {
    actor: ActorRef<M>,
    wake: fn() -> M,
    pending: Arc<AtomicBool>,
}

impl<M: Message> Clone for Waker<M> {
    fn clone(&self) -> Self {
        Self { actor: self.actor.clone(), wake: self.wake, pending: self.pending.clone() }
    }
}

impl<M: Message> fmt::Debug for Waker<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Waker({:?})", self.actor.get_id())
    }
}

impl<M: Message> Waker<M> {
    /// Wakes `actor` with the message that `wake` makes.
    pub fn new(actor: ActorRef<M>, wake: fn() -> M) -> Self {
        Self { actor, wake, pending: Arc::new(AtomicBool::new(false)) }
    }

    /// Wakes it, unless a wake is on its way already.
    pub fn wake(&self) {
        if !self.pending.swap(true, Ordering::AcqRel) && self.actor.cast((self.wake)()).is_err() {
            // It has ended; its supervisor sees to that.
            self.pending.store(false, Ordering::Release);
        }
    }

    /// The actor's own, first thing when a wake arrives: what comes now is news again.
    pub fn arrived(&self) {
        self.pending.store(false, Ordering::Release);
    }

    /// The actor that it wakes.
    pub fn actor(&self) -> &ActorRef<M> {
        &self.actor
    }
}

/// Hands the waker of an actor that is being started to whoever starts it: the actor makes it in
/// its `pre_start`, before its first message.
pub struct WakerSlot<M: Message>(Arc<OnceLock<Waker<M>>>);

impl<M: Message> Default for WakerSlot<M> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<M: Message> Clone for WakerSlot<M> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<M: Message> WakerSlot<M> {
    /// The actor's own: leaves its waker. A slot is used for one start, so it is empty before.
    pub fn set(&self, waker: Waker<M>) {
        let _ = self.0.set(waker);
    }

    /// The waker, once the actor's start has returned.
    pub fn get(&self) -> Option<Waker<M>> {
        self.0.get().cloned()
    }
}
