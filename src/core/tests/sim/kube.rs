//! The simulated API server: objects with UIDs and resource versions, preconditions, finalizers,
//! the garbage collector and the kubelet. Owns the truth about Kubernetes objects.

use std::sync::Arc;

use etcd_operator_core::{
    ids::{ClusterId, MemberName, PeerUrl, Uid},
    roll::{Blueprint, Permit},
    time::Time,
    view::{
        BudgetState, ClusterRecord, ClusterView, MemberRecord, MemberView, PodView, PvcView, ServiceState,
    },
};

use super::calls::ApiCall;

/// A member's number: the n-th EtcdMember that was ever created.
pub(crate) type M = usize;

#[derive(Clone, Debug)]
pub(crate) struct ClusterObj {
    pub(crate) rv: u64,
    pub(crate) view: ClusterView,
    /// A digest of the conditions as last written: a changed text costs a write.
    pub(crate) conditions: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct MemberObj {
    pub(crate) m: M,
    pub(crate) rv: u64,
    pub(crate) view: MemberView,
}

#[derive(Clone, Debug)]
pub(crate) struct PodObj {
    pub(crate) m: M,
    pub(crate) rv: u64,
    pub(crate) view: PodView,
    /// The PVC that it mounts, once it is scheduled.
    pub(crate) mounted: Option<Uid>,
    /// Its node is lost: nothing happens to it until the node comes back.
    pub(crate) node_lost: bool,
    /// Where its data is if that is in memory.
    pub(crate) memory: Option<usize>,
    /// The spec that its member had when it was made.
    pub(crate) made_from: Blueprint,
}

#[derive(Clone, Debug)]
pub(crate) struct PvcObj {
    pub(crate) m: M,
    pub(crate) view: PvcView,
    pub(crate) volume: usize,
    /// No node has its volume any more, until the node comes back.
    pub(crate) node_gone: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BudgetObj {
    pub(crate) rv: u64,
    pub(crate) state: BudgetState,
    /// It came, or was edited by hand, when what it guards had gone on without it: until it is put right it
    /// is as little use as none.
    pub(crate) behind: bool,
}

/// One kind's objects. Shared, so that a store is filled by a cheap copy.
pub(crate) type Kind<T> = Vec<Arc<T>>;

#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) cluster: Option<Arc<ClusterObj>>,
    pub(crate) services: [ServiceState; 2],
    pub(crate) budget: Option<BudgetObj>,
    pub(crate) members: Kind<MemberObj>,
    pub(crate) pods: Kind<PodObj>,
    pub(crate) pvcs: Kind<PvcObj>,
    pub(crate) counter: u64,
    pub(crate) names: usize,
    pub(crate) writes: u64,
    /// Members keep their data in memory.
    pub(crate) memory: bool,
}

/// A PVC of the right size.
pub(crate) fn pvc_view(uid: Uid, ours: bool) -> PvcView {
    let size = Some(1);
    PvcView {
        uid,
        ours,
        deleting: false,
        labels_right: ours,
        requested: size,
        capacity: size,
        resize_pending: None,
    }
}

/// The parts of a spec with this template.
pub(crate) fn blueprint_of(template: &str) -> Blueprint {
    let version = Some(etcd_operator_core::version::EtcdVersion::new(3, 6, 16));
    Blueprint { version, size: Some(1), pod: template.into(), metadata: String::new() }
}

pub(crate) fn url_of(m: M) -> PeerUrl {
    PeerUrl(format!("http://m{m}.c.ns.svc:2380"))
}

/// The ID of the cluster that this member forms alone.
pub(crate) fn founded_by(m: M) -> ClusterId {
    ClusterId(7_000 + m as u64)
}

pub(crate) fn name_of(m: M) -> MemberName {
    MemberName(format!("m{m}"))
}

pub(crate) fn member_of(name: &str) -> Option<M> {
    name.strip_prefix('m')?.parse().ok()
}

impl Server {
    pub(crate) fn new(replicas: usize, memory: bool) -> Self {
        let view = ClusterView {
            name: "c".into(),
            uid: "cluster".into(),
            deleting: false,
            paused: false,
            refused: vec![],
            replicas,
            template: "t".into(),
            blueprint: blueprint_of("t"),
            rolls: true,
            recover_from: None,
            warnings: vec![],
            progress_deadline_seconds: 600,
            recorded: ClusterRecord::default(),
        };
        Server {
            cluster: Some(Arc::new(ClusterObj { rv: 1, view, conditions: 0 })),
            services: [ServiceState::Absent; 2],
            budget: None,
            members: vec![],
            pods: vec![],
            pvcs: vec![],
            counter: 1,
            names: 0,
            writes: 0,
            memory,
        }
    }

