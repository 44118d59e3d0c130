//! The fake etcd behind the etcd crate's two ports, with the adapter's promises: a list is
//! linearizable, every call ends within its deadline, and nothing is sent to another cluster or
//! member than the expected. Each membership call is recorded from its start to its end, and
//! checked against what must never happen.

use std::{sync::Arc, time::Duration};

use etcd_operator_actors::EtcdPorts;
use etcd_operator_core::{
    etcd::{EtcdFailure, Look, MemberList, MemberStatus, Refusal, quorum},
    ids::{MemberId, PeerUrl},
    time::{Time, timeouts},
};
use etcd_operator_etcd::{Added, EtcdReads, EtcdWrites, MemberReader, MembershipWriter, Target};
use futures::future::BoxFuture;

use super::{
    etcd::Process,
    faults::Fault,
    journal::{MembershipCall, Outcome},
    shared::{Shared, State},
};

/// Makes the ports.
pub(crate) struct FakeEtcd(pub(crate) Arc<Shared>);

impl EtcdPorts for FakeEtcd {
    fn ports(&self) -> (MemberReader, MembershipWriter) {
        let life = {
            let state = &mut *self.0.lock();
            state.guards += 1;
            state.guards
        };
        let reads = GuardReads(Reads(self.0.clone()));
        (MemberReader::new(Arc::new(reads)), MembershipWriter::new(Writes { shared: self.0.clone(), life }))
    }

    fn reader(&self) -> MemberReader {
        MemberReader::new(Arc::new(Reads(self.0.clone())))
    }
}

struct Reads(Arc<Shared>);

/// A guard's reads: those that a test can make panic without ending a member's actor.
struct GuardReads(Reads);

enum Found {
    Nobody,
    Mute,
    Here(Process),
}

fn find(state: &State, target: &Target) -> Found {
    match state.etcd.processes.get(&target.address) {
        None => Found::Nobody,
        Some(p) if p.mute => Found::Mute,
        Some(p) => Found::Here(p.clone()),
    }
}

/// Whether who answers is who must answer, as far as that is known.
fn fits(state: &State, p: &Process, target: &Target) -> bool {
    let cluster = state.etcd.instances[p.instance].cluster_id;
    target.expected.cluster_id.is_none_or(|c| c == cluster)
        && target.expected.member_id.is_none_or(|m| m == p.id)
}

fn cluster_of(target: &Target) -> String {
    target.server_name.split('.').nth(1).unwrap_or_default().to_owned()
}

impl Reads {
    async fn pause(&self) {
        let pause = self.0.lock().knobs.etcd_read;
        tokio::time::sleep(pause).await;
    }

    async fn list_now(&self, targets: &[Target]) -> Result<MemberList, EtcdFailure> {
        self.pause().await;
        let silence = {
            let state = &mut *self.0.lock();
            if let Some(first) = targets.first() {
                state.journal.lists.push((self.0.now(), cluster_of(first)));
            }
            let mut worst = EtcdFailure::Unreachable("nobody listens".into());
            for target in targets {
                match find(state, target) {
                    Found::Here(p) if !fits(state, &p, target) => {
                        worst = EtcdFailure::WrongPeer("another member answers".into());
                    }
                    Found::Here(p) if state.etcd.serves(&p) => return Ok(state.etcd.list(p.instance)),
                    Found::Here(_) | Found::Mute => {
                        worst = EtcdFailure::Ambiguous("no quorum answered".into());
                    }
                    Found::Nobody => {}
                }
            }
            worst
        };
        if matches!(silence, EtcdFailure::Ambiguous(_)) {
            tokio::time::sleep(timeouts::ETCD_READ).await;
        }
        Err(silence)
    }

