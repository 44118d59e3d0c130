//! Owns the Kubernetes objects of the fake world, as the API server holds them and as the watch
//! stores show them, and what the stores do not show yet. Does no I/O.

use std::collections::{BTreeMap, VecDeque};

use etcd_operator_actors::{ClusterKey, MemberKey};
use etcd_operator_core::{
    ids::Uid,
    reason::Reason,
    report::Report,
    time::Time,
    view::{BudgetState, ClusterView, MemberView, PodView, PvcView, ServiceKind, ServiceState},
};

/// The kinds, each with a watch and a store of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Cluster,
    Member,
    Pod,
    Pvc,
    Service,
    Budget,
}

impl Kind {
    pub(crate) const ALL: [Kind; 6] =
        [Kind::Cluster, Kind::Member, Kind::Pod, Kind::Pvc, Kind::Service, Kind::Budget];
}

#[derive(Debug, Clone)]
pub(crate) struct ClusterObj {
    pub(crate) key: ClusterKey,
    pub(crate) rv: u64,
    pub(crate) view: ClusterView,
    pub(crate) status: Option<Report>,
}

#[derive(Debug, Clone)]
pub(crate) struct MemberObj {
    pub(crate) key: MemberKey,
    pub(crate) rv: u64,
    pub(crate) view: MemberView,
    pub(crate) trouble: Option<(Reason, String)>,
}

#[derive(Debug, Clone)]
pub(crate) struct PodObj {
    pub(crate) member: MemberKey,
    pub(crate) rv: u64,
    pub(crate) view: PodView,
    pub(crate) pvc_uid: Uid,
}

#[derive(Debug, Clone)]
pub(crate) struct PvcObj {
    pub(crate) member: MemberKey,
    pub(crate) rv: u64,
    pub(crate) view: PvcView,
}

#[derive(Debug, Clone)]
pub(crate) struct ServiceObj {
    pub(crate) cluster: ClusterKey,
    pub(crate) state: ServiceState,
}

#[derive(Debug, Clone)]
pub(crate) struct BudgetObj {
    pub(crate) cluster: ClusterKey,
    pub(crate) rv: u64,
    pub(crate) state: BudgetState,
}

/// One object as a write left it; none when the write took it away.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "a few hundred in a test")]
pub(crate) enum Object {
    Cluster(Uid, Option<ClusterObj>),
    Member(Uid, Option<MemberObj>),
    /// By the name of its member.
    Pod(String, Option<PodObj>),
    /// By the name of its member.
    Pvc(String, Option<PvcObj>),
    Service((Uid, ServiceKind), Option<ServiceObj>),
    /// By the UID of its cluster.
    Budget(Uid, Option<BudgetObj>),
}

impl Object {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Object::Cluster(..) => Kind::Cluster,
            Object::Member(..) => Kind::Member,
            Object::Pod(..) => Kind::Pod,
            Object::Pvc(..) => Kind::Pvc,
            Object::Service(..) => Kind::Service,
            Object::Budget(..) => Kind::Budget,
        }
    }
}

/// A set of objects.
#[derive(Debug, Clone, Default)]
pub(crate) struct Objects {
    pub(crate) clusters: BTreeMap<Uid, ClusterObj>,
    pub(crate) members: BTreeMap<Uid, MemberObj>,
    pub(crate) pods: BTreeMap<String, PodObj>,
    pub(crate) pvcs: BTreeMap<String, PvcObj>,
    pub(crate) services: BTreeMap<(Uid, ServiceKind), ServiceObj>,
    pub(crate) budgets: BTreeMap<Uid, BudgetObj>,
}

fn put<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) -> Option<V> {
    match value {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    }
}

impl Objects {
    /// Takes an object in. Returns the cluster whose object it is or was.
    pub(crate) fn put(&mut self, object: Object) -> Option<ClusterKey> {
        match object {
            Object::Cluster(k, new) => {
                let now = new.as_ref().map(|o| o.key.clone());
                put(&mut self.clusters, k, new).map(|o| o.key).or(now)
            }
            Object::Member(k, new) => {
                let now = new.as_ref().map(|o| o.key.cluster.clone());
                put(&mut self.members, k, new).map(|o| o.key.cluster).or(now)
            }
            Object::Pod(k, new) => {
                let now = new.as_ref().map(|o| o.member.cluster.clone());
                put(&mut self.pods, k, new).map(|o| o.member.cluster).or(now)
            }
            Object::Pvc(k, new) => {
                let now = new.as_ref().map(|o| o.member.cluster.clone());
                put(&mut self.pvcs, k, new).map(|o| o.member.cluster).or(now)
            }
            Object::Service(k, new) => {
                let now = new.as_ref().map(|o| o.cluster.clone());
                put(&mut self.services, k, new).map(|o| o.cluster).or(now)
            }
            Object::Budget(k, new) => {
                let now = new.as_ref().map(|o| o.cluster.clone());
                put(&mut self.budgets, k, new).map(|o| o.cluster).or(now)
            }
        }
    }

    /// The members of one cluster, by name.
    pub(crate) fn members_of<'a>(&'a self, cluster: &'a Uid) -> impl Iterator<Item = &'a MemberObj> {
        let mut members: Vec<_> = self.members.values().filter(|m| m.key.cluster.uid == *cluster).collect();
        members.sort_by(|a, b| a.view.name.cmp(&b.view.name));
        members.into_iter()
    }
}

/// The watch stores: filled kind by kind, each event after a delay of its kind, in order.
#[derive(Debug, Default)]
pub(crate) struct Stores {
    pub(crate) objects: Objects,
    filled: BTreeMap<Kind, bool>,
    delay_ms: BTreeMap<Kind, u64>,
    queue: BTreeMap<Kind, VecDeque<(Time, Object)>>,
}

impl Stores {
    pub(crate) fn new(delay_ms: u64) -> Self {
        Stores {
            filled: Kind::ALL.into_iter().map(|kind| (kind, true)).collect(),
            delay_ms: Kind::ALL.into_iter().map(|kind| (kind, delay_ms)).collect(),
            ..Self::default()
        }
    }

    pub(crate) fn is_filled(&self, kind: Kind) -> bool {
        self.filled.get(&kind).copied().unwrap_or(false)
    }

    pub(crate) fn set_filled(&mut self, kind: Kind, filled: bool) {
        self.filled.insert(kind, filled);
    }

    /// How long an event of this kind is on its way from now on.
    pub(crate) fn set_delay(&mut self, kind: Kind, ms: u64) {
        self.delay_ms.insert(kind, ms);
    }

    pub(crate) fn send(&mut self, now: Time, object: Object) {
        let kind = object.kind();
        let due = Time(now.0 + self.delay_ms.get(&kind).copied().unwrap_or(0));
        let queue = self.queue.entry(kind).or_default();
        let due = queue.back().map_or(due, |(last, _)| due.max(*last));
        queue.push_back((due, object));
    }

    /// Takes in what is due. Returns the clusters that were touched, and when the next is due.
    pub(crate) fn deliver(&mut self, now: Time) -> (Vec<ClusterKey>, Option<Time>) {
        let mut touched = vec![];
        let mut next: Option<Time> = None;
        for queue in self.queue.values_mut() {
            while queue.front().is_some_and(|(due, _)| *due <= now) {
                let Some((_, object)) = queue.pop_front() else { break };
                touched.extend(self.objects.put(object));
            }
            if let Some((due, _)) = queue.front() {
                next = Some(next.map_or(*due, |n| n.min(*due)));
            }
        }
        (touched, next)
    }
}
