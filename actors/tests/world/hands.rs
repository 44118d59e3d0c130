//! The effects on the fake Kubernetes API: they take time, fail, are lost or come late as the faults say.

use std::{sync::Arc, time::Duration};

use etcd_operator_actors::{ClusterKey, Effect, Hands, MemberKey, Outcome, SeenCluster, Step};
use etcd_operator_core::{
    cluster::ClusterAction,
    ids::{MemberName, PeerUrl, Uid},
    member::MemberAction,
    reason::Reason,
    report::{Condition, Report, Verdict},
    time::{Time, timeouts},
    view::{BudgetState, MemberFacts, MemberRecord, MemberView, PodView, PvcView, ServiceState},
};
use etcd_operator_kubernetes::failure::ApiFailure;
use futures::future::BoxFuture;

use super::{
    faults::Fault,
    journal::Done,
    kubelet,
    objects::{BudgetObj, MemberObj, Object, PodObj, PvcObj, ServiceObj},
    shared::{Shared, State},
    sight::seen,
};

/// Both ports to Kubernetes; the other one is in [`super::sight`].
pub(crate) struct FakeApi(pub(crate) Arc<Shared>);

type Change = Box<dyn FnOnce(&mut State, Time) -> Result<Outcome, ApiFailure> + Send>;

impl FakeApi {
    /// One API call: its delay, its fault, its effect at some moment in between.
    fn call(&self, verb: &'static str, cluster: &ClusterKey, member: &str, change: Change) -> Effect {
        let shared = self.0.clone();
        let (cluster, member) = (cluster.name.clone(), member.to_owned());
        let fault = {
            let state = &mut *shared.lock();
            let fault = state.faults.by_rule(verb, &cluster, Some(&member));
            fault.or_else(|| state.faults.api(&mut state.rng))
        };
        Box::pin(async move {
            let half = {
                let state = &mut *shared.lock();
                let begun = Done { at: shared.now(), cluster: cluster.clone(), verb, member: member.clone() };
                state.journal.begun.push(begun);
                state.knobs.api / 2
            };
            let land = {
                let shared = shared.clone();
                move || land(&shared, verb, &cluster, &member, change)
            };
            let unknown = |after: Duration| async move {
                let after = after.min(timeouts::API_CALL);
                tokio::time::sleep(after).await;
                Err(ApiFailure::Ambiguous("no answer came".into()))
            };
            tokio::time::sleep(half).await;
            match fault {
                Some(Fault::Panic) => shared.panic_as_told(),
                None | Some(Fault::Refuse(_)) => {
                    let result = land();
                    tokio::time::sleep(half).await;
                    result
                }
                Some(Fault::Slow(d)) => {
                    tokio::time::sleep(d).await;
                    land()
                }
                Some(Fault::Api(failure)) => Err(failure),
                Some(Fault::LostRequest(after)) => unknown(after).await,
                Some(Fault::LostAnswer(after)) => {
                    let _ = land();
                    unknown(after).await
                }
                Some(Fault::Late { answer, lands }) => {
                    tokio::spawn(async move {
                        tokio::time::sleep(lands).await;
                        let _ = land();
                    });
                    unknown(answer).await
                }
                Some(Fault::Never) => std::future::pending().await,
            }
        })
    }

    /// A live read: fails as calls do, reads the truth.
    fn read<T: Send + 'static>(
        &self,
        verb: &'static str,
        key: &ClusterKey,
        read: impl FnOnce(&State) -> T + Send + 'static,
    ) -> BoxFuture<'static, Result<T, ApiFailure>> {
        let shared = self.0.clone();
        let called = self.call(verb, key, "", Box::new(|_, _| Ok(Outcome::Done)));
        Box::pin(async move {
            match called.await {
                Ok(_) => Ok(read(&shared.lock())),
                Err(ApiFailure::Ambiguous(why)) => Err(ApiFailure::Unreachable(why)),
                Err(failure) => Err(failure),
            }
        })
    }
}