    async fn look_now(&self, target: &Target) -> Look {
        self.pause().await;
        let answer = {
            let now = self.0.now();
            let state = &mut *self.0.lock();
            state.journal.looks.push((now, cluster_of(target)));
            match find(state, target) {
                Found::Nobody => return Look::Silent { at: now },
                Found::Mute => None,
                Found::Here(p) => {
                    let linearizable = state.etcd.serves(&p) && fits(state, &p, target);
                    let waits = !state.etcd.has_quorum(p.instance);
                    Some((state.etcd.status(&p, now), linearizable, waits))
                }
            }
        };
        match answer {
            None => {
                tokio::time::sleep(timeouts::ETCD_READ).await;
                Look::Silent { at: self.0.now() }
            }
            Some((status, linearizable, waits)) => {
                if waits && !status.is_learner {
                    tokio::time::sleep(timeouts::ETCD_READ).await;
                }
                Look::Answered { at: self.0.now(), status, linearizable }
            }
        }
    }
}

impl EtcdReads for Reads {
    fn list<'a>(&'a self, targets: &'a [Target]) -> BoxFuture<'a, Result<MemberList, EtcdFailure>> {
        Box::pin(self.list_now(targets))
    }

    fn status<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<MemberStatus, EtcdFailure>> {
        Box::pin(async move {
            let look = self.look_now(target).await;
            look.status().cloned().ok_or_else(|| EtcdFailure::Unreachable("nobody answers".into()))
        })
    }

    fn linearizable_read<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<(), EtcdFailure>> {
        Box::pin(async move {
            let look = self.look_now(target).await;
            if look.serves() { Ok(()) } else { Err(EtcdFailure::Ambiguous("no quorum".into())) }
        })
    }

    fn look<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Look> {
        Box::pin(self.look_now(target))
    }
}

impl EtcdReads for GuardReads {
    fn list<'a>(&'a self, targets: &'a [Target]) -> BoxFuture<'a, Result<MemberList, EtcdFailure>> {
        Box::pin(async move {
            let cluster = targets.first().map(cluster_of).unwrap_or_default();
            let fault = self.0.0.lock().faults.by_rule("GuardList", &cluster, None);
            match fault {
                Some(Fault::Panic) => self.0.0.panic_as_told(),
                Some(Fault::LostAnswer(after) | Fault::LostRequest(after)) => {
                    tokio::time::sleep(after.min(timeouts::ETCD_READ)).await;
                    Err(EtcdFailure::Ambiguous("no answer came".into()))
                }
                Some(Fault::Slow(after)) => {
                    tokio::time::sleep(after).await;
                    self.0.list_now(targets).await
                }
                _ => self.0.list_now(targets).await,
            }
        })
    }

    fn status<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<MemberStatus, EtcdFailure>> {
        self.0.status(target)
    }

    fn linearizable_read<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<(), EtcdFailure>> {
        self.0.linearizable_read(target)
    }

    fn look<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Look> {
        self.0.look(target)
    }
}

struct Writes {
    shared: Arc<Shared>,
    life: u64,
}

/// A membership change, as etcd takes it.
#[derive(Debug, Clone)]
enum Change {
    Add(PeerUrl),
    Promote(MemberId),
    Remove(MemberId),
    MoveLeader { from: MemberId, to: MemberId },
}

impl Change {
    fn verb(&self) -> &'static str {
        match self {
            Change::Add(_) => "MemberAdd",
            Change::Promote(_) => "MemberPromote",
            Change::Remove(_) => "MemberRemove",
            Change::MoveLeader { .. } => "MoveLeader",
        }
    }

    /// The name of the member whose place changes.
    fn member(&self, state: &State, instance: usize) -> String {
        let url = match self {
            Change::Add(url) => Some(url.clone()),
            Change::Promote(id) | Change::Remove(id) | Change::MoveLeader { from: id, .. } => {
                let members = &state.etcd.instances[instance].members;
                members.iter().find(|m| m.id == *id).and_then(|m| m.peer_urls.first().cloned())
            }
        };
        url.map(|u| u.host_label().to_owned()).unwrap_or_default()
    }
}

/// Marks a call as ended, also when its caller is dropped in the middle.
struct InFlight {
    shared: Arc<Shared>,
    at: usize,
    outcome: Outcome,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let now = self.shared.now();
        let call = &mut self.shared.lock().journal.calls[self.at];
        call.ended = Some(now);
        call.outcome = self.outcome;
    }
}

