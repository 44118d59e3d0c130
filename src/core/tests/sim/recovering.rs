//! Recovery from lost quorum, as users and a person ask for it, and what must hold while it goes on.

use etcd_operator_core::{
    etcd::quorum,
    ids::Uid,
    recovery::{Phase, Recovery},
};

use super::{
    calls::ApiCall,
    kube::{M, name_of},
    world::World,
};

/// A recovery's request and phase, and the request that is refused.
pub(crate) type Told = (Option<(String, Phase)>, Option<String>);

impl World {
    fn recovery(&self) -> Option<&Recovery> {
        self.server.cluster.as_ref()?.view.recorded.recovery.as_ref()
    }

    fn active_recovery(&self) -> Option<&Recovery> {
        self.recovery().filter(|r| r.is_under_way())
    }

    /// A user names some member to recover from, rightly or not, or thinks better of it.
    pub(crate) fn ask_recovery(&mut self) {
        let all: Vec<M> = self.server.members.iter().map(|o| o.m).collect();
        let some = self.chance.pick(&all);
        let Some(m) = some.filter(|_| !self.chance.percent(20)) else {
            self.log(|| "user: takes recover-from off".into());
            return self.server.edit_cluster(|c| c.view.recover_from = None);
        };
        let force = self.chance.percent(60);
        self.recover_from(m, force);
    }

    fn recover_from(&mut self, m: M, force: bool) {
        let again = self.server.new_version();
        let request = format!("m{m} {}again-{again}", if force { "force " } else { "" });
        self.log(|| format!("user: recover-from {request}"));
        self.server.edit_cluster(|c| c.view.recover_from = Some(request));
    }

    /// So many volumes are lost at once that those who are left make no quorum, and now and then a user names one of
    /// them right away.
    pub(crate) fn lose_quorum(&mut self) {
        let mut all: Vec<M> = self.server.members.iter().map(|o| o.m).collect();
        let Some(kept) = self.chance.pick(&all).filter(|_| !self.server.memory) else { return };
        all.retain(|m| *m != kept);
        let others = quorum(all.len() + 1).saturating_sub(2);
        self.log(|| format!("fault: every volume but that of m{kept} and {others} more is lost"));
        for m in all.into_iter().skip(others) {
            self.server.edit_pvc(m, |v| v.view.deleting = true);
            self.server.edit_pod(m, |p| p.view.deleting = true);
        }
        if self.chance.percent(50) {
            self.recover_from(kept, true);
        }
    }

    /// The nodes of all but one member are lost, and a user takes them for gone.
    pub(crate) fn lose_nodes(&mut self) {
        let all: Vec<M> = self.server.pods.iter().map(|o| o.m).collect();
        let Some(kept) = self.chance.pick(&all) else { return };
        self.log(|| format!("fault: every node but that of m{kept} is lost"));
        for m in all.into_iter().filter(|m| *m != kept) {
            let pod = self.server.pod(m).map(|p| p.view.uid.clone());
            pod.iter().for_each(|pod| self.kill(pod));
            self.server.edit_pod(m, |p| p.node_lost = true);
        }
        self.recover_from(kept, true);
    }

    /// The voter with its data from which the cluster can go on and that has most; none if none has any.
    pub(crate) fn salvageable(&self) -> Option<M> {
        if self.server.memory {
            return None;
        }
        let index = self.main_instance()?;
        let intact = |m: &M| {
            let object = self.server.member(*m)?;
            let volume = self.server.pvc(*m).filter(|v| !v.view.deleting && v.view.ours)?;
            let data = self.etcd.volumes[volume.volume].as_ref().filter(|d| d.instance == index)?;
            let recorded = &object.view.recorded;
            let right = recorded.pvc_uid.as_ref() == Some(&volume.view.uid);
            let known = recorded.member_id == Some(data.id) && !object.view.dormant;
            (right && known && object.view.finalizer).then_some(data.applied)
        };
        let voters = self.etcd.instances[index].voters().map(|l| l.m);
        voters.filter_map(|m| Some((intact(&m)?, m))).max().map(|(_, m)| m)
    }

    /// Once faults have stopped: who has lost the quorum for good names the member to go on with.
    pub(crate) fn person_recovers(&mut self) -> bool {
        let Some(cluster) = &self.server.cluster else { return false };
        let Some(best) = self.salvageable() else { return false };
        let recorded = &cluster.view.recorded;
        let is_best = recorded.recovery.as_ref().is_some_and(|r| r.survivor == name_of(best));
        let active = self.active_recovery().is_some();
        let lost = !self.recoverable() || active;
        let asked = cluster.view.recover_from.as_ref().is_some_and(|request| {
            let refused = recorded.refused_recovery.as_ref().is_some_and(|r| r.request == *request);
            let used_up = recorded.recovery.as_ref().is_some_and(|r| r.request == *request);
            !refused && !used_up
        });
        if !lost || asked || (active && is_best) {
            return false;
        }
        self.recover_from(best, true);
        true
    }