/// The API server carries a call out.
fn land(
    shared: &Arc<Shared>,
    verb: &'static str,
    cluster: &str,
    member: &str,
    change: Change,
) -> Result<Outcome, ApiFailure> {
    let now = shared.now();
    let result = {
        let state = &mut *shared.lock();
        let result = change(state, now);
        let read = matches!(verb, "Confirm" | "IsGone");
        if result == Ok(Outcome::Done) && !read {
            state.log(now, cluster, verb, member);
        }
        result
    };
    shared.news.notify_one();
    if result == Ok(Outcome::Done) && matches!(verb, "DeletePod" | "DeletePvc" | "Release" | "DeleteMember") {
        tokio::spawn(kubelet::follow_up(shared.clone()));
    }
    if result == Ok(Outcome::Done) && verb == "CreatePod" {
        let uid = shared.lock().truth.pods.get(member).map(|p| p.view.uid.clone());
        if let Some(uid) = uid {
            tokio::spawn(kubelet::run(shared.clone(), member.to_owned(), uid));
        }
    }
    result
}

fn conflict() -> ApiFailure {
    ApiFailure::Conflict("the resourceVersion is another one".into())
}

/// A write to an EtcdMember that carries the resourceVersion which the store showed.
fn guarded(uid: Uid, rv: Option<u64>, change: impl FnOnce(&mut MemberObj, Time) + Send + 'static) -> Change {
    Box::new(move |state, now| {
        let Some(member) = state.truth.members.get(&uid) else { return Err(ApiFailure::NotFound) };
        if Some(member.rv) != rv {
            return Err(conflict());
        }
        state.edit_member(now, &uid, |m| change(m, now));
        Ok(Outcome::Done)
    })
}