    /// What members are made from now.
    pub(crate) fn target(&self) -> Option<Blueprint> {
        Some(self.cluster.as_ref()?.view.recorded.target.as_ref()?.blueprint.clone())
    }

    fn next(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    pub(crate) fn new_version(&mut self) -> u64 {
        self.next()
    }

    pub(crate) fn new_uid(&mut self, of: &str) -> Uid {
        Uid(format!("{of}{}", self.next()))
    }

    pub(crate) fn member(&self, m: M) -> Option<&Arc<MemberObj>> {
        self.members.iter().find(|o| o.m == m)
    }

    pub(crate) fn pod(&self, m: M) -> Option<&Arc<PodObj>> {
        self.pods.iter().find(|o| o.m == m)
    }

    pub(crate) fn pvc(&self, m: M) -> Option<&Arc<PvcObj>> {
        self.pvcs.iter().find(|o| o.m == m)
    }

    /// Changes the EtcdCluster, as its user or by a status write.
    pub(crate) fn edit_cluster(&mut self, change: impl FnOnce(&mut ClusterObj)) {
        let rv = self.next();
        if let Some(cluster) = &mut self.cluster {
            let cluster = Arc::make_mut(cluster);
            change(cluster);
            cluster.rv = rv;
        }
    }

    pub(crate) fn edit_member(&mut self, m: M, change: impl FnOnce(&mut MemberObj)) {
        let rv = self.next();
        if let Some(object) = self.members.iter_mut().find(|o| o.m == m) {
            let object = Arc::make_mut(object);
            change(object);
            object.rv = rv;
        }
        self.members.retain(|o| o.view.deleting.is_none() || o.view.finalizer);
    }

    pub(crate) fn edit_pod(&mut self, m: M, change: impl FnOnce(&mut PodObj)) {
        let rv = self.next();
        if let Some(object) = self.pods.iter_mut().find(|o| o.m == m) {
            let object = Arc::make_mut(object);
            change(object);
            object.rv = rv;
        }
    }

    pub(crate) fn edit_pvc(&mut self, m: M, change: impl FnOnce(&mut PvcObj)) {
        if let Some(object) = self.pvcs.iter_mut().find(|o| o.m == m) {
            change(Arc::make_mut(object));
        }
    }

    /// A DELETE on an EtcdMember, by whomever.
    pub(crate) fn delete_member(&mut self, m: M, now: Time) {
        self.edit_member(m, |o| {
            o.view.deleting.get_or_insert(now);
        });
    }

    /// Carries out a write. False when a precondition did not hold.
    pub(crate) fn apply(
        &mut self,
        call: &ApiCall,
        now: Time,
        new_volume: &mut impl FnMut() -> usize,
    ) -> bool {
        let done = self.try_apply(call, now, new_volume);
        self.writes += u64::from(done);
        done
    }

    fn try_apply(&mut self, call: &ApiCall, now: Time, new_volume: &mut impl FnMut() -> usize) -> bool {
        match call {
            ApiCall::Status { rv, record, conditions } => {
                let right = self.cluster.as_ref().is_some_and(|c| c.rv == *rv);
                if right {
                    self.edit_cluster(|c| {
                        c.view.recorded = (**record).clone();
                        c.conditions = *conditions;
                    });
                }
                right
            }
            ApiCall::PutService(kind) => {
                let state = &mut self.services[*kind as usize];
                let mine = *state != ServiceState::Foreign;
                if mine {
                    *state = ServiceState::Right;
                }
                mine && self.cluster.is_some()
            }
            ApiCall::PutBudget { rv, floor } => {
                // A create of a name that is taken is refused, a patch of another version too.
                let right = self.budget.map(|b| b.rv) == *rv && self.cluster.is_some();
                if right && self.budget.is_none_or(|b| b.state != BudgetState::Foreign) {
                    let state = BudgetState::Present { min_available: *floor, right: true };
                    self.budget = Some(BudgetObj { rv: self.next(), state, behind: false });
                }
                right
            }
            ApiCall::DeleteBudget { rv } => {
                let right = self.budget.is_some_and(|b| b.rv == *rv);
                self.budget = self.budget.filter(|_| !right);
                right
            }
            ApiCall::CreateMember { seed } => {
                if self.cluster.is_none() {
                    return false;
                }
                let m = self.names;
                self.names += 1;
                let (rv, uid) = (self.next(), self.new_uid("member"));
                let view = MemberView {
                    name: name_of(m),
                    uid,
                    peer_url: url_of(m),
                    seed: *seed,
                    founds: founded_by(m),
                    dormant: false,
                    memory: self.memory,
                    blueprint: self.target().unwrap_or_else(|| blueprint_of("t")),
                    generation: 1,
                    pod_generation: 0,
                    permit: None,
                    initial_cluster: String::new(),
                    created: now,
                    deleting: None,
                    finalizer: true,
                    recorded: MemberRecord::default(),
                };
                self.members.push(Arc::new(MemberObj { m, rv, view }));
                true
            }
            ApiCall::DeleteMember { m, rv } => self.guarded(*m, *rv, |s| s.delete_member(*m, now)),
            ApiCall::Dormant { m, rv, dormant } => {
                self.guarded(*m, *rv, |s| s.edit_member(*m, |o| o.view.dormant = *dormant))
            }
            ApiCall::Update { m, rv, blueprint, permit } => self.guarded(*m, *rv, |s| {
                s.edit_member(*m, |o| {
                    if o.view.blueprint != *blueprint {
                        o.view.generation += 1;
                        o.view.pod_generation = o.view.generation;
                    }
                    o.view.blueprint = blueprint.clone();
                    if let Some(permit) = permit {
                        let generation = if permit.generation > 0 { o.view.generation } else { 0 };
                        o.view.permit = Some(Permit { generation, ..permit.clone() });
                    }
                });
            }),
            ApiCall::ClearPermit { m, rv } => {
                self.guarded(*m, *rv, |s| s.edit_member(*m, |o| o.view.permit = None))
            }
            ApiCall::RecordJoin { m, rv, initial_cluster } => self.guarded(*m, *rv, |s| {
                s.edit_member(*m, |o| o.view.initial_cluster.clone_from(initial_cluster));
            }),
            ApiCall::Record { m, rv, record } => {
                self.guarded(*m, *rv, |s| s.edit_member(*m, |o| o.view.recorded = record.clone()))
            }
            ApiCall::Release { m, rv } => {
                self.guarded(*m, *rv, |s| s.edit_member(*m, |o| o.view.finalizer = false))
            }
            ApiCall::CreatePvc { m } => {
                if self.pvc(*m).is_some() {
                    return false;
                }
                let uid = self.new_uid("pvc");
                let view = pvc_view(uid, true);
                self.pvcs.push(Arc::new(PvcObj { m: *m, view, volume: new_volume(), node_gone: false }));
                true
            }
            ApiCall::PatchPvc { m, uid } => {
                let right = self.pvc(*m).is_some_and(|o| o.view.uid == *uid);
                if right {
                    self.edit_pvc(*m, |o| o.view.labels_right = true);
                }
                right
            }
            ApiCall::DeletePvc { m, uid } => {
                let right = self.pvc(*m).is_some_and(|o| o.view.uid == *uid);
                if right {
                    self.edit_pvc(*m, |o| o.view.deleting = true);
                }
                right
            }
            ApiCall::CreateRecoveryPod { m, instruction, blueprint } => {
                let create = ApiCall::CreatePod {
                    m: *m,
                    instruction: instruction.clone(),
                    generation: 0,
                    blueprint: blueprint.clone(),
                };
                let made = self.try_apply(&create, now, new_volume);
                if made {
                    self.edit_pod(*m, |o| o.view.rewrites = true);
                }
                made
            }
            ApiCall::CreatePod { m, instruction, generation, blueprint } => {
                if self.pod(*m).is_some() {
                    return false;
                }
                let (rv, uid) = (self.next(), self.new_uid("pod"));
                let view = PodView {
                    uid,
                    ours: true,
                    created: Time(0),
                    deleting: false,
                    ended: false,
                    ip: None,
                    node: None,
                    zone: None,
                    started: false,
                    ready: false,
                    voter_label: false,
                    labels_right: true,
                    instruction: Some(instruction.clone()),
                    trouble: None,
                    restarts: 0,
                    rewrites: false,
                    made_from: *generation,
                };
                let memory = self.memory.then(&mut *new_volume);
                let made_from = blueprint.clone();
                let pod = PodObj { m: *m, rv, view, mounted: None, node_lost: false, memory, made_from };
                self.pods.push(Arc::new(pod));
                true
            }
            ApiCall::DeletePod { m, uid } | ApiCall::EvictPod { m, uid } => {
                let right = self.pod(*m).is_some_and(|o| o.view.uid == *uid);
                if right {
                    self.edit_pod(*m, |o| o.view.deleting = true);
                }
                right
            }
            ApiCall::PatchPod { m, rv, instruction, voter_label } => {
                let right = self.pod(*m).is_some_and(|o| o.rv == *rv);
                if right {
                    self.edit_pod(*m, |o| {
                        o.view.instruction = Some(instruction.clone());
                        o.view.voter_label = *voter_label;
                        o.view.labels_right = true;
                    });
                }
                right
            }
        }
    }

    fn guarded(&mut self, m: M, rv: u64, effect: impl FnOnce(&mut Self)) -> bool {
        let right = self.member(m).is_some_and(|o| o.rv == rv);
        if right {
            effect(self);
        }
        right
    }

    /// The garbage collector: what belongs to an owner that is gone goes too; a volume stays as long
    /// as a Pod that was scheduled uses it. Returns whether anything changed.
    pub(crate) fn collect_garbage(&mut self, now: Time) -> bool {
        let before = (self.members.len(), self.pods.len(), self.pvcs.len(), self.counter);
        if self.cluster.as_ref().is_some_and(|c| c.view.deleting) {
            self.cluster = None;
            self.budget = None;
        }
        if self.cluster.is_none() {
            let all: Vec<M> =
                self.members.iter().filter(|o| o.view.deleting.is_none()).map(|o| o.m).collect();
            for m in all {
                self.delete_member(m, now);
            }
        }
        let orphaned = |s: &Self, m: M, ours: bool| ours && s.member(m).is_none();
        let pods: Vec<M> = self
            .pods
            .iter()
            .filter(|o| orphaned(self, o.m, o.view.ours) && !o.view.deleting)
            .map(|o| o.m)
            .collect();
        for m in pods {
            self.edit_pod(m, |o| o.view.deleting = true);
        }
        let pvcs: Vec<M> = self
            .pvcs
            .iter()
            .filter(|o| orphaned(self, o.m, o.view.ours) && !o.view.deleting)
            .map(|o| o.m)
            .collect();
        for m in pvcs {
            self.edit_pvc(m, |o| o.view.deleting = true);
        }
        let pods = &self.pods;
        self.pvcs.retain(|v| {
            !v.view.deleting || pods.iter().any(|p| p.mounted.as_ref() == Some(&v.view.uid) && !p.view.ended)
        });
        before != (self.members.len(), self.pods.len(), self.pvcs.len(), self.counter)
    }
}
