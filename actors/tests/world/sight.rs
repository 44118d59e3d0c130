//! What the watch stores of the fake Kubernetes show, as the actors' port for it.

use std::collections::BTreeMap;

use etcd_operator_actors::{ClusterKey, SeenCluster, SeenMember, Sight};
use etcd_operator_core::{
    ids::ClusterId,
    view::{BudgetState, Presence, ServiceKind, ServiceState},
};
use etcd_operator_etcd::{Expected, Target};

use super::{
    hands::FakeApi,
    objects::{Kind, MemberObj, Objects, PodObj},
    shared::State,
};

/// An object of one kind as a store shows it: unknown before the store is filled.
fn shown<T: Clone>(filled: bool, object: Option<T>) -> Presence<T> {
    match (filled, object) {
        (false, _) => Presence::Unknown,
        (true, None) => Presence::Absent,
        (true, Some(object)) => Presence::Present(object),
    }
}

/// A cluster as seen: EtcdCluster and EtcdMembers from `objects`, the rest from the stores.
pub(super) fn seen(state: &State, objects: &Objects, key: &ClusterKey, filled: bool) -> SeenCluster {
    let stores = &state.stores;
    let cluster = objects.clusters.get(&key.uid);
    let own_version = format!("{:?}", cluster.map(|c| c.rv));
    let mut version = own_version.clone();
    let members = objects.members_of(&key.uid).map(|m| {
        let name = m.view.name.as_str();
        let pod = stores.objects.pods.get(name).filter(|p| p.view.ours);
        let pvc = stores.objects.pvcs.get(name);
        version.push_str(&format!(",{}", m.rv));
        SeenMember {
            member: m.view.clone(),
            pod: shown(stores.is_filled(Kind::Pod), stores.objects.pods.get(name).map(|p| p.view.clone())),
            pvc: shown(stores.is_filled(Kind::Pvc), pvc.map(|p| p.view.clone())),
            target: pod
                .filter(|_| stores.is_filled(Kind::Pod))
                .and_then(|p| target(p, m, cluster.and_then(|c| c.view.recorded.cluster_id))),
            version: format!("{} {:?} {:?}", m.rv, pod.map(|p| p.rv), pvc.map(|p| p.rv)),
        }
    });
    let members = if filled { members.collect() } else { vec![] };
    let service = |kind| {
        let found = stores.objects.services.get(&(key.uid.clone(), kind));
        match (stores.is_filled(Kind::Service), found) {
            (false, _) => ServiceState::Unknown,
            (true, None) => ServiceState::Absent,
            (true, Some(service)) => service.state,
        }
    };
    let services: BTreeMap<_, _> =
        [ServiceKind::Headless, ServiceKind::Client].into_iter().map(|k| (k, service(k))).collect();
    version.push_str(&format!(" {services:?}"));
    let budget = match (stores.is_filled(Kind::Budget), stores.objects.budgets.get(&key.uid)) {
        (false, _) => BudgetState::Unknown,
        (true, None) => BudgetState::Absent,
        (true, Some(budget)) => budget.state,
    };
    version.push_str(&format!(" {budget:?}"));
    let cluster = shown(filled, cluster.map(|c| c.view.clone()));
    SeenCluster { cluster, services, budget, members, version, own_version }
}

fn target(pod: &PodObj, m: &MemberObj, cluster_id: Option<ClusterId>) -> Option<Target> {
    let expected = Expected { cluster_id, member_id: m.view.recorded.member_id };
    let host = m.view.peer_url.as_str().trim_start_matches("http://").trim_end_matches(":2380").to_owned();
    Some(Target::new(m.view.name.clone(), pod.view.uid.clone(), pod.view.ip?, host, expected))
}

impl Sight for FakeApi {
    fn owners(&self, namespace: &str, name: &str) -> Vec<ClusterKey> {
        let state = self.0.lock();
        if !state.is_filled(&[Kind::Cluster, Kind::Member]) {
            return vec![];
        }
        let stores = &state.stores.objects;
        let mut keys: Vec<ClusterKey> = stores.clusters.values().map(|c| c.key.clone()).collect();
        keys.extend(stores.members.values().map(|m| m.key.cluster.clone()));
        keys.retain(|k| k.namespace == namespace && k.name == name);
        keys.sort();
        keys.dedup();
        keys
    }

    fn cluster(&self, key: &ClusterKey) -> SeenCluster {
        let mut state = self.0.lock();
        state.journal.sights += 1;
        seen(&state, &state.stores.objects, key, state.is_filled(&[Kind::Cluster, Kind::Member]))
    }
}
