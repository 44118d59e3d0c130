//! What goes wrong and what users do, and the person who in the end does what only a person can.

use std::sync::Arc;

use etcd_operator_core::{
    ids::MemberId,
    view::{BudgetState, PodTrouble, ServiceState},
};

use super::{
    calls::ApiCall,
    etcd::{Listed, NEIGHBOUR, Process},
    kube::{BudgetObj, M, PvcObj, blueprint_of, pvc_view},
    mutants::Mutant,
    world::World,
};

/// A member that somebody added by hand.
pub(crate) const STRANGER: M = 9_000;

/// Which faults a schedule may have. Chosen by its seed, so that each run stays recognisable.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    pub(crate) steps: u64,
    pub(crate) data_loss: bool,
    pub(crate) by_hand: bool,
    pub(crate) deletions: bool,
    pub(crate) end_of_cluster: bool,
    pub(crate) calm: bool,
}

impl Profile {
    pub(crate) fn draw(w: &mut World) -> Self {
        Profile {
            steps: 60 + w.chance.below(260),
            data_loss: w.chance.percent(25),
            by_hand: w.chance.percent(10),
            deletions: w.chance.percent(50),
            end_of_cluster: w.chance.percent(3),
            calm: w.chance.percent(30),
        }
    }
}

impl World {
    fn some_member(&mut self) -> Option<M> {
        let all: Vec<M> = self.server.members.iter().map(|o| o.m).collect();
        self.chance.pick(&all)
    }

    fn some_pod(&mut self) -> Option<M> {
        let all: Vec<M> = self.server.pods.iter().map(|o| o.m).collect();
        self.chance.pick(&all)
    }

    /// One fault, or one act of a user.
    pub(crate) fn fault(&mut self, profile: &Profile) {
        match self.chance.below(100) {
            0..15 => {
                if let Some(p) = self.some_pod().and_then(|m| self.server.pod(m).cloned()) {
                    self.log(|| format!("fault: the process of m{} ends", p.m));
                    self.kill(&p.view.uid);
                }
            }
            15..25 => {
                if let Some(m) = self.some_pod() {
                    self.log(|| format!("fault: the Pod of m{m} is evicted"));
                    self.server.edit_pod(m, |p| p.view.deleting = true);
                }
            }
            25..32 => self.end_pod(),
            32..40 => {
                if let Some(m) = self.some_pod() {
                    let uid = self.server.pod(m).map(|p| p.view.uid.clone()).unwrap_or_else(|| "".into());
                    self.log(|| format!("fault: the node of m{m} is lost"));
                    self.kill(&uid);
                    self.server.edit_pod(m, |p| p.node_lost = true);
                    // Its Node object is deleted, and with it the Pod: another one finds no node that has the volume.
                    if self.chance.percent(30) {
                        self.server.pods.retain(|p| p.m != m);
                        self.server.edit_pvc(m, |v| v.node_gone = true);
                    }
                }
            }
            40..50 => {
                self.heal_nodes();
            }
            50..62 => {
                let least = u64::from(self.server.memory);
                let replicas = (least + self.chance.below(6 - least)) as usize;
                self.log(|| format!("user: replicas {replicas}"));
                self.server.edit_cluster(|c| c.view.replicas = replicas);
            }
            62..70 if profile.deletions => {
                if let Some(m) = self.some_member() {
                    self.log(|| format!("user: deletes EtcdMember m{m}"));
                    let now = self.now;
                    self.server.delete_member(m, now);
                }
            }
            70..78 => self.edit_by_hand(),
            78..84 => {
                let entries = 1 + self.chance.below(1_500);
                (0..self.etcd.instances.len()).for_each(|i| self.etcd.commit(i, entries));
            }
            // Who takes anybody for the member is caught by strangers, and by them alone.
            84..98 if self.mutant == Some(Mutant::AnyoneAnswers) => self.neighbour(),
            84 if profile.data_loss && self.chance.percent(50) => self.lose_quorum(),
            84..90 if profile.data_loss => self.lose_data(),
            90..94 if profile.by_hand => self.etcdctl(),
            86..93 => self.edit_template(),
            93 => self.ask_recovery(),
            94 if profile.by_hand => self.force_delete_all(),
            95 if profile.end_of_cluster => {
                self.log(|| "user: deletes the EtcdCluster".into());
                self.server.edit_cluster(|c| c.view.deleting = true);
            }
            96 if self.chance.percent(50) => self.neighbour(),
            96 => {
                let paused = self.chance.percent(50);
                self.server.edit_cluster(|c| c.view.paused = paused);
            }
            97 => {
                let learner = self.etcd.instances.iter().flat_map(|i| &i.members).find(|l| l.learner);
                self.etcd.stuck = learner.map(|l| l.m);
            }
            98 => {
                if let Some(m) = self.some_pod() {
                    let trouble = [
                        PodTrouble::Unschedulable("no node".into()),
                        PodTrouble::ImagePull("no image".into()),
                        PodTrouble::CannotStart("no mount".into()),
                        PodTrouble::OutOfMemory,
                    ];
                    let trouble = self.chance.pick(&trouble);
                    self.server.edit_pod(m, |p| p.view.trouble = trouble);
                }
            }
            94 if self.chance.percent(25) => self.lose_nodes(),
            94..96 => self.ask_recovery(),
            _ => self.neighbour(),
        }
    }

