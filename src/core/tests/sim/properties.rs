//! What must hold at every moment. Each check sees the truth of the world, which no actor sees.

use std::collections::{BTreeMap, BTreeSet};

use etcd_operator_core::{
    etcd::{MemberList, quorum},
    ids::{MemberId, Uid},
    membership::{Call, Change, STEADY},
    time::Time,
    view::{BudgetState, JoinInstruction},
};

use super::{
    calls::ApiCall,
    faults::STRANGER,
    kube::{M, MemberObj, url_of},
    world::World,
};

/// What the properties remember.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    /// The volume on which a member first ran.
    first_volume: BTreeMap<M, Uid>,
    /// Pods of members that were parked. One may still go when the member is woken meanwhile.
    pub(crate) condemned: BTreeSet<Uid>,
    /// Pods of members in memory that a former life of the operator made late. Kubernetes knows no condition for a
    /// create, so such a Pod may come after the one that had the data; no client is led to it.
    late: BTreeSet<Uid>,
    /// Pods that were ended for a restart.
    restarted: Vec<Uid>,
    /// Clusters of one that a recovery has made.
    pub(crate) forced: BTreeSet<usize>,
    /// A person took the finalizers off or removed members by hand: some things are then not ours.
    pub(crate) by_hand: bool,
}

/// The truth at the moment at which the guard looked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Truth {
    /// Members whose own process ran and, for voters, served.
    pub(crate) healthy: Vec<MemberId>,
    /// The same, at the second look.
    pub(crate) second: Option<(Time, Vec<MemberId>)>,
    pub(crate) looked: Time,
    /// Changes that the operator had made when the list was read.
    pub(crate) version: u64,
}

impl World {
    /// Members of this cluster whose process runs, with quorum if they vote.
    pub(crate) fn truly_healthy(&self, instance: usize) -> Vec<MemberId> {
        let alive = |id| self.etcd.process_of(id, instance).is_some();
        let i = &self.etcd.instances[instance];
        let quorate = self.etcd.has_quorum(instance);
        i.members.iter().filter(|l| alive(l.id) && (l.learner || quorate)).map(|l| l.id).collect()
    }

    fn cluster_stays(&self) -> bool {
        self.server.cluster.as_ref().is_some_and(|c| !c.view.deleting)
    }

    /// Whether etcd still counts on this member, or a call in flight could make it.
    fn still_listed(&self, m: M) -> bool {
        let listed = self
            .etcd
            .instances
            .iter()
            .any(|i| i.acknowledged && !i.superseded && i.members.iter().any(|l| l.m == m));
        let coming = self
            .flights
            .iter()
            .any(|f| f.until > self.now && matches!(&f.call, Call::Add(url) if *url == url_of(m)));
        listed || coming
    }

