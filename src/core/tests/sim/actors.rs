//! The supervisor and the members of one cluster, as the real actors carry out the decisions: on
//! stores that lag, one effect at a time, each effect a step of its own, all memory lost in a crash.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use etcd_operator_core::{
    cluster::{ClusterAction, ClusterDecision, hands_off},
    departure::Departure,
    etcd::Look,
    ids::Uid,
    lost_node::is_stranded,
    member::{MemberAction, MemberDecision},
    progress::Progress,
    reason::Reason,
    report::Report,
    time::Time,
    view::{
        ClusterSituation, ListFact, MemberFacts, MemberSituation, Owner, Presence, ServiceKind, ServiceState,
        ThrownOut,
    },
    volume::may_hold_data,
};

use super::{
    calls::ApiCall,
    guard::Guard,
    kube::{M, MemberObj, member_of},
    mutants,
    stores::{Stores, catch_up, view},
    world::World,
};

/// What a supervisor is about to do.
#[derive(Clone, Debug)]
enum Next {
    /// Read the members live, and decide again.
    Confirm(ClusterDecision),
    /// This write.
    Write(ApiCall),
}

#[derive(Clone, Debug)]
struct MemberActor {
    uid: Uid,
    removed: bool,
    granted: Option<(Uid, Time)>,
    owner_confirmed: bool,
    progress: Option<Progress>,
    next: Option<ApiCall>,
}

/// A look and the Pod whose process it was.
#[derive(Clone, Debug)]
struct Looked {
    pod: Uid,
    look: Look,
    stalled: bool,
}

impl Looked {
    /// Whether another look says something else; the time of an answer alone is no news.
    fn differs(&self, other: &Looked) -> bool {
        self.pod != other.pod
            || self.stalled != other.stalled
            || self.look.serves() != other.look.serves()
            || self.look.is_silent() != other.look.is_silent()
            || self.look.status() != other.look.status()
    }
}

/// Everything one life of the operator knows.
#[derive(Clone, Debug)]
pub(crate) struct Operator {
    pub(crate) stores: Stores,
    pub(crate) list: ListFact,
    pub(crate) guard: Option<Guard>,
    looks: BTreeMap<M, Looked>,
    /// Since when the members' nodes have seemed to be gone.
    stranded: BTreeMap<M, Time>,
    lost_node_after: Option<Duration>,
    members_confirmed: Option<Time>,
    gone: bool,
    next: Option<Next>,
    actors: BTreeMap<M, MemberActor>,
    /// The situation as it was last put together, until something that it shows changes. Only for
    /// speed: the decisions see the same view as without.
    view: Option<Arc<ClusterSituation>>,
}

fn digest(report: &Report) -> u64 {
    let mut hasher = DefaultHasher::new();
    report.ready_members.hash(&mut hasher);
    report.broken_members.hash(&mut hasher);
    let three = [&report.available, &report.progressing, &report.degraded];
    for c in three.into_iter().chain(&report.spec_warnings).chain(&report.disruptions) {
        (c.verdict, c.reason, &c.message).hash(&mut hasher);
    }
    hasher.finish().max(1)
}

impl Operator {
    pub(crate) fn new(now: Time, lost_node_after: Option<Duration>) -> Self {
        Operator {
            stores: Stores::default(),
            list: ListFact::Unknown { since: now },
            guard: None,
            looks: BTreeMap::new(),
            stranded: BTreeMap::new(),
            lost_node_after,
            members_confirmed: None,
            gone: false,
            next: None,
            actors: BTreeMap::new(),
            view: None,
        }
    }

    /// One kind's watch catches up.
    pub(crate) fn sync(&mut self, w: &World, kind: u64) {
        let stores = &mut self.stores;
        let news = match kind {
            0 => {
                let same = match (&stores.cluster, &w.server.cluster) {
                    (Some(Some(old)), Some(new)) => Arc::ptr_eq(old, new),
                    _ => false,
                };
                stores.cluster = Some(w.server.cluster.clone());
                !same
            }
            1 => stores.services.replace(w.server.services) != Some(w.server.services),
            5 => stores.budget.replace(w.server.budget) != Some(w.server.budget),
            2 => catch_up(&mut stores.members, &w.server.members),
            3 => catch_up(&mut stores.pods, &w.server.pods),
            _ => catch_up(&mut stores.pvcs, &w.server.pvcs),
        };
        if news {
            self.view = None;
        }
    }

