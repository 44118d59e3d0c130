//! The operator's watch stores: one kind each, behind the truth by as much as chance has it.

use std::sync::Arc;

use etcd_operator_core::view::{BudgetState, Presence, ServiceState};

use super::kube::{BudgetObj, ClusterObj, Kind, M, MemberObj, PodObj, PvcObj};

/// The watch stores: one kind each, filled from the truth at different moments.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stores {
    pub(crate) cluster: Option<Option<Arc<ClusterObj>>>,
    pub(crate) services: Option<[ServiceState; 2]>,
    pub(crate) budget: Option<Option<BudgetObj>>,
    pub(crate) members: Option<Kind<MemberObj>>,
    pub(crate) pods: Option<Kind<PodObj>>,
    pub(crate) pvcs: Option<Kind<PvcObj>>,
}

impl Stores {
    /// The budget as the store shows it.
    pub(crate) fn budget_state(&self) -> BudgetState {
        match &self.budget {
            None => BudgetState::Unknown,
            Some(None) => BudgetState::Absent,
            Some(Some(budget)) => budget.state,
        }
    }

    pub(crate) fn pod(&self, m: M) -> Presence<Arc<PodObj>> {
        find(self.pods.as_ref(), |o| o.m == m)
    }

    pub(crate) fn pvc(&self, m: M) -> Presence<Arc<PvcObj>> {
        find(self.pvcs.as_ref(), |o| o.m == m)
    }

    pub(crate) fn member(&self, m: M) -> Option<&Arc<MemberObj>> {
        self.members.as_ref()?.iter().find(|o| o.m == m)
    }
}

fn find<T>(kind: Option<&Kind<T>>, is: impl Fn(&T) -> bool) -> Presence<Arc<T>> {
    match kind {
        None => Presence::Unknown,
        Some(all) => all.iter().find(|o| is(o)).map_or(Presence::Absent, |o| Presence::Present(o.clone())),
    }
}

/// Fills a store; true if that brought anything new. Objects are shared, so the same ones are equal.
pub(super) fn catch_up<T>(store: &mut Option<Kind<T>>, truth: &Kind<T>) -> bool {
    let same = store
        .as_ref()
        .is_some_and(|old| old.len() == truth.len() && old.iter().zip(truth).all(|(a, b)| Arc::ptr_eq(a, b)));
    if !same {
        *store = Some(truth.clone());
    }
    !same
}

pub(super) fn view<T, V>(object: Presence<Arc<T>>, of: impl Fn(&T) -> V) -> Presence<V> {
    match object {
        Presence::Unknown => Presence::Unknown,
        Presence::Absent => Presence::Absent,
        Presence::Present(o) => Presence::Present(of(&o)),
    }
}