    pub(crate) fn before_write(&mut self, call: &ApiCall) {
        let recorded = self.server.cluster.as_ref().is_some_and(|c| c.view.recorded.cluster_id.is_some());
        match call {
            ApiCall::DeletePvc { m, uid } => {
                let there = self.server.pvc(*m).is_some_and(|v| v.view.uid == *uid);
                if there && self.cluster_stays() && self.still_listed(*m) {
                    self.violated(|| format!("the PVC of m{m} is deleted while etcd lists the member"));
                }
            }
            ApiCall::Release { m, rv } => {
                let right = self.server.member(*m).is_some_and(|o| o.rv == *rv);
                if right && self.cluster_stays() && self.still_listed(*m) {
                    self.violated(|| format!("m{m} is let go while etcd lists it"));
                }
            }
            ApiCall::DeletePod { m, uid } => {
                let runs = self.server.pod(*m).is_some_and(|p| {
                    p.view.uid == *uid && !p.view.ended && p.mounted.is_some() && !p.view.rewrites
                });
                let stays = self.server.member(*m).is_some_and(|o| o.view.stays() && !o.view.dormant);
                let permitted = self.server.member(*m).is_some_and(|o| {
                    o.view.permit.as_ref().is_some_and(|p| {
                        self.server
                            .pod(*m)
                            .is_some_and(|pod| pod.view.uid == *uid && !p.is_done_by(&pod.view))
                    })
                });
                if permitted {
                    self.check_end(*m, uid);
                } else if runs && stays && self.cluster_stays() && !self.ledger.condemned.contains(uid) {
                    self.violated(|| format!("the Pod of m{m} is taken down though its member stays"));
                }
            }
            ApiCall::EvictPod { m, uid } => self.check_end(*m, uid),
            ApiCall::Dormant { m, rv, dormant: true } => {
                let right = self.server.member(*m).is_some_and(|o| o.rv == *rv);
                let others = self.main_instance().is_none_or(|index| {
                    self.etcd.instances[index].members.iter().any(|l| l.m != *m && l.m != STRANGER)
                });
                if let Some(pod) = self.server.pod(*m).filter(|_| right) {
                    self.ledger.condemned.insert(pod.view.uid.clone());
                }
                if right && others {
                    self.violated(|| format!("m{m} is parked and is not the whole cluster"));
                }
            }
            ApiCall::CreateMember { seed: true } if recorded && !self.landing_late => {
                self.violated(|| "a seed is created though the cluster ID is recorded".into());
            }
            ApiCall::PatchPod { m, rv, voter_label: true, .. } => {
                let right = self.server.pod(*m).is_some_and(|p| p.rv == *rv);
                if right && !recorded && self.cluster_stays() {
                    self.violated(|| format!("clients are led to m{m} before the cluster ID is recorded"));
                }
            }
            _ => {}
        }
    }

    pub(crate) fn after_write(&mut self, call: &ApiCall) {
        self.condemn_for_recovery(call);
        if let ApiCall::CreatePod { m, .. } = call
            && self.landing_late
            && let Some(pod) = self.server.pod(*m).filter(|p| p.memory.is_some())
        {
            self.ledger.late.insert(pod.view.uid.clone());
        }
        if let ApiCall::CreatePod { m, .. } = call
            && self.server.member(*m).is_some_and(|o| o.view.dormant)
            && let Some(pod) = self.server.pod(*m)
        {
            self.ledger.condemned.insert(pod.view.uid.clone());
        }
        match call {
            ApiCall::PatchPod { m, voter_label: true, .. } => {
                self.acknowledge(*m);
                self.check_budget();
            }
            // Until it came there was none, which was worse.
            ApiCall::PutBudget { rv: None, .. } => {
                let behind = self.evictions_lose().is_some();
                if let Some(budget) = &mut self.server.budget {
                    budget.behind = behind;
                }
            }
            ApiCall::PutBudget { .. } => self.check_budget(),
            _ => {}
        }
    }

    /// While every voter runs, evictions that the budget allows leave a quorum.
    fn check_budget(&mut self) {
        if let Some(words) = self.evictions_lose() {
            self.violated(|| words);
        }
    }

    /// How evictions that the budget allows would lose the quorum; none if they would not, if a voter is down
    /// anyway or not wanted up, or if it is not the operator's budget.
    fn evictions_lose(&self) -> Option<String> {
        let budget = self.server.budget.filter(|b| !b.behind)?;
        let BudgetState::Present { min_available: floor, .. } = budget.state else { return None };
        let index = self.main_instance()?;
        let pods = self.server.pods.iter().filter(|p| p.view.voter_label && !p.view.deleting);
        let process = |pod: &Uid| self.etcd.processes.iter().find(|p| p.pod == *pod && p.instance == index);
        let labelled: Vec<MemberId> = pods.filter_map(|p| Some(process(&p.view.uid)?.id)).collect();
        let voters: Vec<MemberId> = self.etcd.instances[index].voters().map(|l| l.id).collect();
        let asleep = self.server.members.iter().any(|o| o.view.dormant);
        if asleep || self.etcd.alive_voters(index) < voters.len() {
            return None;
        }
        let voting = labelled.iter().filter(|id| voters.contains(id)).count();
        let evicted = labelled.len().saturating_sub(floor).min(voting);
        let left = voters.len() - evicted;
        (left < quorum(voters.len())).then(|| {
            format!(
                "evictions may leave {left} of {} voters: the floor is {floor}, {} Pods are labelled",
                voters.len(),
                labelled.len()
            )
        })
    }