    /// The guard publishes what it read.
    pub(crate) fn publish(&mut self, list: ListFact) {
        self.list = list;
        self.view = None;
    }

    fn facts(&self, o: &MemberObj, now: Time) -> MemberFacts {
        let pod = view(self.stores.pod(o.m), |p| p.view.clone());
        let looked =
            self.looks.get(&o.m).filter(|l| pod.present().is_some_and(|p| p.uid == l.pod && !p.ended));
        let (look, stalled) =
            looked.map_or((Look::Unknown { since: now }, false), |l| (l.look.clone(), l.stalled));
        let pvc = view(self.stores.pvc(o.m), |v| v.view.clone());
        MemberFacts {
            member: o.view.clone(),
            pod,
            pvc,
            look,
            stalled,
            refused: None,
            cannot_grow: None,
            thrown_out: ThrownOut::default(),
            stranded: self.stranded.get(&o.m).copied(),
        }
    }

    fn situation(&mut self, now: Time) -> Option<Arc<ClusterSituation>> {
        match &mut self.view {
            Some(view) if view.now == now => {}
            Some(view) => Arc::make_mut(view).now = now,
            None => {
                let mut view = self.look_around(now)?;
                for facts in &mut view.members {
                    self.watch_node(facts, now);
                }
                self.view = Some(Arc::new(view));
            }
        }
        self.view.clone()
    }

    fn watch_node(&mut self, facts: &mut MemberFacts, now: Time) {
        facts.stranded = is_stranded(facts).then(|| facts.stranded.unwrap_or(now));
        let Some(m) = member_of(facts.member.name.as_str()) else { return };
        match facts.stranded {
            Some(since) => self.stranded.insert(m, since),
            None => self.stranded.remove(&m),
        };
    }

    fn look_around(&self, now: Time) -> Option<ClusterSituation> {
        let cluster = self.stores.cluster.as_ref()?.as_ref()?.view.clone();
        let services = self.stores.services.unwrap_or([ServiceState::Unknown; 2]);
        let members = self.stores.members.as_ref()?.iter().map(|o| self.facts(o, now)).collect();
        Some(ClusterSituation {
            now,
            cluster,
            services: BTreeMap::from([
                (ServiceKind::Headless, services[0]),
                (ServiceKind::Client, services[1]),
            ]),
            budget: self.stores.budget_state(),
            members,
            list: self.list.clone(),
            members_confirmed: self.members_confirmed,
            refused: None,
            fault: None,
            lost_node_after: self.lost_node_after,
        })
    }

    /// The write that the operator is about to make, for a crash at that moment.
    pub(crate) fn about_to_write(&self) -> Vec<ApiCall> {
        let supervisor = match &self.next {
            Some(Next::Write(call)) => Some(call.clone()),
            _ => None,
        };
        supervisor.into_iter().chain(self.actors.values().filter_map(|a| a.next.clone())).collect()
    }

    /// One step of the supervisor. Returns whether it did anything.
    pub(crate) fn supervise(&mut self, w: &mut World) -> bool {
        match self.next.take() {
            Some(Next::Write(call)) => {
                w.coverage.hit("effect", call.name());
                return w.write(&call);
            }
            Some(Next::Confirm(decision)) => {
                self.read_members_live(w);
                let again = self.situation(w.now).map(|s| mutants::decide_cluster(w.mutant, &s));
                if again.as_ref() != Some(&decision) {
                    w.coverage.hit("confirm", "outdated");
                    return true;
                }
                w.coverage.hit("confirm", "still stands");
                self.next = self.write_for(&decision).map(Next::Write);
                return true;
            }
            None => {}
        }
        if self.stores.cluster.as_ref().is_some_and(Option::is_none) && !self.gone {
            // A live GET: only NotFound counts.
            self.gone = w.server.cluster.is_none();
            return self.gone;
        }
        let Some(s) = self.situation(w.now) else { return false };
        if self.guard.is_none() {
            self.guard = Some(Guard::start(w, s.cluster.recorded.cluster_id.is_none()));
        }
        if (w.fair || w.chance.percent(50))
            && let Some(write) = self.status_write(w, &s)
        {
            self.next = Some(Next::Write(write));
            return true;
        }
        let decision = mutants::decide_cluster(w.mutant, &s);
        w.coverage.hit("cluster", cluster_name(&decision));
        w.log(|| format!("supervisor: {decision:?}"));
        match &decision {
            ClusterDecision::Wait(reason) => w.coverage.hit("cluster waits", reason.as_str()),
            ClusterDecision::HandsOff { reason, .. } => w.coverage.hit("cluster hands off", reason.as_str()),
            ClusterDecision::Act(ClusterAction::DeleteMember { why, .. }) => {
                w.coverage.hit("cluster deletes", why.as_str());
            }
            _ => {}
        }
        match &decision {
            ClusterDecision::Act(ClusterAction::ConfirmMembers) => {
                self.read_members_live(w);
                true
            }
            ClusterDecision::Act(
                ClusterAction::CreateMember { .. }
                | ClusterAction::DeleteMember { .. }
                | ClusterAction::ParkMember { .. }
                | ClusterAction::DeleteBudget,
            ) => {
                self.next = Some(Next::Confirm(decision));
                true
            }
            ClusterDecision::Act(_) => {
                self.next = self.write_for(&decision).map(Next::Write);
                true
            }
            _ => false,
        }
    }

