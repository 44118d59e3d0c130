//! A small world for the actors to live in: a Kubernetes API with watch stores that lag, kubelets,
//! etcd processes, and calls that fail in every way that a call can. Time is paused: it moves when
//! everybody waits. What happens follows from the world's seed.

mod etcd;
mod faults;
mod hands;
mod journal;
mod kubelet;
mod objects;
mod ports;
mod shared;
mod sight;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use etcd_operator_actors::{
    Clock, ClusterKey, Context, Intake, Metrics, Operator, OperatorArgs, OperatorMsg, Replacements, WakerSlot,
};
use etcd_operator_core::{
    etcd::MemberList,
    ids::{MemberName, Uid},
    report::Report,
    time::Time,
    view::{ClusterRecord, ClusterView},
};
use prometheus_client::{encoding::text::encode, registry::Registry};
use ractor::{Actor, ActorRef};
use tokio::task::JoinHandle;

pub(crate) use self::{
    faults::{Fault, Rule},
    journal::{Done, MembershipCall, Outcome},
    objects::{BudgetObj, Kind, Object},
    shared::State,
};
use self::{hands::FakeApi, objects::ClusterObj, ports::FakeEtcd, shared::Shared};

pub(crate) const NAMESPACE: &str = "ns";

/// See the module.
pub(crate) struct World {
    seed: u64,
    shared: Arc<Shared>,
    operator: Option<(ActorRef<OperatorMsg>, JoinHandle<()>)>,
    owned: Arc<dyn Fn(&Uid) -> bool + Send + Sync>,
    registry: Registry,
    /// See [`Context::lost_node_after`]; for the operator that is started next.
    pub(crate) lost_node_after: Option<Duration>,
}

pub(crate) const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(crate) const fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// How a cluster stands, by what etcd itself says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) voters: usize,
    pub(crate) learners: usize,
    pub(crate) serving: usize,
}

impl World {
    /// An empty world without an operator.
    pub(crate) fn new(seed: u64) -> Self {
        let shared = Shared::new(seed, Clock::seeded(secs(1_700_000_000), seed));
        tokio::spawn(shared.clone().watch());
        let (owned, registry) = (Arc::new(|_: &Uid| true), Registry::default());
        World { seed, shared, operator: None, owned, registry, lost_node_after: None }
    }

    /// A world with an operator and one cluster `c` that wants so many members.
    pub(crate) async fn with_cluster(replicas: usize) -> Self {
        let mut world = World::new(1);
        world.create_cluster("c", replicas);
        world.start_operator().await;
        world
    }

    /// The same, with all members up and the status saying so.
    pub(crate) async fn with_formed(replicas: usize) -> Self {
        let world = World::with_cluster(replicas).await;
        world.until_settled("c", replicas, secs(120)).await;
        // Every voter has been connected for the five seconds that etcd asks for.
        world.run_for(secs(6)).await;
        world
    }

    pub(crate) fn now(&self) -> Time {
        self.shared.now()
    }

