//! Owns the one state of a fake world, who may wake the operator in it, and its two clocks' worth
//! of background work: delivery of watch events, and what must hold after every change.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use etcd_operator_actors::{Clock, ClusterKey, Intake, OperatorMsg, Waker};
use etcd_operator_core::{ids::Uid, time::Time};
use rand::{SeedableRng, rngs::StdRng};
use tokio::sync::Notify;

use super::{
    etcd::Etcd,
    faults::{Fault, Faults},
    journal::{Done, Journal},
    objects::{Kind, MemberObj, Object, Objects, PodObj, Stores},
};

/// How long things take.
#[derive(Debug, Clone)]
pub(crate) struct Knobs {
    pub(crate) api: Duration,
    pub(crate) etcd_read: Duration,
    pub(crate) membership: Duration,
    /// Until a Pod has a node and an address.
    pub(crate) schedule: Duration,
    /// Until etcd listens.
    pub(crate) boot: Duration,
    pub(crate) terminate: Duration,
    /// Until the garbage collector acts.
    pub(crate) collect: Duration,
}

impl Default for Knobs {
    fn default() -> Self {
        let ms = Duration::from_millis;
        Knobs {
            api: ms(10),
            etcd_read: ms(4),
            membership: ms(30),
            schedule: ms(50),
            boot: ms(400),
            terminate: ms(200),
            collect: ms(20),
        }
    }
}

pub(crate) struct State {
    pub(crate) truth: Objects,
    pub(crate) stores: Stores,
    pub(crate) etcd: Etcd,
    pub(crate) faults: Faults,
    pub(crate) journal: Journal,
    pub(crate) knobs: Knobs,
    pub(crate) rng: StdRng,
    /// Members whose process is not started again for now.
    pub(crate) held: BTreeSet<String>,
    /// Clusters whose etcd answers nobody; its processes run.
    pub(crate) mute: BTreeSet<Uid>,
    pub(crate) guards: u64,
    /// When the operator's Lease ends; none while it is renewed.
    pub(crate) leased_until: Option<Time>,
    counter: u64,
}

pub(crate) struct Shared {
    state: Mutex<State>,
    pub(crate) clock: Clock,
    pub(crate) news: Notify,
    operator: Mutex<Option<(Intake, Waker<OperatorMsg>)>>,
}

impl Shared {
    pub(crate) fn new(seed: u64, clock: Clock) -> Arc<Self> {
        let state = State {
            truth: Objects::default(),
            stores: Stores::new(5),
            etcd: Etcd::default(),
            faults: Faults::default(),
            journal: Journal::default(),
            knobs: Knobs::default(),
            rng: StdRng::seed_from_u64(seed),
            held: BTreeSet::new(),
            mute: BTreeSet::new(),
            guards: 0,
            leased_until: None,
            counter: 0,
        };
        Arc::new(Shared { state: Mutex::new(state), clock, news: Notify::new(), operator: Mutex::new(None) })
    }

    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    /// A fake that was told to panic may have held the lock; its state is whole all the same.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn attach(&self, intake: Intake, waker: Waker<OperatorMsg>) {
        *self.operator.lock().unwrap() = Some((intake, waker));
    }

    pub(crate) fn detach(&self) {
        *self.operator.lock().unwrap() = None;
    }

    /// As a bug would, in whoever made the call.
    pub(crate) fn panic_as_told(&self) -> ! {
        let now = self.now();
        self.lock().journal.panics.push(now);
        panic!("the fake panics as told");
    }

    pub(crate) fn panic_if_told(&self, point: &str, cluster: &str, member: Option<&str>) {
        let fault = self.lock().faults.by_rule(point, cluster, member);
        if matches!(fault, Some(Fault::Panic)) {
            self.panic_as_told();
        }
    }

    pub(crate) fn touch(&self, key: &ClusterKey) {
        if let Some((intake, waker)) = &*self.operator.lock().unwrap() {
            intake.touch(&key.namespace, &key.name, waker);
        }
    }

    /// Delivers watch events for ever.
    pub(crate) async fn watch(self: Arc<Self>) {
        loop {
            let now = self.now();
            let (touched, next) = {
                let state = &mut *self.lock();
                let (mut touched, next) = state.stores.deliver(now);
                let State { faults, rng, .. } = state;
                touched.retain(|_| !faults.is_unheard(rng));
                (touched, next)
            };
            for key in touched {
                self.touch(&key);
            }
            let news = self.news.notified();
            match next {
                Some(due) => {
                    let wait = Duration::from_millis(due.0.saturating_sub(self.now().0).max(1));
                    tokio::select! { biased; () = news => {}, () = tokio::time::sleep(wait) => {} }
                }
                None => news.await,
            }
        }
    }
}