impl Hands for FakeApi {
    fn is_gone(&self, key: &ClusterKey) -> BoxFuture<'static, Result<bool, ApiFailure>> {
        let uid = key.uid.clone();
        self.read("IsGone", key, move |state| !state.truth.clusters.contains_key(&uid))
    }

    fn confirm(&self, key: &ClusterKey) -> BoxFuture<'static, Result<SeenCluster, ApiFailure>> {
        let k = key.clone();
        self.read("Confirm", key, move |state| seen(state, &state.truth, &k, true))
    }

    fn act(&self, key: &ClusterKey, action: ClusterAction, member_name: MemberName) -> Effect {
        let cluster = key.clone();
        let park = matches!(action, ClusterAction::ParkMember { .. });
        match action {
            ClusterAction::CreateService(kind) | ClusterAction::RepairService(kind) => {
                let change = move |state: &mut State, now| {
                    let at = (cluster.uid.clone(), kind);
                    match state.truth.services.get(&at).map(|s| s.state) {
                        Some(ServiceState::Foreign) => return Ok(Outcome::Foreign),
                        Some(ServiceState::Right) => return Ok(Outcome::Already),
                        _ => {}
                    }
                    let service = ServiceObj { cluster, state: ServiceState::Right };
                    state.put(now, Object::Service(at, Some(service)));
                    Ok(Outcome::Done)
                };
                self.call("PutService", key, "", Box::new(change))
            }
            ClusterAction::PutBudget { min_available, .. } => {
                let rv = self.0.lock().stores.objects.budgets.get(&key.uid).map(|b| b.rv);
                let change = move |state: &mut State, now| put_budget(state, now, cluster, rv, min_available);
                self.call("PutBudget", key, "", Box::new(change))
            }
            ClusterAction::DeleteBudget => {
                let change = move |state: &mut State, now| {
                    state.put(now, Object::Budget(cluster.uid, None));
                    Ok(Outcome::Done)
                };
                self.call("DeleteBudget", key, "", Box::new(change))
            }
            ClusterAction::CreateMember { seed } => {
                let name = member_name.clone();
                let change = move |state: &mut State, now| create_member(state, now, cluster, name, seed);
                self.call("CreateMember", key, member_name.as_str(), Box::new(change))
            }
            ClusterAction::DeleteMember { name, uid, .. } => {
                let change = move |state: &mut State, now| {
                    if !state.truth.members.contains_key(&uid) {
                        return Ok(Outcome::Already);
                    }
                    state.edit_member(now, &uid, |m| {
                        m.view.deleting.get_or_insert(now);
                    });
                    Ok(Outcome::Done)
                };
                self.call("DeleteMember", key, name.as_str(), Box::new(change))
            }
            ClusterAction::ParkMember { name, uid } | ClusterAction::WakeMember { name, uid } => {
                let verb = if park { "ParkMember" } else { "WakeMember" };
                let change = move |state: &mut State, now| {
                    if !state.truth.members.contains_key(&uid) {
                        return Ok(Outcome::Outdated);
                    }
                    state.edit_member(now, &uid, |m| m.view.dormant = park);
                    Ok(Outcome::Done)
                };
                self.call(verb, key, name.as_str(), Box::new(change))
            }
            ClusterAction::UpdateMember { name, uid, permit, .. } => {
                let change = move |state: &mut State, now| {
                    let wanted =
                        state.truth.clusters.get(&cluster.uid).and_then(|c| c.view.recorded.target.clone());
                    let Some(wanted) = wanted.filter(|_| state.truth.members.contains_key(&uid)) else {
                        return Ok(Outcome::Outdated);
                    };
                    state.edit_member(now, &uid, |m| {
                        m.view.generation += 1;
                        m.view.pod_generation = m.view.generation;
                        m.view.blueprint = wanted.blueprint;
                        m.view.permit = permit;
                    });
                    Ok(Outcome::Done)
                };
                self.call("UpdateMember", key, name.as_str(), Box::new(change))
            }
            ClusterAction::ConfirmMembers => Box::pin(async { Ok(Outcome::Already) }),
        }
    }

    fn write_status(&self, key: &ClusterKey, report: &Report, _: Time) -> Option<Effect> {
        self.0.panic_if_told("SupervisorTurn", &key.name, None);
        let (rv, new) = {
            let state = self.0.lock();
            let shown = state.stores.objects.clusters.get(&key.uid)?;
            let new = merged(shown.status.as_ref(), report);
            if shown.status.as_ref() == Some(&new) && shown.view.recorded == new.record {
                return None;
            }
            (shown.rv, new)
        };
        let uid = key.uid.clone();
        let change = move |state: &mut State, now| {
            let Some(mut cluster) = state.truth.clusters.get(&uid).cloned() else {
                return Err(ApiFailure::NotFound);
            };
            if cluster.rv != rv {
                return Err(conflict());
            }
            cluster.rv = state.next();
            cluster.view.recorded = new.record.clone();
            cluster.status = Some(new);
            state.put(now, Object::Cluster(uid, Some(cluster)));
            Ok(Outcome::Done)
        };
        Some(self.call("WriteStatus", key, "", Box::new(change)))
    }

    fn act_member(&self, key: &MemberKey, action: MemberAction) -> Effect {
        let (member, name) = (key.clone(), key.name.as_str());
        let rv = self.0.lock().stores.objects.members.get(&key.uid).map(|m| m.rv);
        let call = |verb, change| self.call(verb, &key.cluster, name, change);
        match action {
            MemberAction::CreatePvc => call("CreatePvc", Box::new(|s, now| create_pvc(s, now, member))),
            MemberAction::RecordJoin { initial_cluster } => call(
                "RecordJoin",
                guarded(key.uid.clone(), rv, |m, _| m.view.initial_cluster = initial_cluster),
            ),
            MemberAction::Release => {
                call("Release", guarded(key.uid.clone(), rv, |m, _| m.view.finalizer = false))
            }
            MemberAction::CreatePod { instruction, pvc_uid } => {
                call("CreatePod", Box::new(move |s, now| create_pod(s, now, member, instruction, pvc_uid)))
            }
            MemberAction::CreateRecoveryPod { .. } => panic!("nobody asks for a recovery in this world"),
            MemberAction::PatchPod { pod_uid, instruction, voter_label } => {
                let rv = self.0.lock().stores.objects.pods.get(name).map(|p| p.rv);
                let name = name.to_owned();
                let change = move |state: &mut State, now| {
                    let Some(pod) = state.truth.pods.get(&name) else { return Err(ApiFailure::NotFound) };
                    if Some(pod.rv) != rv || pod.view.uid != pod_uid {
                        return Err(conflict());
                    }
                    state.edit_pod(now, &name, |p| {
                        p.view.instruction = Some(instruction);
                        p.view.voter_label = voter_label;
                        p.view.labels_right = true;
                    });
                    Ok(Outcome::Done)
                };
                call("PatchPod", Box::new(change))
            }
            MemberAction::ClearPermit => {
                call("ClearPermit", guarded(key.uid.clone(), rv, |m, _| m.view.permit = None))
            }
            MemberAction::GrowPvc { .. } => panic!("sizes do not change here"),
            MemberAction::DeletePod { pod_uid, .. } | MemberAction::EvictPod { pod_uid, .. } => {
                let name = name.to_owned();
                let change = move |state: &mut State, now| {
                    if state.truth.pods.get(&name).is_none_or(|p| p.view.uid != pod_uid) {
                        return Ok(Outcome::Already);
                    }
                    state.edit_pod(now, &name, |p| p.view.deleting = true);
                    Ok(Outcome::Done)
                };
                call("DeletePod", Box::new(change))
            }
            MemberAction::PatchPvc { pvc_uid } => {
                let name = name.to_owned();
                let change = move |state: &mut State, now| {
                    let Some(mut pvc) =
                        state.truth.pvcs.get(&name).filter(|p| p.view.uid == pvc_uid).cloned()
                    else {
                        return Ok(Outcome::Outdated);
                    };
                    pvc.view.labels_right = true;
                    pvc.rv = state.next();
                    state.put(now, Object::Pvc(name, Some(pvc)));
                    Ok(Outcome::Done)
                };
                call("PatchPvc", Box::new(change))
            }
            MemberAction::DeletePvc { pvc_uid } => {
                let change = move |state: &mut State, now| delete_pvc(state, now, member, pvc_uid);
                call("DeletePvc", Box::new(change))
            }
            MemberAction::Ask(_) | MemberAction::Record(_) | MemberAction::ConfirmOwner => {
                panic!("{action:?} is no effect of the hands")
            }
        }
    }

    fn write_member_status(
        &self,
        key: &MemberKey,
        facts: &MemberFacts,
        trouble: Option<(Reason, String)>,
        _: Time,
    ) -> Option<Effect> {
        self.0.panic_if_told("MemberTurn", &key.cluster.name, Some(key.name.as_str()));
        let record: MemberRecord = facts.member.recorded.clone();
        let rv = {
            let state = self.0.lock();
            let shown = state.stores.objects.members.get(&key.uid)?;
            if shown.view.recorded == record && shown.trouble == trouble {
                return None;
            }
            shown.rv
        };
        let change = guarded(key.uid.clone(), Some(rv), move |m, _| {
            m.view.recorded = record;
            m.trouble = trouble;
        });
        Some(self.call("WriteMemberStatus", &key.cluster, key.name.as_str(), change))
    }

    fn tell(&self, key: &ClusterKey, step: Step, _: Option<&MemberName>, note: String) {
        self.0.lock().journal.told.push(format!("{}: {step:?}: {note}", key.name));
    }
}