    /// Another cluster's etcd gets an address that was one of ours and may still be in the stores.
    fn neighbour(&mut self) {
        let index = self.etcd.neighbour();
        let ip = self.freed_ip().unwrap_or_else(|| self.free_ip());
        self.log(|| format!("fault: a neighbour's etcd runs at {ip}"));
        let now = self.now;
        self.etcd.processes.retain(|p| p.instance != index);
        self.etcd.processes.push(Process {
            m: NEIGHBOUR,
            pod: "neighbour".into(),
            ip,
            instance: index,
            id: MemberId(1),
            volume: self.etcd.neighbours_volume(index),
            since: now,
            hidden: false,
        });
    }

    /// An address that the operator's store still shows and that nobody has any more.
    fn freed_ip(&mut self) -> Option<std::net::IpAddr> {
        let stores = &self.operator.as_ref()?.stores;
        let shown: Vec<_> = stores.pods.as_ref()?.iter().filter_map(|p| p.view.ip).collect();
        let used = |ip| self.server.pods.iter().any(|p| p.view.ip == Some(ip));
        shown.into_iter().find(|ip| !used(*ip))
    }

    /// A user edits what members are made from; now and then only the next Pod is to follow.
    fn edit_template(&mut self) {
        let template = ["t", "u", "v"][self.chance.below(3) as usize];
        let rolls = !self.chance.percent(15);
        self.log(|| format!("user: template {template}, restarts allowed: {rolls}"));
        self.server.edit_cluster(|c| {
            c.view.template = template.into();
            c.view.blueprint = blueprint_of(template);
            c.view.rolls = rolls;
        });
    }

    fn end_pod(&mut self) {
        let Some(p) = self.some_pod().and_then(|m| self.server.pod(m).cloned()) else { return };
        if p.node_lost {
            return;
        }
        self.log(|| format!("fault: the Pod of m{} ends for good", p.m));
        self.kill(&p.view.uid);
        self.server.edit_pod(p.m, |p| p.view.ended = true);
    }

    pub(crate) fn heal_nodes(&mut self) -> bool {
        let lost: Vec<M> = self.server.pods.iter().filter(|p| p.node_lost).map(|p| p.m).collect();
        for m in &lost {
            self.server.edit_pod(*m, |p| p.node_lost = false);
        }
        let away: Vec<M> = self.server.pvcs.iter().filter(|v| v.node_gone).map(|v| v.m).collect();
        for m in &away {
            self.server.edit_pvc(*m, |v| v.node_gone = false);
        }
        !(lost.is_empty() && away.is_empty())
    }

    fn edit_by_hand(&mut self) {
        match self.chance.below(6) {
            5 => self.edit_budget(),
            0 => self.server.services[self.chance.below(2) as usize] = ServiceState::Drifted,
            1 => self.server.services[self.chance.below(2) as usize] = ServiceState::Absent,
            2 if self.server.services[1] == ServiceState::Absent => {
                self.server.services[1] = ServiceState::Foreign;
            }
            3 => {
                if let Some(m) = self.some_pod() {
                    self.log(|| format!("user: strips labels of Pod and PVC of m{m}"));
                    self.server.edit_pod(m, |p| {
                        p.view.labels_right = false;
                        p.view.voter_label = false;
                    });
                    self.server.edit_pvc(m, |v| v.view.labels_right = false);
                }
            }
            _ => {
                if let Some(m) = self.some_pod() {
                    self.log(|| format!("user: strips annotations of Pod m{m}"));
                    self.server.edit_pod(m, |p| p.view.instruction = None);
                }
            }
        }
    }