impl Writes {
    async fn call(&self, voters: &[Target], change: Change) -> Result<(usize, MemberId), EtcdFailure> {
        let shared = &self.shared;
        let process = {
            let state = shared.lock();
            let mut worst = EtcdFailure::Unreachable("no voter to ask".into());
            let found = voters.iter().find_map(|target| match find(&state, target) {
                Found::Here(p) if target.expected.cluster_id.is_none() || !fits(&state, &p, target) => {
                    worst = EtcdFailure::WrongPeer("another member answers".into());
                    None
                }
                Found::Here(p) => Some(p),
                Found::Nobody | Found::Mute => None,
            });
            match found {
                Some(p) => p,
                None => return Err(worst),
            }
        };
        let (mut flight, fault) = self.begin(&process, &change);
        let (half, quorate) = {
            let state = shared.lock();
            (state.knobs.membership / 2, state.etcd.has_quorum(process.instance))
        };
        tokio::time::sleep(half).await;
        let n = process.instance;
        let unknown = |after: Duration| async move {
            tokio::time::sleep(after.min(timeouts::MEMBERSHIP_CALL - half)).await;
            Err(EtcdFailure::Ambiguous("no answer came".into()))
        };
        let result = match fault {
            _ if !quorate => unknown(Duration::from_secs(7)).await,
            Some(Fault::Refuse(refusal)) => Err(EtcdFailure::Refused(refusal)),
            Some(Fault::LostRequest(after)) => unknown(after).await,
            Some(Fault::LostAnswer(after)) => {
                let _ = land(shared, n, &change);
                unknown(after).await
            }
            Some(Fault::Late { answer, lands }) => {
                let (shared, change) = (shared.clone(), change.clone());
                tokio::spawn(async move {
                    tokio::time::sleep(lands).await;
                    let _ = land(&shared, n, &change);
                });
                unknown(answer).await
            }
            Some(Fault::Never) => std::future::pending().await,
            Some(Fault::Panic) => shared.panic_as_told(),
            Some(Fault::Slow(after)) => {
                tokio::time::sleep(after).await;
                land(shared, n, &change).map_err(EtcdFailure::Refused)
            }
            Some(Fault::Api(_)) | None => {
                let result = land(shared, n, &change).map_err(EtcdFailure::Refused);
                tokio::time::sleep(half).await;
                result
            }
        };
        flight.outcome = match &result {
            Ok(_) => Outcome::Done,
            Err(EtcdFailure::Ambiguous(_)) => Outcome::Ambiguous,
            Err(EtcdFailure::Refused(_)) => Outcome::Refused,
            Err(_) => Outcome::NotSent,
        };
        result.map(|id| (n, id))
    }

    /// Records the start of a call, and whether it may start at all.
    fn begin(&self, process: &Process, change: &Change) -> (InFlight, Option<Fault>) {
        let now = self.shared.now();
        let state = &mut *self.shared.lock();
        let cluster = state.etcd.instances[process.instance].of.clone();
        let member = change.member(state, process.instance);
        let verb = change.verb();
        let call = MembershipCall {
            cluster: cluster.clone(),
            life: self.life,
            verb,
            member: member.clone(),
            sent: now,
            ended: None,
            outcome: Outcome::InFlight,
        };
        if let Some(words) = breaks_a_rule(&state.journal.calls, &call) {
            state.violated(now, words);
        }
        let at = state.journal.calls.len();
        state.journal.calls.push(call);
        let name = state.truth.clusters.get(&cluster).map(|c| c.key.name.clone()).unwrap_or_default();
        let fault = state.faults.by_rule(verb, &name, Some(&member));
        let fault = fault.or_else(|| state.faults.etcd(&mut state.rng));
        (InFlight { shared: self.shared.clone(), at, outcome: Outcome::Dropped }, fault)
    }
}