    fn status_write(&self, w: &mut World, s: &ClusterSituation) -> Option<ApiCall> {
        let object = self.stores.cluster.as_ref()?.as_ref()?;
        let report = mutants::report(w.mutant, s);
        let three = [&report.available, &report.progressing, &report.degraded];
        for c in three.into_iter().chain(&report.disruptions) {
            w.coverage.hit("report", c.reason.as_str());
        }
        let conditions = digest(&report);
        if report.record == s.cluster.recorded && conditions == object.conditions {
            return None;
        }
        Some(ApiCall::Status { rv: object.rv, record: Box::new(report.record), conditions })
    }

    fn read_members_live(&mut self, w: &World) {
        self.view = None;
        self.stores.members = Some(w.server.members.clone());
        self.stores.cluster = Some(w.server.cluster.clone());
        self.members_confirmed = Some(w.now);
    }

    fn write_for(&self, decision: &ClusterDecision) -> Option<ApiCall> {
        let ClusterDecision::Act(action) = decision else { return None };
        match action {
            ClusterAction::CreateService(kind) | ClusterAction::RepairService(kind) => {
                Some(ApiCall::PutService(*kind))
            }
            ClusterAction::CreateMember { seed } => Some(ApiCall::CreateMember { seed: *seed }),
            ClusterAction::DeleteMember { name, .. } => {
                let m = member_of(name.as_str())?;
                Some(ApiCall::DeleteMember { m, rv: self.stores.member(m)?.rv })
            }
            ClusterAction::UpdateMember { name, permit, .. } => {
                let m = member_of(name.as_str())?;
                let cluster = self.stores.cluster.as_ref()?.as_ref()?;
                let blueprint = cluster.view.recorded.target.as_ref()?.blueprint.clone();
                Some(ApiCall::Update { m, rv: self.stores.member(m)?.rv, blueprint, permit: permit.clone() })
            }
            ClusterAction::ParkMember { name, .. } => self.dormant(name.as_str(), true),
            ClusterAction::WakeMember { name, .. } => self.dormant(name.as_str(), false),
            ClusterAction::PutBudget { min_available, .. } => {
                let rv = self.stores.budget.flatten().map(|b| b.rv);
                Some(ApiCall::PutBudget { rv, floor: *min_available })
            }
            ClusterAction::DeleteBudget => {
                self.stores.budget.flatten().map(|b| ApiCall::DeleteBudget { rv: b.rv })
            }
            ClusterAction::ConfirmMembers => None,
        }
    }

    fn dormant(&self, name: &str, dormant: bool) -> Option<ApiCall> {
        let m = member_of(name)?;
        Some(ApiCall::Dormant { m, rv: self.stores.member(m)?.rv, dormant })
    }

    /// The members that have an actor.
    pub(crate) fn actors(&mut self) -> Vec<M> {
        let all = self.stores.members.clone().unwrap_or_default();
        self.actors.retain(|m, a| all.iter().any(|o| o.m == *m && o.view.uid == a.uid));
        for o in &all {
            self.actors.entry(o.m).or_insert_with(|| MemberActor {
                uid: o.view.uid.clone(),
                removed: false,
                granted: None,
                owner_confirmed: false,
                progress: None,
                next: None,
            });
        }
        self.actors.keys().copied().collect()
    }

