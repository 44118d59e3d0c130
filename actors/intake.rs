//! Owns the way from the watch stores to the actors: a set of touched cluster names and one wake.
//! However many objects change, there is one entry for each cluster and one message on its way.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{messages::OperatorMsg, wake::Waker};

/// The namespace and name of a cluster.
pub(crate) type ClusterName = (String, String);

/// The feed's end: whoever watches puts names in, the operator takes them out.
#[derive(Debug, Clone, Default)]
pub struct Intake {
    touched: Arc<Mutex<BTreeSet<ClusterName>>>,
}

impl Intake {
    /// An object of this cluster was touched.
    pub fn touch(&self, namespace: &str, cluster: &str, operator: &Waker<OperatorMsg>) {
        let new = self.lock().insert((namespace.to_owned(), cluster.to_owned()));
        if new {
            operator.wake();
        }
    }

    /// Takes all names out.
    pub fn take(&self) -> BTreeSet<ClusterName> {
        std::mem::take(&mut *self.lock())
    }

    // A set of names is valid whatever panicked while it was held.
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeSet<ClusterName>> {
        self.touched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