    /// Somebody deletes the budget, sets another floor, breaks its selector, makes one of their own, or puts every
    /// member to sleep, which leaves nothing to guard.
    fn edit_budget(&mut self) {
        if self.chance.percent(25) {
            self.log(|| "user: every EtcdMember is dormant".into());
            let all: Vec<M> = self.server.members.iter().map(|o| o.m).collect();
            for m in all {
                self.server.edit_member(m, |o| o.view.dormant = true);
                let pod = self.server.pod(m).map(|p| p.view.uid.clone());
                self.ledger.condemned.extend(pod);
            }
            return;
        }
        let rv = self.server.new_version();
        let floor = self.chance.below(4) as usize;
        let state = match self.chance.below(4) {
            0 => None,
            1 if self.server.budget.is_none() => Some(BudgetState::Foreign),
            2 => Some(BudgetState::Present { min_available: floor, right: true }),
            _ => Some(BudgetState::Present { min_available: floor, right: false }),
        };
        self.log(|| format!("user: the budget is {state:?}"));
        let edited = |state| BudgetObj { rv, state, behind: true };
        match (&mut self.server.budget, state) {
            (Some(b), Some(_)) if b.state == BudgetState::Foreign => {}
            (budget @ Some(_), state) => *budget = state.map(edited),
            (budget @ None, Some(BudgetState::Foreign)) => *budget = Some(edited(BudgetState::Foreign)),
            (None, _) => {}
        }
    }

    /// A volume is lost, replaced by another of its name, emptied, or taken by somebody else.
    fn lose_data(&mut self) {
        if self.server.memory {
            return;
        }
        let Some(m) = self.some_member() else { return };
        let pvc = self.server.pvc(m).cloned();
        let used = pvc.as_ref().is_some_and(|v| {
            self.server.pods.iter().any(|p| p.mounted.as_ref() == Some(&v.view.uid) && !p.view.ended)
        });
        match (self.chance.below(4), pvc) {
            (0, Some(_)) => {
                self.log(|| format!("fault: the PVC of m{m} is deleted"));
                self.server.edit_pvc(m, |v| v.view.deleting = true);
                if self.chance.percent(50) {
                    self.server.edit_pod(m, |p| p.view.deleting = true);
                }
            }
            // Not in the moments between the operator's read of the PVC and the mount: Kubernetes
            // has no precondition that spans two objects, so nobody could prevent that.
            (1, Some(v)) if !used && self.server.pod(m).is_none() && !self.pod_is_coming(m) => {
                let uid = self.server.new_uid("pvc");
                let copy = self.chance.percent(50);
                self.log(|| format!("fault: the PVC of m{m} is replaced by {uid}, copied: {copy}"));
                let data = self.etcd.volumes[v.volume].clone().filter(|_| copy);
                self.etcd.volumes.push(data);
                let volume = self.etcd.volumes.len() - 1;
                self.server.pvcs.retain(|v| v.m != m);
                let view = pvc_view(uid, true);
                self.server.pvcs.push(Arc::new(PvcObj { m, view, volume, node_gone: false }));
            }
            (2, Some(v)) if !self.etcd.processes.iter().any(|p| p.m == m) => {
                self.log(|| format!("fault: the volume of m{m} is emptied"));
                self.etcd.volumes[v.volume] = None;
            }
            (3, None) if self.server.pod(m).is_none() && !self.pod_is_coming(m) => {
                let uid = self.server.new_uid("pvc");
                self.log(|| format!("fault: a foreign PVC {uid} bears the name of m{m}'s"));
                self.etcd.volumes.push(None);
                let volume = self.etcd.volumes.len() - 1;
                let view = pvc_view(uid, false);
                self.server.pvcs.push(Arc::new(PvcObj { m, view, volume, node_gone: false }));
            }
            _ => {}
        }
    }

    fn pod_is_coming(&self, m: M) -> bool {
        let creates = |call: &ApiCall| matches!(call, ApiCall::CreatePod { m: of, .. } if *of == m);
        self.late_writes.iter().any(|(_, call)| creates(call))
            || self.operator.as_ref().is_some_and(|op| op.about_to_write().iter().any(creates))
    }