    /// The guard has granted the restart of this Pod.
    pub(crate) fn answered_restart(&mut self, m: M, pod: Uid, now: Time) {
        if let Some(actor) = self.actors.get_mut(&m) {
            actor.granted = Some((pod, now));
        }
    }

    /// The guard has answered that the change is done.
    pub(crate) fn answered_removed(&mut self, m: M) {
        if let Some(actor) = self.actors.get_mut(&m) {
            actor.removed = true;
        }
    }

    /// A look at one member's process, at the address that the store shows.
    pub(crate) fn look_at(&mut self, w: &mut World, m: M) -> bool {
        let Presence::Present(pod) = self.stores.pod(m) else { return false };
        let Some(ip) = pod.view.ip.filter(|_| !pod.view.ended) else { return false };
        if !self.stores.member(m).is_some_and(|o| may_hold_data(&o.view, &pod.view)) {
            return false;
        }
        let process = w.etcd.processes.iter().find(|p| p.ip == ip && !p.hidden);
        let look = process.map_or(Look::Silent { at: w.now }, |p| w.etcd.look(p, w.now));
        let Some(actor) = self.actors.get_mut(&m) else { return false };
        let mut stalled = false;
        match look.status() {
            Some(status) if status.is_learner => {
                let progress = actor.progress.get_or_insert_with(|| Progress::new(w.now, status));
                progress.observe(w.now, status);
                stalled = progress.stalled(w.now, status.db_size, 0);
            }
            Some(_) => actor.progress = None,
            None => {}
        }
        let after = Looked { pod: pod.view.uid.clone(), look, stalled };
        let news = self.looks.get(&m).is_none_or(|b| b.differs(&after));
        if news {
            self.looks.insert(m, after);
            self.view = None;
        }
        news
    }

    fn member_situation(
        &mut self,
        o: &MemberObj,
        now: Time,
        mutant: Option<mutants::Mutant>,
    ) -> Option<MemberSituation> {
        let whole = self.situation(now);
        let actor = self.actors.get(&o.m)?;
        let owner = match (&self.stores.cluster, &whole) {
            _ if self.gone => Owner::Gone,
            (Some(Some(c)), _) if c.view.deleting => Owner::Gone,
            (Some(Some(c)), Some(whole)) => Owner::Present {
                cluster_id: c.view.recorded.cluster_id,
                confirmed: actor.owner_confirmed,
                hands_off: hands_off(whole).is_some(),
            },
            _ => Owner::Unknown,
        };
        let covers = whole.as_ref().is_some_and(|s| mutants::covers_label(mutant, s, &o.view.name));
        let departure = whole
            .as_ref()
            .filter(|_| !o.view.stays())
            .map_or(Departure::Hold(Reason::NotKnownYet), |s| mutants::may_leave(s, &o.view.name));
        let facts = whole
            .as_ref()
            .and_then(|s| s.members.iter().find(|f| f.member.uid == o.view.uid).cloned())
            .unwrap_or_else(|| self.facts(o, now));
        Some(MemberSituation {
            now,
            owner,
            facts,
            list: self.list.clone(),
            departure,
            removed: actor.removed && o.view.deleting.is_some(),
            recovery: whole.as_ref().and_then(|s| mutants::role(mutant, s, &o.view.name)),
            parks: whole.as_ref().is_some_and(|s| etcd_operator_core::pause::parks(s)),
            granted: actor.granted.as_ref().is_some_and(|(uid, at)| {
                now.since(*at).as_secs() < 2
                    && self.stores.pod(o.m).present().is_some_and(|p| p.view.uid == *uid)
            }),
            budget_covers_label: covers,
        })
    }