    /// Reads or changes anything.
    pub(crate) fn at<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        let result = f(&mut self.shared.lock());
        self.shared.news.notify_one();
        result
    }

    /// Only clusters for which this holds belong to the operator that is started next.
    pub(crate) fn own(&mut self, owned: impl Fn(&Uid) -> bool + Send + Sync + 'static) {
        self.owned = Arc::new(owned);
    }

    pub(crate) async fn start_operator(&mut self) {
        let names = {
            let shared = self.shared.clone();
            Arc::new(move |cluster: &str| MemberName(format!("{cluster}-m{:05}", shared.lock().next())))
        };
        self.registry = Registry::default();
        let lease = self.shared.clone();
        let metrics = Metrics::register(&mut self.registry);
        let api = Arc::new(FakeApi(self.shared.clone()));
        let context = Arc::new(Context {
            owns_for: Arc::new(move |d| lease.lock().leased_until.is_none_or(|end| lease.now() + d <= end)),
            sight: api.clone(),
            hands: api,
            etcd: Arc::new(FakeEtcd(self.shared.clone())),
            clock: self.shared.clock.clone(),
            metrics,
            replacements: Replacements::new(5),
            lost_node_after: self.lost_node_after,
            names,
        });
        let (intake, slot) = (Intake::default(), WakerSlot::default());
        let args =
            OperatorArgs { context, intake: intake.clone(), slot: slot.clone(), owns: self.owned.clone() };
        self.operator = Some(Actor::spawn(None, Operator, args).await.unwrap());
        self.shared.attach(intake, slot.get().unwrap());
        self.touch_all();
    }

    /// As the first list of every watch does.
    pub(crate) fn touch_all(&self) {
        let keys: BTreeSet<ClusterKey> = self.at(|s| {
            let clusters = s.stores.objects.clusters.values().map(|c| c.key.clone());
            clusters.chain(s.stores.objects.members.values().map(|m| m.key.cluster.clone())).collect()
        });
        for key in keys {
            self.shared.touch(&key);
        }
    }

    pub(crate) fn touch(&self, cluster: &str) {
        self.shared.touch(&self.key(cluster));
    }

    /// The operator's process ends between two instructions.
    pub(crate) async fn kill_operator(&mut self) {
        self.shared.detach();
        if let Some((actor, handle)) = self.operator.take() {
            actor.kill();
            handle.await.unwrap();
        }
    }

    /// The operator is asked to stop. Returns how long it took.
    pub(crate) async fn stop_operator(&mut self) -> Duration {
        self.shared.detach();
        let before = tokio::time::Instant::now();
        if let Some((actor, handle)) = self.operator.take() {
            actor.stop(None);
            handle.await.unwrap();
        }
        before.elapsed()
    }

    pub(crate) fn operator_lives(&self) -> bool {
        self.operator.as_ref().is_some_and(|(_, handle)| !handle.is_finished())
    }

    /// What an operator of another version, or a person, made before this one came.
    pub(crate) fn create_cluster(&self, name: &str, replicas: usize) {
        let now = self.now();
        self.at(|s| {
            let uid = s.uid(name);
            let key = ClusterKey { namespace: NAMESPACE.into(), name: name.to_owned(), uid: uid.clone() };
            let view = ClusterView {
                name: name.to_owned(),
                uid: uid.clone(),
                deleting: false,
                paused: false,
                refused: vec![],
                replicas,
                template: "template".into(),
                blueprint: etcd_operator_core::roll::Blueprint::default(),
                rolls: true,
                recover_from: None,
                warnings: vec![],
                progress_deadline_seconds: 600,
                recorded: ClusterRecord::default(),
            };
            let rv = s.next();
            s.put(now, Object::Cluster(uid, Some(ClusterObj { key, rv, view, status: None })));
        });
    }

    pub(crate) fn key(&self, cluster: &str) -> ClusterKey {
        self.at(|s| {
            let live = s.truth.clusters.values().map(|c| &c.key);
            let mut owners = live.chain(s.truth.members.values().map(|m| &m.key.cluster));
            owners.find(|k| k.name == cluster).cloned()
        })
        .unwrap_or_else(|| panic!("there is no cluster {cluster}"))
    }

    /// A user edits the EtcdCluster.
    pub(crate) fn edit_cluster(&self, name: &str, change: impl FnOnce(&mut ClusterView)) {
        let (now, uid) = (self.now(), self.key(name).uid);
        self.at(|s| {
            let mut cluster = s.truth.clusters.get(&uid).cloned().unwrap();
            change(&mut cluster.view);
            cluster.rv = s.next();
            s.put(now, Object::Cluster(uid, Some(cluster)));
            s.settle(now);
        });
    }

    pub(crate) fn scale(&self, name: &str, replicas: usize) {
        self.edit_cluster(name, |c| c.replicas = replicas);
    }

    /// Somebody deletes an EtcdMember.
    pub(crate) fn delete_member(&self, member: &str) {
        let now = self.now();
        self.at(|s| {
            let uid = s.truth.members.values().find(|m| m.view.name.0 == member).map(|m| m.key.uid.clone());
            s.edit_member(now, &uid.unwrap(), |m| {
                m.view.deleting.get_or_insert(now);
            });
        });
    }

    /// Somebody deletes the member's Pod, if there is one.
    pub(crate) fn delete_pod(&self, member: &str) {
        let now = self.now();
        self.at(|s| s.edit_pod(now, member, |p| p.view.deleting = true));
        tokio::spawn(kubelet::follow_up(self.shared.clone()));
    }

    /// A member's process ends and does not come back before [`World::release`].
    pub(crate) fn hold(&self, member: &str) {
        self.at(|s| s.held.insert(member.to_owned()));
        kubelet::crash(&self.shared, member);
    }

    pub(crate) fn release(&self, member: &str) {
        self.at(|s| s.held.remove(member));
    }

    /// A cluster's etcd answers nobody any more, or answers again.
    pub(crate) fn mute(&self, cluster: &str, mute: bool) {
        let (now, uid) = (self.now(), self.key(cluster).uid);
        self.at(|s| {
            if mute {
                s.mute.insert(uid);
            } else {
                s.mute.remove(&uid);
            }
            s.settle(now);
        });
    }

    /// The Lease of the shard ends then.
    pub(crate) fn lease_ends(&self, after: Duration) {
        let end = self.now() + after;
        self.at(|s| s.leased_until = Some(end));
    }

    /// The Lease is renewed for good.
    pub(crate) fn lease_renewed(&self) {
        self.at(|s| s.leased_until = None);
    }

    pub(crate) fn fault(&self, verbs: &[&'static str], times: u32, fault: Fault) {
        let verbs = verbs.to_vec();
        self.at(|s| s.faults.rules.push(Rule { verbs, cluster: None, member: None, times, fault }));
    }

    pub(crate) fn fault_in(&self, cluster: &str, verbs: &[&'static str], times: u32, fault: Fault) {
        let (verbs, cluster) = (verbs.to_vec(), Some(cluster.to_owned()));
        self.at(|s| s.faults.rules.push(Rule { verbs, cluster, member: None, times, fault }));
    }

    pub(crate) fn clear_faults(&self) {
        self.at(|s| s.faults.rules.clear());
    }

    /// The names of a cluster's EtcdMembers, sorted.
    pub(crate) fn members(&self, cluster: &str) -> Vec<String> {
        let uid = self.key(cluster).uid;
        self.at(|s| s.truth.members_of(&uid).map(|m| m.view.name.0.clone()).collect())
    }

    /// etcd's own list for a cluster that has formed.
    pub(crate) fn list(&self, cluster: &str) -> Option<MemberList> {
        let uid = self.key(cluster).uid;
        self.at(|s| {
            let n = s.etcd.instances.iter().position(|i| i.of == uid)?;
            Some(s.etcd.list(n))
        })
    }

    pub(crate) fn standing(&self, cluster: &str) -> Standing {
        let Some(list) = self.list(cluster) else { return Standing { voters: 0, learners: 0, serving: 0 } };
        let serving = self.at(|s| {
            let serves = |id| s.etcd.processes.values().any(|p| p.id == id && s.etcd.serves(p));
            list.voters().filter(|m| serves(m.id)).count()
        });
        Standing { voters: list.voters().count(), learners: list.learners().count(), serving }
    }

    pub(crate) fn leader(&self, cluster: &str) -> String {
        let uid = self.key(cluster).uid;
        let leader = self.at(|s| s.etcd.instances.iter().find(|i| i.of == uid).and_then(|i| i.leader));
        let list = self.list(cluster).unwrap();
        leader.and_then(|id| list.by_id(id)).map(|m| m.name.clone()).unwrap()
    }

    pub(crate) fn status(&self, cluster: &str) -> Option<Report> {
        let uid = self.key(cluster).uid;
        self.at(|s| s.truth.clusters.get(&uid).and_then(|c| c.status.clone()))
    }

    /// The name of Available's reason, empty before the first status.
    pub(crate) fn available(&self, cluster: &str) -> &'static str {
        self.status(cluster).map_or("", |s| s.available.reason.as_str())
    }

    pub(crate) fn degraded(&self, cluster: &str) -> &'static str {
        self.status(cluster).map_or("", |s| s.degraded.reason.as_str())
    }

    pub(crate) fn done(&self) -> Vec<Done> {
        self.at(|s| s.journal.done.clone())
    }

    pub(crate) fn calls(&self) -> Vec<MembershipCall> {
        self.at(|s| s.journal.calls.clone())
    }

    pub(crate) async fn run_for(&self, time: Duration) {
        tokio::time::sleep(time).await;
        self.check();
    }

    /// Waits until `holds`, and fails with the state of the world after `limit`.
    pub(crate) async fn until(
        &self,
        what: &str,
        limit: Duration,
        holds: impl Fn(&World) -> bool,
    ) -> Duration {
        let before = tokio::time::Instant::now();
        loop {
            self.check();
            if holds(self) {
                return before.elapsed();
            }
            if before.elapsed() > limit {
                panic!("seed {}: not within {limit:?}: {what}\n{}", self.seed, self.describe());
            }
            tokio::time::sleep((limit / 5_000).max(millis(20))).await;
        }
    }

    /// Waits until the cluster has so many voters, all serving, with an EtcdMember for each and no
    /// other, and its status says that all is done.
    pub(crate) async fn until_settled(&self, cluster: &str, replicas: usize, limit: Duration) -> Duration {
        let what = format!("{cluster} settles at {replicas}");
        self.until(&what, limit, |w| w.is_settled(cluster, replicas)).await
    }

    pub(crate) fn is_settled(&self, cluster: &str, replicas: usize) -> bool {
        let standing = Standing { voters: replicas, learners: 0, serving: replicas };
        let said = self.status(cluster);
        let reconciled = said.as_ref().is_some_and(|s| {
            s.progressing.reason.as_str() == "Reconciled"
                && s.available.reason.as_str() == "QuorumHealthy"
                && s.ready_members == Some(replicas)
        });
        let members = self.members(cluster);
        let uid = self.key(cluster).uid;
        let leaving = self.at(|s| s.truth.members_of(&uid).any(|m| !m.view.stays()));
        !leaving
            && self.standing(cluster) == standing
            && members.len() == replicas
            && reconciled
            && self.list(cluster).is_some_and(|list| list.members.iter().all(|m| members.contains(&m.name)))
    }

    /// Fails if something happened that must never happen.
    pub(crate) fn check(&self) {
        let violations = self.at(|s| s.journal.violations.clone());
        assert!(violations.is_empty(), "seed {}: {violations:#?}\n{}", self.seed, self.describe());
    }

    fn describe(&self) -> String {
        self.at(|s| {
            let mut text = format!("now {}\n", self.shared.now().0);
            for c in s.truth.clusters.values() {
                text += &format!("{} {:?}\n  {:?}\n", c.key.name, c.view.recorded, c.status);
            }
            for m in s.truth.members.values() {
                let name = m.view.name.as_str();
                text += &format!(
                    "{name} deleting {:?} joined {:?} {:?} {:?}\n  {:?}\n  {:?}\n",
                    m.view.deleting,
                    m.view.initial_cluster,
                    m.view.recorded,
                    m.trouble,
                    s.truth.pods.get(name).map(|p| &p.view),
                    s.truth.pvcs.get(name).map(|p| &p.view),
                );
            }
            for i in &s.etcd.instances {
                text += &format!("etcd {} leader {:?} {:#?}\n", i.cluster_id, i.leader, i.members);
            }
            for call in s.journal.calls.iter().rev().take(12).rev() {
                text += &format!("{call:?}\n");
            }
            for done in s.journal.done.iter().rev().take(40).rev() {
                text += &format!("{done:?}\n");
            }
            text
        })
    }

    /// All metrics of the operator that runs now.
    pub(crate) fn metrics(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        text
    }

    /// The value of a counter of the operator that runs now.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        let text = self.metrics();
        let lines = text.lines().filter(|l| l.starts_with(&format!("etcd_operator_{name}_total")));
        lines.filter_map(|l| l.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    }
}
