//! The stored objects that one view of a cluster is made from, and the memory of the last view of each. Most turns
//! of an actor find every object as it was, and a view costs a hundred times what it costs to see that. No I/O.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use etcd_operator_api::{EtcdCluster, EtcdMember};
use etcd_operator_core::ids::Uid;
use k8s_openapi::api::{
    core::v1::{PersistentVolumeClaim, Pod, Service},
    policy::v1::PodDisruptionBudget,
};

use crate::ports::SeenCluster;

/// Everything that a view of one cluster depends on. A stored object is never changed, only replaced.
pub(super) struct Shown {
    pub(super) cluster: Option<Arc<EtcdCluster>>,
    pub(super) headless: Option<Arc<Service>>,
    pub(super) client: Option<Arc<Service>>,
    pub(super) budget: Option<Arc<PodDisruptionBudget>>,
    pub(super) members: Vec<ShownMember>,
}

/// One member's part of [`Shown`].
pub(super) struct ShownMember {
    pub(super) object: Arc<EtcdMember>,
    pub(super) pod: Option<Arc<Pod>>,
    pub(super) pvc: Option<Arc<PersistentVolumeClaim>>,
    /// Its PVC is not shown, and nobody knows yet whether it is there.
    pub(super) pvc_unknown: bool,
}

impl Shown {
    fn is_nothing(&self) -> bool {
        self.cluster.is_none() && self.members.is_empty()
    }

    /// Whether a view of the other is a view of this one: it is made from the very same objects.
    fn is(&self, other: &Self) -> bool {
        let members = || self.members.iter().zip(&other.members);
        same(self.cluster.as_ref(), other.cluster.as_ref())
            && same(self.headless.as_ref(), other.headless.as_ref())
            && same(self.client.as_ref(), other.client.as_ref())
            && same(self.budget.as_ref(), other.budget.as_ref())
            && self.members.len() == other.members.len()
            && members().all(|(a, b)| a.is(b))
    }
}

impl ShownMember {
    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.object, &other.object)
            && same(self.pod.as_ref(), other.pod.as_ref())
            && same(self.pvc.as_ref(), other.pvc.as_ref())
            && self.pvc_unknown == other.pvc_unknown
    }
}

fn same<T>(a: Option<&Arc<T>>, b: Option<&Arc<T>>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        (None, None) => true,
        _ => false,
    }
}

/// The last view of each cluster. It holds what that was made from, so that no other object can take its place
/// in memory and be taken for it.
#[derive(Default)]
pub(super) struct LastViews(Mutex<HashMap<Uid, (Shown, SeenCluster)>>);

impl LastViews {
    /// The view of `shown`: the last one if nothing has changed since, else what `view` makes of it.
    pub(super) fn of(
        &self,
        cluster: &Uid,
        shown: Shown,
        view: impl FnOnce(&Shown) -> SeenCluster,
    ) -> SeenCluster {
        // Entries are whole values, so a panic elsewhere leaves nothing half done.
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((last, seen)) = known().get(cluster)
            && last.is(&shown)
        {
            return seen.clone();
        }
        let seen = view(&shown);
        if shown.is_nothing() {
            // The cluster is gone with all that was its own, and so is the need to remember it.
            known().remove(cluster);
        } else {
            known().insert(cluster.clone(), (shown, seen.clone()));
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use etcd_operator_api::EtcdClusterSpec;
    use etcd_operator_core::view::{BudgetState, Presence};
    use serde_json::json;

    use super::*;

    fn member() -> Arc<EtcdMember> {
        let spec = json!({"clusterName": "c", "version": "3.6.16", "storage": {}, "initialCluster": "",
            "clusterToken": "t"});
        let object = json!({"apiVersion": "etcd-operator.cozystack.io/v1alpha2", "kind": "EtcdMember",
            "metadata": {"name": "m", "namespace": "ns"}, "spec": spec});
        Arc::new(serde_json::from_value(object).unwrap())
    }

    fn shown() -> Shown {
        let cluster = EtcdCluster::new("c", EtcdClusterSpec::new("3.6.16"));
        let member =
            ShownMember { object: member(), pod: Some(Arc::default()), pvc: None, pvc_unknown: false };
        Shown {
            cluster: Some(Arc::new(cluster)),
            headless: Some(Arc::default()),
            client: None,
            budget: None,
            members: vec![member],
        }
    }

    fn again(of: &Shown) -> Shown {
        let members = of.members.iter().map(|m| ShownMember {
            object: m.object.clone(),
            pod: m.pod.clone(),
            pvc: m.pvc.clone(),
            pvc_unknown: m.pvc_unknown,
        });
        Shown {
            cluster: of.cluster.clone(),
            headless: of.headless.clone(),
            client: of.client.clone(),
            budget: of.budget.clone(),
            members: members.collect(),
        }
    }

    /// Whether a look at `then` after one at `now` makes a view of its own.
    fn is_new(now: Shown, then: Shown) -> bool {
        let (views, made) = (LastViews::default(), Cell::new(0));
        for shown in [now, then] {
            views.of(&"uid".into(), shown, |_| {
                made.set(made.get() + 1);
                let (services, version) = (Default::default(), made.get().to_string());
                let own_version = String::new();
                let (cluster, budget) = (Presence::Absent, BudgetState::Absent);
                SeenCluster { cluster, services, budget, members: vec![], version, own_version }
            });
        }
        made.get() == 2
    }

    #[test]
    fn the_same_objects_give_the_same_view() {
        let now = shown();
        let then = again(&now);
        assert!(!is_new(now, then));
    }

    #[test]
    fn any_other_object_gives_a_view_of_its_own() {
        let changes: [fn(&mut Shown); 10] = [
            |s| s.cluster = s.cluster.take().map(|c| Arc::new((*c).clone())),
            |s| s.headless = Some(Arc::default()),
            |s| s.headless = None,
            |s| s.client = Some(Arc::default()),
            |s| s.budget = Some(Arc::default()),
            |s| s.members.clear(),
            |s| s.members[0].object = member(),
            |s| s.members[0].pod = Some(Arc::default()),
            |s| s.members[0].pvc = Some(Arc::default()),
            |s| s.members[0].pvc_unknown = true,
        ];
        for (n, change) in changes.into_iter().enumerate() {
            let now = shown();
            let mut then = again(&now);
            change(&mut then);
            assert!(is_new(now, then), "change {n} was not seen");
        }
    }

    #[test]
    fn a_cluster_that_is_gone_is_forgotten() {
        let views = LastViews::default();
        let view = |_: &Shown| SeenCluster {
            cluster: Presence::Absent,
            services: Default::default(),
            budget: BudgetState::Absent,
            members: vec![],
            version: String::new(),
            own_version: String::new(),
        };
        views.of(&"uid".into(), shown(), view);
        let nothing = Shown { cluster: None, headless: None, client: None, budget: None, members: vec![] };
        views.of(&"uid".into(), nothing, view);
        assert!(views.0.lock().unwrap().is_empty());
    }
}