    /// Clients can write through this member from now on.
    fn acknowledge(&mut self, m: M) {
        let labelled = self.server.pod(m).is_some_and(|p| p.view.voter_label);
        let instance = self.etcd.processes.iter().find(|p| p.m == m).map(|p| p.instance);
        if let (true, Some(index)) = (labelled, instance) {
            self.etcd.instances[index].acknowledged = true;
        }
    }

    pub(crate) fn before_send(&mut self, change: &Change, call: &Call) {
        let now = self.now;
        let other = self.flights.iter().find(|f| f.until > now && f.change != *change).cloned();
        if let Some(open) = other
            && !matches!(call, Call::MoveLeader { .. })
        {
            self.violated(|| format!("{change:?} is sent while {:?} may still be applied", open.change));
        }
    }

    /// A call that the judge allowed, about to be sent.
    pub(crate) fn check_allowed(
        &mut self,
        change: &Change,
        call: &Call,
        list: &MemberList,
        instance: usize,
        truth: &Truth,
    ) {
        let i = &self.etcd.instances[instance];
        let repeated = self.flights.iter().any(|f| f.change == *change);
        if i.version != truth.version && !repeated {
            return self.violated(|| format!("{call:?} rests on a list that is no longer true"));
        }
        let learner = |id| list.by_id(id).is_some_and(|m| m.is_learner);
        let mut voters: Vec<MemberId> = list.voters().map(|m| m.id).collect();
        let mut healthy = truth.healthy.clone();
        match call {
            Call::Add(_) => {
                if list.learners().next().is_some() {
                    return self.violated(|| "a second learner is added".into());
                }
            }
            Call::Promote(id) => {
                let steady = truth.healthy.contains(id)
                    && truth.second.as_ref().is_some_and(|(at, healthy)| {
                        healthy.contains(id) && at.since(truth.looked) >= STEADY
                    });
                if !steady {
                    return self.violated(|| format!("{id} is promoted without having answered twice"));
                }
                voters.push(*id);
            }
            Call::Remove(id) => {
                voters.retain(|v| v != id);
                if voters.is_empty() && !learner(*id) {
                    return self.violated(|| "the last voter is removed".into());
                }
            }
            Call::Restart(_) => return,
            Call::MoveLeader { to, .. } => {
                if !truth.healthy.contains(to) {
                    return self.violated(|| format!("leadership goes to {to}, which does not serve"));
                }
                return;
            }
        }
        healthy.retain(|id| voters.contains(id));
        if healthy.len() < quorum(voters.len()) {
            self.violated(|| format!("{call:?} leaves {} healthy of {} voters", healthy.len(), voters.len()));
        }
    }

    /// A restart was granted: when the guard looked everybody else served.
    pub(crate) fn check_restart(&mut self, list: &MemberList, healthy: &[MemberId], id: MemberId) {
        let down = list.voters().filter(|m| m.id != id && !healthy.contains(&m.id)).count();
        if down > 0 {
            self.violated(|| format!("the restart of {id} is granted while {down} others do not serve"));
        }
    }

    /// The Pod of a member that stays is about to be ended by a permit.
    fn check_end(&mut self, m: M, uid: &Uid) {
        let there = self.server.pod(m).is_some_and(|p| p.view.uid == *uid);
        // A learner counts for no quorum, and one that had not answered yet may start in the very moment.
        let votes = |p: &super::etcd::Process| {
            self.etcd.instances[p.instance].by_id(p.id).is_some_and(|l| !l.learner)
        };
        let runs = self.etcd.processes.iter().any(|p| p.pod == *uid && votes(p));
        if !there || !runs || !self.cluster_stays() {
            return;
        }
        let ended: Vec<Uid> = self.ledger.restarted.iter().filter(|u| **u != *uid).cloned().collect();
        let other = self.server.pods.iter().find(|p| {
            let down = !self.etcd.processes.iter().any(|q| q.pod == p.view.uid) || p.view.deleting;
            ended.contains(&p.view.uid) && down
        });
        if let Some(other) = other.map(|p| p.m) {
            self.violated(|| {
                format!("the Pod of m{m} is ended while that of m{other} is on its way out by us")
            });
        }
        self.ledger.restarted.push(uid.clone());
    }