    /// Somebody uses etcdctl: adds a learner that nobody accounts for, or removes a member.
    fn etcdctl(&mut self) {
        let Some(index) = self.main_instance().filter(|i| self.etcd.has_quorum(*i)) else { return };
        let instance = &mut self.etcd.instances[index];
        if self.chance.percent(50) {
            if instance.members.iter().all(|l| !l.learner) {
                let id = MemberId(900_000 + instance.index);
                instance.members.push(Listed { id, m: STRANGER, started: false, learner: true });
                self.log(|| "user: adds a learner by hand".into());
            }
        } else if instance.voters().count() > 2 || instance.members.iter().any(|l| l.learner) {
            let learner = instance.members.iter().find(|l| l.learner).map(|l| l.id);
            let target = learner.or_else(|| instance.voters().last().map(|l| l.id));
            let Some(id) = target else { return };
            if learner.is_none()
                && self.etcd.alive_voters(index) < self.etcd.instances[index].voters().count()
            {
                return;
            }
            let instance = &mut self.etcd.instances[index];
            instance.members.retain(|l| l.id != id);
            instance.removed.push(id);
            self.log(|| format!("user: removes {id} by hand"));
            self.etcd.settle();
        }
    }

    /// Somebody deletes every EtcdMember and takes the finalizers off.
    fn force_delete_all(&mut self) {
        self.log(|| "user: deletes every EtcdMember and takes the finalizers off".into());
        self.ledger.by_hand = true;
        let now = self.now;
        let all: Vec<M> = self.server.members.iter().map(|o| o.m).collect();
        for m in all {
            self.server.edit_member(m, |o| {
                o.view.deleting = Some(now);
                o.view.finalizer = false;
            });
        }
    }

    /// What the conditions ask a person to do, done one thing at a time once faults have stopped.
    pub(crate) fn person(&mut self) -> bool {
        if self.server.cluster.as_ref().is_some_and(|c| c.view.paused) {
            self.server.edit_cluster(|c| c.view.paused = false);
            return true;
        }
        for service in &mut self.server.services {
            if *service == ServiceState::Foreign {
                *service = ServiceState::Absent;
                return true;
            }
        }
        if self.server.budget.is_some_and(|b| b.state == BudgetState::Foreign) {
            self.server.budget = None;
            return true;
        }
        let foreign = self.server.pvcs.iter().any(|v| !v.view.ours);
        if foreign {
            self.server.pvcs.retain(|v| v.view.ours);
            return true;
        }
        for i in &mut self.etcd.instances {
            if i.members.iter().any(|l| l.m == STRANGER) {
                i.members.retain(|l| l.m != STRANGER);
                self.log(|| "person: removes the unexplained member".into());
                return true;
            }
        }
        let again = self.main_instance().and_then(|index| {
            let other = |l: &&Listed| {
                let o = self.server.member(l.m);
                o.and_then(|o| o.view.recorded.member_id).is_some_and(|id| id != l.id)
            };
            self.etcd.instances[index].members.iter().find(other).map(|l| (index, l.id))
        });
        if let Some((index, id)) = again {
            self.log(|| {
                format!("person: removes {id}, which was added again at the address of a removed member")
            });
            self.etcd.instances[index].members.retain(|l| l.id != id);
            return true;
        }
        // Before the cluster has formed nobody could replace its first member, and a formed one heals by itself.
        if self.server.cluster.as_ref().is_none_or(|c| c.view.recorded.cluster_id.is_some()) {
            return false;
        }
        let lost = self.server.members.iter().filter(|o| o.view.stays()).find(|o| {
            let pvc = self.server.pvc(o.m);
            let recorded = o.view.recorded.pvc_uid.as_ref();
            let gone =
                recorded.is_some() && pvc.is_none_or(|v| recorded != Some(&v.view.uid) || v.view.deleting);
            let trouble = self.server.pod(o.m).and_then(|p| p.view.trouble.as_ref());
            gone || matches!(trouble, Some(PodTrouble::CrashLooping(_)))
        });
        let Some(m) = lost.map(|o| o.m) else { return false };
        self.log(|| format!("person: deletes EtcdMember m{m}, which cannot form the cluster"));
        let now = self.now;
        self.server.delete_member(m, now);
        true
    }
}