    /// One step of a member's actor. Returns whether it did anything.
    pub(crate) fn act_member(&mut self, w: &mut World, m: M) -> bool {
        let Some(actor) = self.actors.get_mut(&m) else { return false };
        if let Some(call) = actor.next.take() {
            w.coverage.hit("effect", call.name());
            return w.write(&call);
        }
        let Some(o) = self.stores.member(m).cloned() else { return false };
        let Some(s) = self.member_situation(&o, w.now, w.mutant) else { return false };
        let decision = mutants::decide_member(w.mutant, &s);
        w.log(|| format!("m{m}: {decision:?}"));
        if let Departure::Hold(reason) = s.departure
            && !s.facts.member.stays()
        {
            w.coverage.hit("departure holds", reason.as_str());
        }
        let action = match decision {
            MemberDecision::Act(action) => action,
            MemberDecision::Wait { reason, .. } => {
                w.coverage.hit("member waits", reason.as_str());
                return false;
            }
            MemberDecision::Settled => {
                w.coverage.hit("member", "Settled");
                return false;
            }
        };
        w.coverage.hit("member", action.name());
        let pod_rv = self.stores.pod(m).present().map(|p| p.rv);
        let call = match action {
            MemberAction::Ask(change) => {
                if let Some(guard) = &mut self.guard {
                    guard.ask(m, change);
                }
                return false;
            }
            MemberAction::ConfirmOwner => {
                let absent = w.server.cluster.as_ref().is_some_and(|c| c.view.recorded.cluster_id.is_none());
                if let Some(actor) = self.actors.get_mut(&m) {
                    actor.owner_confirmed = absent;
                }
                return true;
            }
            MemberAction::CreatePvc => ApiCall::CreatePvc { m },
            MemberAction::RecordJoin { initial_cluster } => {
                ApiCall::RecordJoin { m, rv: o.rv, initial_cluster }
            }
            MemberAction::CreatePod { instruction, pvc_uid } => {
                let right = match pvc_uid {
                    Some(uid) => w.server.pvc(m).is_some_and(|v| v.view.uid == uid && !v.view.deleting),
                    None => w.has_no_pod_on_record(&o, &instruction),
                };
                if !right {
                    w.coverage.hit("create-pod", "the live objects are others");
                    return false;
                }
                if w.mutant == Some(mutants::Mutant::FlagForEver) && w.was_recovered(m) {
                    let blueprint = o.view.blueprint.clone();
                    w.write(&ApiCall::CreateRecoveryPod { m, instruction, blueprint });
                    return true;
                }
                ApiCall::CreatePod {
                    m,
                    instruction,
                    generation: o.view.generation,
                    blueprint: o.view.blueprint.clone(),
                }
            }
            MemberAction::CreateRecoveryPod { instruction, pvc_uid } => {
                let there = w.server.pvc(m).is_some_and(|v| v.view.uid == pvc_uid && !v.view.deleting);
                let blind = w.mutant == Some(mutants::Mutant::FlagBesideOthers);
                if !there || !(blind || w.others_are_fenced(m)) {
                    w.coverage.hit("create-recovery-pod", "the live objects are others");
                    return false;
                }
                ApiCall::CreateRecoveryPod { m, instruction, blueprint: o.view.blueprint.clone() }
            }
            MemberAction::PatchPod { instruction, voter_label, .. } => {
                ApiCall::PatchPod { m, rv: pod_rv.unwrap_or(0), instruction, voter_label }
            }
            MemberAction::Record(record) => ApiCall::Record { m, rv: o.rv, record },
            MemberAction::DeletePod { pod_uid, .. } => ApiCall::DeletePod { m, uid: pod_uid },
            MemberAction::EvictPod { pod_uid, .. } => ApiCall::EvictPod { m, uid: pod_uid },
            MemberAction::ClearPermit => ApiCall::ClearPermit { m, rv: o.rv },
            // Sizes do not change here.
            MemberAction::GrowPvc { .. } => return false,
            MemberAction::PatchPvc { pvc_uid } => ApiCall::PatchPvc { m, uid: pvc_uid },
            MemberAction::DeletePvc { pvc_uid } => ApiCall::DeletePvc { m, uid: pvc_uid },
            MemberAction::Release => ApiCall::Release { m, rv: o.rv },
        };
        if let Some(actor) = self.actors.get_mut(&m) {
            actor.next = Some(call);
        }
        true
    }
}

fn cluster_name(decision: &ClusterDecision) -> &'static str {
    match decision {
        ClusterDecision::Act(ClusterAction::CreateMember { seed: true }) => "CreateMember seed",
        ClusterDecision::Act(action) => action.name(),
        ClusterDecision::Wait(_) => "Wait",
        ClusterDecision::HandsOff { .. } => "HandsOff",
        ClusterDecision::Settled => "Settled",
    }
}