impl State {
    pub(crate) fn next(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    pub(crate) fn uid(&mut self, of: &str) -> Uid {
        Uid(format!("{of}-{}", self.next()))
    }

    /// Writes one object: to the truth now, to the stores later.
    pub(crate) fn put(&mut self, now: Time, object: Object) {
        self.truth.put(object.clone());
        self.stores.send(now, object);
    }

    pub(crate) fn edit_member(&mut self, now: Time, uid: &Uid, change: impl FnOnce(&mut MemberObj)) {
        let Some(mut member) = self.truth.members.get(uid).cloned() else { return };
        change(&mut member);
        member.rv = self.next();
        let gone = member.view.deleting.is_some() && !member.view.finalizer;
        self.put(now, Object::Member(uid.clone(), (!gone).then_some(member)));
    }

    pub(crate) fn edit_pod(&mut self, now: Time, name: &str, change: impl FnOnce(&mut PodObj)) {
        let Some(mut pod) = self.truth.pods.get(name).cloned() else { return };
        let before = pod.view.clone();
        change(&mut pod);
        if pod.view == before {
            return;
        }
        pod.rv = self.next();
        self.put(now, Object::Pod(name.to_owned(), Some(pod)));
    }

    pub(crate) fn log(&mut self, at: Time, cluster: &str, verb: &'static str, member: &str) {
        let (cluster, member) = (cluster.to_owned(), member.to_owned());
        self.journal.done.push(Done { at, cluster, verb, member });
    }

    pub(crate) fn violated(&mut self, now: Time, words: String) {
        self.journal.violations.push(format!("at {}: {words}", now.0));
    }

    /// What follows from the truth by itself: Pods show what their processes do, and what has no
    /// owner any more goes.
    pub(crate) fn settle(&mut self, now: Time) {
        for p in self.etcd.processes.values_mut() {
            p.mute = self.mute.contains(&self.etcd.instances[p.instance].of);
        }
        self.etcd.settle();
        let pods: Vec<(String, Uid)> =
            self.truth.pods.iter().map(|(name, pod)| (name.clone(), pod.view.uid.clone())).collect();
        for (name, uid) in pods {
            let process = self.etcd.processes.values().find(|p| p.pod == uid);
            let started = process.is_some();
            let ready = process.is_some_and(|p| self.etcd.serves(p));
            self.edit_pod(now, &name, |pod| {
                pod.view.started = started;
                pod.view.ready = ready;
            });
        }
        self.collect(now);
    }

    fn collect(&mut self, now: Time) {
        let gone: Vec<Uid> =
            self.truth.clusters.values().filter(|c| c.view.deleting).map(|c| c.key.uid.clone()).collect();
        for uid in gone {
            self.put(now, Object::Cluster(uid, None));
        }
        let orphans: Vec<Uid> = self
            .truth
            .members
            .values()
            .filter(|m| !self.truth.clusters.contains_key(&m.key.cluster.uid) && m.view.deleting.is_none())
            .map(|m| m.key.uid.clone())
            .collect();
        for uid in orphans {
            self.edit_member(now, &uid, |m| m.view.deleting = Some(now));
        }
        let orphans: Vec<_> = self
            .truth
            .services
            .iter()
            .filter(|(_, s)| !self.truth.clusters.contains_key(&s.cluster.uid))
            .map(|(key, _)| key.clone())
            .collect();
        for key in orphans {
            self.put(now, Object::Service(key, None));
        }
        let budgets = self.truth.budgets.keys().filter(|uid| !self.truth.clusters.contains_key(*uid));
        for uid in budgets.cloned().collect::<Vec<_>>() {
            self.put(now, Object::Budget(uid, None));
        }
        let orphans: Vec<String> = self
            .truth
            .pods
            .values()
            .filter(|p| !self.truth.members.contains_key(&p.member.uid) && !p.view.deleting)
            .map(|p| p.member.name.0.clone())
            .collect();
        for name in orphans {
            self.edit_pod(now, &name, |p| p.view.deleting = true);
        }
        let released: Vec<String> = self
            .truth
            .pvcs
            .values()
            .filter(|v| {
                let orphaned = !self.truth.members.contains_key(&v.member.uid);
                let used = self.truth.pods.values().any(|p| p.pvc_uid == v.view.uid);
                (v.view.deleting || orphaned) && !used
            })
            .map(|v| v.member.name.0.clone())
            .collect();
        for name in released {
            self.release_volume(now, &name);
        }
    }

    /// A volume's data is lost for good here, so this is where it must not be a member's any more.
    fn release_volume(&mut self, now: Time, name: &str) {
        let Some(pvc) = self.truth.pvcs.get(name).cloned() else { return };
        let owned = self.truth.clusters.contains_key(&pvc.member.cluster.uid);
        if let Some((instance, id)) = self.etcd.volumes.remove(&pvc.view.uid)
            && owned
            && self.etcd.instances[instance].members.iter().any(|m| m.id == id)
        {
            self.violated(now, format!("the volume of {name} was released while etcd lists it"));
        }
        self.put(now, Object::Pvc(name.to_owned(), None));
    }

    pub(crate) fn is_filled(&self, kinds: &[Kind]) -> bool {
        kinds.iter().all(|kind| self.stores.is_filled(*kind))
    }
}