/// What is not known leaves standing what was said before.
fn merged(old: Option<&Report>, new: &Report) -> Report {
    let Some(old) = old else { return new.clone() };
    let keep = |old: &Condition, new: &Condition| {
        if new.verdict == Verdict::Unknown { old.clone() } else { new.clone() }
    };
    Report {
        record: new.record.clone(),
        ready_members: new.ready_members.or(old.ready_members),
        broken_members: new.broken_members,
        leader: new.leader.clone().or(old.leader.clone()),
        // No write of its own, as in the real status.
        db_size: old.db_size.or(new.db_size),
        available: keep(&old.available, &new.available),
        progressing: keep(&old.progressing, &new.progressing),
        degraded: keep(&old.degraded, &new.degraded),
        spec_warnings: new.spec_warnings.clone(),
        disruptions: match (&old.disruptions, &new.disruptions) {
            (Some(old), Some(new)) => Some(keep(old, new)),
            (old, new) => new.clone().or(old.clone()),
        },
    }
}

/// A create if the store showed none, else a patch of what it showed.
fn put_budget(
    state: &mut State,
    now: Time,
    cluster: ClusterKey,
    rv: Option<u64>,
    min_available: usize,
) -> Result<Outcome, ApiFailure> {
    let there = state.truth.budgets.get(&cluster.uid);
    if there.is_some_and(|b| b.state == BudgetState::Foreign) {
        return Ok(Outcome::Foreign);
    }
    if rv.is_some() && there.map(|b| b.rv) != rv {
        return Err(conflict());
    }
    let budget = BudgetObj {
        cluster: cluster.clone(),
        rv: state.next(),
        state: BudgetState::Present { min_available, right: true },
    };
    state.put(now, Object::Budget(cluster.uid, Some(budget)));
    Ok(Outcome::Done)
}