    /// etcd has applied a change.
    pub(crate) fn after_change(&mut self, instance: usize, call: &Call) {
        let i = &self.etcd.instances[instance];
        let voters = i.voters().count();
        let learners = i.members.len() - voters;
        if voters == 0 || learners > 1 {
            self.violated(|| format!("{call:?} left {voters} voters and {learners} learners"));
        }
        self.check_budget();
    }

    /// A container is about to start on this volume.
    pub(crate) fn after_boot(&mut self, m: M, volume: &Uid, formed: bool, had_data: bool) {
        let first = self.ledger.first_volume.entry(m).or_insert_with(|| volume.clone()).clone();
        // Data in memory is another one's with each Pod; that an empty one never votes is checked below.
        if first != *volume && !self.server.memory {
            self.violated(|| format!("m{m} runs on {volume}, its data is on {first}"));
        }
        let Some(p) = self.etcd.processes.iter().find(|p| p.m == m).cloned() else { return };
        if self.ledger.late.contains(&p.pod) {
            return;
        }
        if formed && self.cluster_stays() {
            let other =
                self.etcd.instances.iter().enumerate().any(|(n, i)| n != p.instance && i.acknowledged);
            let rival = self.server.pvcs.iter().any(|v| {
                // What a seed on its way out has formed is never recorded, so it never counts.
                let stays = self.server.member(v.m).is_some_and(|o| o.view.stays());
                v.m != m
                    && stays
                    && self.etcd.volumes[v.volume].as_ref().is_some_and(|d| d.instance != p.instance)
            });
            // Whoever takes finalizers off an unformed seed answers for what it leaves behind.
            if other || (rival && !self.ledger.by_hand) {
                self.violated(|| format!("m{m} formed a second cluster"));
            }
        }
        let voter = self.etcd.instances[p.instance].by_id(p.id).is_some_and(|l| !l.learner);
        if voter && !had_data && !formed {
            self.violated(|| format!("m{m} votes again with an empty log"));
        }
        self.check_halves();
        self.acknowledge(m);
        self.check_budget();
    }

    /// The cluster that the status records, or the newest.
    pub(crate) fn main_instance(&self) -> Option<usize> {
        let recorded = self.server.cluster.as_ref()?.view.recorded.cluster_id;
        (0..self.etcd.instances.len()).rev().find(|n| Some(self.etcd.instances[*n].cluster_id) == recorded)
    }

    /// Whether what is left of volumes and objects can still make a quorum.
    pub(crate) fn recoverable(&self) -> bool {
        let Some(index) = self.main_instance() else {
            // What a seed formed on a volume that is on its way out may be recorded all the same, and is lost then.
            let lost = |v: &super::kube::PvcObj| v.view.deleting && self.etcd.volumes[v.volume].is_some();
            return !self.server.memory && !self.server.pvcs.iter().any(|v| lost(v));
        };
        let i = &self.etcd.instances[index];
        let intact = |l: &&super::etcd::Listed| {
            if self.server.memory {
                return self.server.pod(l.m).is_some_and(|p| {
                    let data = p.memory.and_then(|volume| self.etcd.volumes[volume].as_ref());
                    let whole = !p.view.deleting && !p.view.ended;
                    whole && data.is_some_and(|d| d.id == l.id && d.instance == index)
                });
            }
            self.server.member(l.m).is_some_and(|o| {
                self.server.pvc(l.m).is_some_and(|v| {
                    let data = self.etcd.volumes[v.volume].as_ref();
                    let recorded = o.view.recorded.pvc_uid.as_ref().is_none_or(|uid| *uid == v.view.uid);
                    !v.view.deleting
                        && v.view.ours
                        && recorded
                        && data.is_some_and(|d| d.id == l.id && d.instance == index)
                })
            })
        };
        i.voters().filter(intact).count() >= quorum(i.voters().count())
    }