/// Rules 1 and 6: no two at once, and after a call whose outcome is open nothing but the same
/// change before it can no longer land.
fn breaks_a_rule(calls: &[MembershipCall], new: &MembershipCall) -> Option<String> {
    let same = |old: &MembershipCall| {
        let hand_over = [old.verb, new.verb].iter().all(|v| matches!(*v, "MoveLeader" | "MemberRemove"));
        old.member == new.member && (old.verb == new.verb || hand_over)
    };
    let earlier: Vec<&MembershipCall> = calls.iter().filter(|c| c.cluster == new.cluster).collect();
    if let Some(open) = earlier.iter().find(|c| c.ended.is_none()) {
        return Some(format!("{new:?} starts while {open:?} is in flight"));
    }
    let last = earlier.iter().rev().find(|c| matches!(c.outcome, Outcome::Ambiguous | Outcome::Dropped))?;
    // What etcd took in at the start of the call it may apply up to 7 s later, also when the same
    // change has succeeded in between.
    let open_until = last.sent + timeouts::DOUBT;
    if new.sent < open_until && !same(last) {
        return Some(format!("{new:?} follows {last:?} before that is resolved"));
    }
    None
}

/// etcd applies a change.
fn land(shared: &Shared, instance: usize, change: &Change) -> Result<MemberId, Refusal> {
    let now = shared.now();
    let state = &mut *shared.lock();
    let member = change.member(state, instance);
    let result = match change {
        Change::Add(url) => state.etcd.add_learner(instance, url, now),
        Change::Promote(id) => state.etcd.promote(instance, *id, now).map(|()| *id),
        Change::Remove(id) => state.etcd.remove(instance, *id).map(|()| *id),
        Change::MoveLeader { to, .. } => state.etcd.move_leader(instance, *to).map(|()| *to),
    };
    if result.is_ok() {
        let of = state.etcd.instances[instance].of.clone();
        let name = state.truth.clusters.get(&of).map(|c| c.key.name.clone()).unwrap_or_default();
        state.log(now, &name, change.verb(), &member);
        check_quorum(state, instance, change, now);
        state.settle(now);
    }
    shared.news.notify_one();
    result
}

/// No change of ours leaves fewer voters alive than the new quorum.
fn check_quorum(state: &mut State, instance: usize, change: &Change, now: Time) {
    let list = state.etcd.list(instance);
    let alive = |id| state.etcd.processes.values().any(|p| p.instance == instance && p.id == id && !p.mute);
    let voters = list.voters().count();
    let living = list.voters().filter(|m| alive(m.id)).count();
    let learners = list.learners().count();
    if living < quorum(voters) || learners > 1 {
        let words = format!("{change:?} left {living} of {voters} voters alive and {learners} learners");
        state.violated(now, words);
    }
}

impl EtcdWrites for Writes {
    fn add_learner<'a>(
        &'a self,
        voters: &'a [Target],
        peer_url: &'a PeerUrl,
    ) -> BoxFuture<'a, Result<Added, EtcdFailure>> {
        Box::pin(async move {
            let (n, member_id) = self.call(voters, Change::Add(peer_url.clone())).await?;
            Ok(Added { member_id, list: self.shared.lock().etcd.list(n) })
        })
    }

    fn promote<'a>(
        &'a self,
        voters: &'a [Target],
        id: MemberId,
    ) -> BoxFuture<'a, Result<MemberList, EtcdFailure>> {
        Box::pin(async move {
            let (n, _) = self.call(voters, Change::Promote(id)).await?;
            Ok(self.shared.lock().etcd.list(n))
        })
    }

    fn remove<'a>(
        &'a self,
        voters: &'a [Target],
        id: MemberId,
    ) -> BoxFuture<'a, Result<MemberList, EtcdFailure>> {
        Box::pin(async move {
            let (n, _) = self.call(voters, Change::Remove(id)).await?;
            Ok(self.shared.lock().etcd.list(n))
        })
    }

    fn move_leader<'a>(&'a self, leader: &'a Target, to: MemberId) -> BoxFuture<'a, Result<(), EtcdFailure>> {
        Box::pin(async move {
            let from = leader.expected.member_id.unwrap_or(MemberId(0));
            let change = Change::MoveLeader { from, to };
            self.call(std::slice::from_ref(leader), change).await.map(|_| ())
        })
    }
}