fn create_member(
    state: &mut State,
    now: Time,
    cluster: ClusterKey,
    name: MemberName,
    seed: bool,
) -> Result<Outcome, ApiFailure> {
    if !state.truth.clusters.contains_key(&cluster.uid) {
        return Err(ApiFailure::NotFound);
    }
    if let Some(there) = state.truth.members.values().find(|m| m.view.name == name) {
        let ours = there.key.cluster.uid == cluster.uid;
        return Ok(if ours { Outcome::Already } else { Outcome::Foreign });
    }
    let (rv, uid) = (state.next(), state.uid(name.as_str()));
    let peer_url = PeerUrl(format!("http://{name}.{}.{}.svc:2380", cluster.name, cluster.namespace));
    let view = MemberView {
        name: name.clone(),
        uid: uid.clone(),
        founds: super::etcd::founded_at(&peer_url),
        peer_url,
        seed,
        dormant: false,
        memory: false,
        blueprint: state
            .truth
            .clusters
            .get(&cluster.uid)
            .map(|c| c.view.blueprint.clone())
            .unwrap_or_default(),
        generation: 1,
        pod_generation: 0,
        permit: None,
        initial_cluster: String::new(),
        created: now,
        deleting: None,
        finalizer: true,
        recorded: MemberRecord::default(),
    };
    let key = MemberKey { cluster, name, uid: uid.clone() };
    state.put(now, Object::Member(uid, Some(MemberObj { key, rv, view, trouble: None })));
    Ok(Outcome::Done)
}

fn create_pvc(state: &mut State, now: Time, member: MemberKey) -> Result<Outcome, ApiFailure> {
    if let Some(there) = state.truth.pvcs.get(member.name.as_str()) {
        return Ok(if there.view.ours { Outcome::Already } else { Outcome::Foreign });
    }
    if !state.truth.members.contains_key(&member.uid) {
        return Err(ApiFailure::NotFound);
    }
    let (rv, uid) = (state.next(), state.uid("pvc"));
    let view = PvcView {
        uid,
        ours: true,
        deleting: false,
        labels_right: true,
        requested: None,
        capacity: None,
        resize_pending: None,
    };
    state.put(now, Object::Pvc(member.name.0.clone(), Some(PvcObj { member, rv, view })));
    Ok(Outcome::Done)
}

fn delete_pvc(state: &mut State, now: Time, member: MemberKey, pvc_uid: Uid) -> Result<Outcome, ApiFailure> {
    let name = member.name.0;
    let Some(mut pvc) = state.truth.pvcs.get(&name).filter(|p| p.view.uid == pvc_uid).cloned() else {
        return Ok(Outcome::Already);
    };
    let listed =
        state.etcd.volumes.get(&pvc_uid).is_some_and(|(instance, id)| {
            state.etcd.instances[*instance].members.iter().any(|m| m.id == *id)
        });
    if listed && state.truth.clusters.contains_key(&member.cluster.uid) {
        state.violated(now, format!("the PVC of {name} is deleted while etcd lists it"));
    }
    pvc.view.deleting = true;
    pvc.rv = state.next();
    state.put(now, Object::Pvc(name, Some(pvc)));
    Ok(Outcome::Done)
}

fn create_pod(
    state: &mut State,
    now: Time,
    member: MemberKey,
    instruction: etcd_operator_core::view::JoinInstruction,
    pvc_uid: Option<Uid>,
) -> Result<Outcome, ApiFailure> {
    let name = member.name.0.clone();
    let Some(pvc_uid) = pvc_uid else { panic!("these clusters keep their data on volumes") };
    if state.truth.pvcs.get(&name).is_none_or(|p| p.view.uid != pvc_uid) {
        return Ok(Outcome::Outdated);
    }
    if let Some(there) = state.truth.pods.get(&name) {
        return Ok(if there.view.ours { Outcome::Already } else { Outcome::Foreign });
    }
    if !state.truth.members.contains_key(&member.uid) {
        return Err(ApiFailure::NotFound);
    }
    let (rv, uid) = (state.next(), state.uid("pod"));
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
        instruction: Some(instruction),
        trouble: None,
        restarts: 0,
        rewrites: false,
        made_from: state.truth.members.get(&member.uid).map_or(0, |m| m.view.generation),
    };
    state.put(now, Object::Pod(name, Some(PodObj { member, rv, view, pvc_uid })));
    Ok(Outcome::Done)
}