    /// Whether the cluster goes on with this member's data.
    pub(crate) fn was_recovered(&self, m: M) -> bool {
        let from = |r: &Recovery| r.phase == Phase::Recovered && r.survivor == name_of(m);
        self.recovery().is_some_and(from)
    }

    /// By live reads: the recovery stands, and nobody but the survivor has a Pod or is to stay.
    pub(crate) fn others_are_fenced(&self, m: M) -> bool {
        let stands = |r: &Recovery| r.phase == Phase::Rewriting && r.survivor == name_of(m);
        self.recovery().is_some_and(stands)
            && self.server.members.iter().all(|o| o.m == m || o.view.deleting.is_some())
            && self.server.pods.iter().all(|p| p.m == m)
    }

    /// Pods that a recovery may end from now on, even if it is taken back meanwhile.
    pub(crate) fn condemn_for_recovery(&mut self, call: &ApiCall) {
        if !matches!(call, ApiCall::Status { .. } | ApiCall::CreatePod { .. }) {
            return;
        }
        let Some(r) = self.active_recovery().cloned() else { return };
        let survivor = |m: M| r.survivor == name_of(m);
        let goes = |m: M| !survivor(m) || r.phase == Phase::Rewriting;
        let pods: Vec<Uid> =
            self.server.pods.iter().filter(|p| goes(p.m)).map(|p| p.view.uid.clone()).collect();
        self.ledger.condemned.extend(pods);
    }

    /// A phase that has just been written.
    pub(crate) fn note_recovery(&mut self, before: Told) {
        let recorded = self.server.cluster.as_ref().map(|c| c.view.recorded.clone()).unwrap_or_default();
        let refused = recorded.refused_recovery.map(|r| r.request);
        if refused.is_some() && refused != before.1 {
            self.coverage.hit("recovery", "refused");
        }
        let Some(r) = recorded.recovery else { return };
        if before.0 == Some((r.request.clone(), r.phase)) {
            return;
        }
        let name = match r.phase {
            Phase::Fencing => "Fencing",
            Phase::Rewriting => "Rewriting",
            Phase::Returning => "Returning",
            Phase::Recovered => "Recovered",
            Phase::Cancelled => "Cancelled",
        };
        self.coverage.hit("recovery", name);
    }

    /// The recovery as it is recorded, to tell later whether it has gone on.
    pub(crate) fn recovery_now(&self) -> Told {
        let recorded = self.server.cluster.as_ref().map(|c| &c.view.recorded);
        let refused = recorded.and_then(|r| r.refused_recovery.as_ref()).map(|r| r.request.clone());
        (self.recovery().map(|r| (r.request.clone(), r.phase)), refused)
    }

    /// The flag is about to be given to this member.
    pub(crate) fn before_force(&mut self, m: M) {
        let Some(index) = self.main_instance() else { return };
        let volume = self.server.pvc(m).map(|v| v.volume);
        let data = volume.and_then(|volume| self.etcd.volumes[volume].clone());
        let Some(data) = data else { return };
        let other = self.etcd.processes.iter().find(|p| p.m != m && p.instance == data.instance).map(|p| p.m);
        if let Some(other) = other {
            self.violated(|| format!("m{m} is made a cluster of its own while m{other} runs"));
        }
        let joined = self.etcd.instances[data.instance].members.len() > 1;
        let again = self.ledger.forced.contains(&data.instance);
        if joined && again && self.active_recovery().is_none() {
            self.violated(|| format!("m{m} drops those who have joined since its recovery"));
        }
        if data.instance != index {
            self.violated(|| format!("m{m} goes on from a half that was left behind"));
        }
    }

    /// It has been given.
    pub(crate) fn after_force(&mut self, m: M) {
        let instance = self.etcd.processes.iter().find(|p| p.m == m && p.hidden).map(|p| p.instance);
        self.ledger.forced.extend(instance);
    }

    /// A process has started. Whoever was left behind by a recovery makes no quorum any more.
    pub(crate) fn check_halves(&mut self) {
        let halves = 0..self.etcd.instances.len();
        let awake =
            halves.into_iter().find(|n| self.etcd.instances[*n].superseded && self.etcd.has_quorum(*n));
        if let Some(n) = awake {
            let who: Vec<M> = self.etcd.processes.iter().filter(|p| p.instance == n).map(|p| p.m).collect();
            self.violated(|| format!("{who:?} serve beside the cluster that was recovered from another"));
        }
    }
}