    /// For a member in memory: no Pod was put on record since the operator looked, and nothing has formed that a
    /// seed could form again. The operator reads both live before it makes a Pod.
    pub(crate) fn has_no_pod_on_record(&self, o: &MemberObj, instruction: &JoinInstruction) -> bool {
        let same = |live: &MemberObj| live.view.recorded.pod_uid == o.view.recorded.pod_uid;
        let unformed = self.server.cluster.as_ref().is_some_and(|c| c.view.recorded.cluster_id.is_none());
        let new = matches!(instruction, JoinInstruction::New { .. });
        self.server.member(o.m).is_some_and(|live| same(live)) && (!new || unformed)
    }

    /// What keeps the cluster from being paused: one dormant member with its data, and nothing that runs.
    fn unpaused(&self) -> Option<String> {
        let (pods, members) = (self.server.pods.len(), self.server.members.len());
        let Some(index) = self.main_instance() else {
            return (pods + members > 0).then(|| "a cluster is on its way".into());
        };
        let Some(last) = self.server.members.first().filter(|o| o.view.dormant) else {
            return Some("nobody is parked".into());
        };
        let kept = self.server.pvc(last.m).is_some_and(|v| {
            self.etcd.volumes[v.volume].as_ref().is_some_and(|d| d.instance == index && !v.view.deleting)
        });
        let alone = self.etcd.instances[index].members.iter().all(|l| l.m == last.m);
        let done = pods == 0 && members == 1 && self.server.pvcs.len() == 1 && kept && alone;
        (!done).then(|| format!("{pods} Pods and {members} EtcdMembers, data kept: {kept}, alone: {alone}"))
    }

    /// What keeps the world from being as the spec says; none when it is.
    pub(crate) fn unfinished(&self) -> Option<String> {
        let Some(cluster) = &self.server.cluster else {
            let left = self.server.members.len() + self.server.pods.len() + self.server.pvcs.len();
            return (left > 0).then(|| format!("the cluster is gone and {left} objects are left"));
        };
        let wanted = cluster.view.replicas;
        if wanted == 0 {
            return self.unpaused();
        }
        let Some(index) = self.main_instance() else { return Some("no cluster is recorded".into()) };
        let i = &self.etcd.instances[index];
        let voters = i.voters().count();
        if voters != wanted || i.members.len() != voters {
            return Some(format!(
                "{voters} voters and {} learners, wanted {wanted}",
                i.members.len() - voters
            ));
        }
        for l in &i.members {
            let whole = self.server.member(l.m).is_some_and(|o| o.view.stays())
                && self.server.pod(l.m).is_some_and(|p| p.view.voter_label)
                && (self.server.memory || self.server.pvc(l.m).is_some_and(|v| !v.view.deleting))
                && self.etcd.process_of(l.id, index).is_some();
            if !whole {
                return Some(format!("m{} is a voter and lacks an object, its label or its process", l.m));
            }
        }
        let floor = BudgetState::Present { min_available: quorum(wanted), right: true };
        if self.server.budget.is_none_or(|b| b.state != floor) {
            return Some(format!("the budget of {wanted} voters is {:?}", self.server.budget));
        }
        let (members, pods, pvcs) =
            (self.server.members.len(), self.server.pods.len(), self.server.pvcs.len());
        let old = |o: &&std::sync::Arc<super::kube::PodObj>| {
            let wanted = self.server.target();
            let old = Some(&o.made_from) != wanted.as_ref() && cluster.view.rolls;
            old || Some(&cluster.view.blueprint) != wanted.as_ref()
        };
        let behind =
            |o: &&std::sync::Arc<MemberObj>| Some(&o.view.blueprint) != self.server.target().as_ref();
        if let Some(o) = self.server.members.iter().find(behind) {
            return Some(format!("m{} has {:?}", o.m, o.view.blueprint));
        }
        if let Some(pod) = self.server.pods.iter().find(old) {
            return Some(format!("the Pod of m{} is made from {:?}", pod.m, pod.made_from));
        }
        if let Some(o) = self.server.members.iter().find(|o| o.view.permit.is_some()) {
            return Some(format!("m{} has an open permit", o.m));
        }
        let volumes = if self.server.memory { 0 } else { wanted };
        if (members, pods, pvcs) != (wanted, wanted, volumes) {
            return Some(format!("{members} EtcdMembers, {pods} Pods and {pvcs} PVCs for {wanted} voters"));
        }
        None
    }
}
