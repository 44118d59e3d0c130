//! The guard: one turn is list, looks, second look, judgement, call, each a step of its own, so
//! that the world may move in between. Keeps the doubt.

use std::collections::BTreeMap;

use etcd_operator_core::{
    etcd::{Look, MemberList},
    ids::{MemberId, PeerUrl, Uid},
    membership::{Call, Change, Doubt, Evidence, STEADY, Verdict},
    time::{Time, timeouts},
    view::{ListFact, Presence},
    volume::is_volume_doomed,
    volume::may_hold_data,
};

use super::{
    actors::Operator,
    kube::{M, member_of, url_of},
    mutants::{self, Mutant},
    properties::Truth,
    world::{Reply, World},
};

/// As in the real guard: longer than the asker waits and its call takes.
const RESTART: std::time::Duration = std::time::Duration::from_secs(13);

#[derive(Clone, Debug)]
pub(crate) struct Guard {
    doubt: Option<Doubt>,
    questions: BTreeMap<M, Change>,
    stray: Option<(M, Change)>,
    turn: Option<Turn>,
    last_list: Option<MemberList>,
    granted: Option<(MemberId, Uid, Time)>,
    began: Time,
}

#[derive(Clone, Debug)]
struct Turn {
    question: Option<(M, Change)>,
    stray: bool,
    began: Time,
    list: MemberList,
    instance: usize,
    looks: Option<BTreeMap<MemberId, Look>>,
    second: Option<Look>,
    truth: Truth,
    call: Option<etcd_operator_core::membership::Call>,
}

impl Guard {
    /// A guard starts in doubt about what a former life sent, unless the cluster had no recorded
    /// ID: without one no guard makes a call.
    pub(crate) fn start(w: &World, fresh: bool) -> Self {
        let doubt = !fresh && w.mutant != Some(Mutant::NoFormerLife);
        Guard {
            doubt: doubt.then(|| Doubt::former_life(w.now)),
            questions: BTreeMap::new(),
            stray: None,
            turn: None,
            last_list: None,
            granted: None,
            began: w.now,
        }
    }

    /// At most one pending question for each asker.
    pub(crate) fn ask(&mut self, m: M, change: Change) {
        self.questions.insert(m, change);
    }

    /// A question that no member of ours would ask. The guard must be right whoever asks.
    pub(crate) fn stray_question(&mut self, w: &mut World) {
        let members: Vec<(M, Option<MemberId>)> =
            w.server.members.iter().map(|o| (o.m, o.view.recorded.member_id)).collect();
        let Some((m, id)) = w.chance.pick(&members) else { return };
        let peer_url = url_of(m);
        let only = w.main_instance().is_some_and(|i| w.etcd.instances[i].voters().count() == 1);
        let change = match w.chance.below(3) {
            0 => Change::Promote { peer_url },
            1 if only => Change::Remove { peer_url, id },
            _ => Change::Remove { peer_url, id: Some(MemberId(4_242)) },
        };
        self.stray = Some((m, change));
    }

    /// Whether the next step is the call itself, for a crash at that moment.
    pub(crate) fn about_to_call(&self) -> bool {
        self.turn.as_ref().is_some_and(|t| t.call.is_some())
    }
}

impl Operator {
    /// The process behind the address that the store shows for this member.
    fn process_at<'a>(&self, w: &'a World, m: M) -> Option<&'a super::etcd::Process> {
        let Presence::Present(pod) = self.stores.pod(m) else { return None };
        let ip = pod.view.ip?;
        self.stores.member(m).filter(|o| may_hold_data(&o.view, &pod.view))?;
        w.etcd.processes.iter().find(|p| p.ip == ip && !p.hidden)
    }

    fn guard_look(&self, w: &World, m: M, id: MemberId) -> Look {
        let Presence::Present(pod) = self.stores.pod(m) else { return Look::Unknown { since: w.now } };
        if pod.view.ip.is_none() {
            return Look::Unknown { since: w.now };
        }
        let leaving = pod.view.deleting;
        let mut look = self.process_at(w, m).map_or(Look::Silent { at: w.now }, |p| w.etcd.look(p, w.now));
        if w.mutant == Some(Mutant::AnyoneAnswers)
            && let Look::Answered { status, .. } = &mut look
        {
            status.member_id = id;
            status.cluster_id = self.list.list().map_or(status.cluster_id, |l| l.cluster_id);
        }
        if leaving && look.status().is_some() {
            return Look::Unknown { since: w.now };
        }
        look
    }

    /// One step of the guard. Returns whether it brought news or changed anything.
    pub(crate) fn guard_step(&mut self, w: &mut World) -> bool {
        let Some(mut guard) = self.guard.take() else { return false };
        let moved = self.guard_turn(w, &mut guard);
        self.guard = Some(guard);
        moved
    }

    fn guard_turn(&mut self, w: &mut World, guard: &mut Guard) -> bool {
        let Some(mut turn) = guard.turn.take() else { return self.begin_turn(w, guard) };
        let Some((asker, change)) = turn.question.clone() else { return false };
        if w.now.since(turn.began) > timeouts::GUARD_TURN {
            w.coverage.hit("turn", "out of time");
            return false;
        }
        let Some(looks) = &turn.looks else {
            let all = turn.list.members.iter().map(|l| {
                let m = l.peer_urls.first().and_then(|u| member_of(u.host_label())).unwrap_or(usize::MAX);
                (l.id, self.guard_look(w, m, l.id))
            });
            turn.looks = Some(all.collect());
            turn.truth.healthy = w.truly_healthy(turn.instance);
            turn.truth.looked = w.now;
            guard.turn = Some(turn);
            return false;
        };
        if let (Change::Promote { peer_url }, None) = (&change, &turn.second)
            && let Some(l) = turn.list.at(peer_url)
            && matches!(looks.get(&l.id), Some(Look::Answered { .. }))
        {
            if w.now.since(turn.truth.looked) < STEADY {
                guard.turn = Some(turn);
                return false;
            }
            let id = l.id;
            turn.second = Some(self.guard_look(w, asker, id));
            turn.truth.second = Some((w.now, w.truly_healthy(turn.instance)));
            guard.turn = Some(turn);
            return false;
        }
        if let Some(call) = &turn.call {
            w.check_allowed(&change, call, &turn.list, turn.instance, &turn.truth);
            w.coverage.hit("call", call_name(call));
            let reply = w.send(&change, call, turn.instance);
            let done = matches!(reply, Reply::Done(_));
            self.call_ended(w, guard, Some(asker).filter(|_| !turn.stray), &change, reply);
            return done;
        }
        let stale = guard.last_list.replace(turn.list.clone());
        let list = match (w.mutant, stale) {
            (Some(Mutant::StaleList), Some(stale)) => stale,
            _ => turn.list.clone(),
        };
        let cluster_id =
            self.stores.cluster.as_ref().and_then(Option::as_ref).and_then(|c| c.view.recorded.cluster_id);
        let evidence = Evidence {
            // The moment before the list was asked for: at the end of a turn the doubt may be over and
            // the list still be from before.
            now: if w.mutant == Some(Mutant::ClockOfTheCall) { w.now } else { turn.began },
            cluster_id,
            list: &list,
            looks,
            second_look: turn.second.as_ref(),
            doomed: self.is_doomed(change.peer_url()),
            restarting: self.restarting(guard, w.now),
            doubt: guard.doubt.as_ref(),
        };
        let verdict = mutants::judge(w.mutant, &change, &evidence);
        w.log(|| format!("guard: {change:?} -> {verdict:?}"));
        w.coverage.hit("verdict", verdict_name(&verdict));
        match verdict {
            Verdict::Allow(Call::Restart(id)) => {
                w.coverage.hit("call", "Restart");
                let Change::Restart { pod_uid, .. } = &change else { return false };
                w.check_restart(&list, &turn.truth.healthy, id);
                guard.granted = Some((id, pod_uid.clone(), w.now + RESTART));
                self.answered_restart(asker, pod_uid.clone(), w.now);
            }
            Verdict::Allow(call) => {
                turn.call = Some(call);
                turn.list = list;
                guard.turn = Some(turn);
            }
            Verdict::AlreadyDone if turn.stray => {}
            Verdict::AlreadyDone => self.done(asker, &change),
            Verdict::Wait { reason, .. } => w.coverage.hit("judge waits", reason.as_str()),
            Verdict::Refuse(reason) => w.coverage.hit("judge refuses", reason.as_str()),
        }
        false
    }

    /// The member whose granted restart may still end its Pod.
    fn restarting(&self, guard: &Guard, now: Time) -> Option<MemberId> {
        let (id, pod, until) = guard.granted.as_ref()?;
        let there = self.stores.pods.as_ref()?.iter().any(|p| p.view.uid == *pod);
        (there && now < *until).then_some(*id)
    }

    /// Whether the stores show that the volume of the member at this peer URL is lost.
    fn is_doomed(&self, peer_url: &PeerUrl) -> bool {
        let members = self.stores.members.as_deref().unwrap_or_default();
        let Some(o) = members.iter().find(|o| o.view.peer_url == *peer_url) else { return false };
        if o.view.memory {
            return self.stores.pod(o.m).present().is_none_or(|p| p.view.deleting || p.view.ended);
        }
        let pvc = match self.stores.pvc(o.m) {
            Presence::Unknown => Presence::Unknown,
            Presence::Absent => Presence::Absent,
            Presence::Present(pvc) => Presence::Present(pvc.view.clone()),
        };
        is_volume_doomed(&pvc, &o.view.recorded)
    }

    /// A linearizable list through any member that serves. It is published before any answer.
    fn begin_turn(&mut self, w: &mut World, guard: &mut Guard) -> bool {
        let members = self.stores.members.as_deref().unwrap_or_default();
        let permitted = members.iter().any(|o| o.view.permit.is_some());
        if permitted && guard.doubt.is_some() && w.now.since(guard.began) < RESTART {
            guard.questions.clear();
        }
        // What a returning quorum finds in its log is committed before it serves a linearizable read.
        w.land_due();
        let askers: Vec<M> = guard.questions.keys().copied().collect();
        let stray = guard.stray.take();
        let is_stray = stray.is_some();
        let question =
            stray.or_else(|| w.chance.pick(&askers).and_then(|m| Some((m, guard.questions.remove(&m)?))));
        let members = self.stores.members.clone().unwrap_or_default();
        let serving = members.iter().find_map(|o| {
            let p = self.process_at(w, o.m)?;
            w.etcd.serves(p).then_some(p.instance)
        });
        let Some(instance) = serving else {
            let news = self.list.list().is_some();
            if news {
                self.publish(ListFact::Unknown { since: w.now });
            }
            return news;
        };
        let list = w.etcd.instances[instance].list();
        let news = self.list.list() != Some(&list);
        // An old list that still holds is as good for the members; its time matters to the judge alone,
        // who has this turn's own.
        if news || w.chance.percent(20) {
            self.publish(ListFact::Known { at: w.now, list: list.clone() });
        }
        let truth = Truth { version: w.etcd.instances[instance].version, ..Truth::default() };
        if question.is_none() {
            return news;
        }
        let (looks, second, call) = (None, None, None);
        guard.turn = Some(Turn {
            question,
            stray: is_stray,
            began: w.now,
            list,
            instance,
            looks,
            second,
            truth,
            call,
        });
        news
    }

    fn done(&mut self, asker: M, change: &Change) {
        if matches!(change, Change::Remove { .. }) {
            self.answered_removed(asker);
        }
    }

    fn call_ended(
        &mut self,
        w: &mut World,
        guard: &mut Guard,
        asker: Option<M>,
        change: &Change,
        reply: Reply,
    ) {
        match reply {
            Reply::Done(list) => {
                // An earlier sending of the same change may still land, so its doubt stays.
                if w.mutant == Some(Mutant::DoubtEndsWithSuccess) {
                    guard.doubt = None;
                }
                self.publish(ListFact::Known { at: w.now, list });
                let moved_only = matches!(change, Change::Remove { peer_url, .. }
                    if self.list.at(peer_url).is_some());
                if let (Some(asker), false) = (asker, moved_only) {
                    self.done(asker, change);
                }
            }
            Reply::Ambiguous => guard.doubt = Some(Doubt::about(change.clone(), w.now)),
            Reply::Refused(refusal) => w.coverage.hit("etcd refuses", refusal_name(&refusal)),
            Reply::Unreachable => {}
        }
    }
}

fn call_name(call: &etcd_operator_core::membership::Call) -> &'static str {
    use etcd_operator_core::membership::Call;
    match call {
        Call::Add(_) => "Add",
        Call::Promote(_) => "Promote",
        Call::Remove(_) => "Remove",
        Call::MoveLeader { .. } => "MoveLeader",
        Call::Restart(_) => "Restart",
    }
}

fn verdict_name(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Allow(_) => "Allow",
        Verdict::AlreadyDone => "AlreadyDone",
        Verdict::Wait { .. } => "Wait",
        Verdict::Refuse(_) => "Refuse",
    }
}

fn refusal_name(refusal: &etcd_operator_core::etcd::Refusal) -> &'static str {
    use etcd_operator_core::etcd::Refusal;
    match refusal {
        Refusal::UnhealthyCluster => "UnhealthyCluster",
        Refusal::NotEnoughStarted => "NotEnoughStarted",
        Refusal::LearnerNotReady => "LearnerNotReady",
        Refusal::NotLearner => "NotLearner",
        Refusal::TooManyLearners => "TooManyLearners",
        Refusal::PeerUrlExists => "PeerUrlExists",
        Refusal::MemberNotFound => "MemberNotFound",
        Refusal::BadLeaderTransferee => "BadLeaderTransferee",
        _ => "other",
    }
}

impl Operator {
    /// The operator's process ends while its call is on the way.
    pub(crate) fn send_and_die(mut self, w: &mut World, fate: super::world::Fate) {
        let Some(turn) = self.guard.take().and_then(|g| g.turn) else { return };
        let in_time = w.now.since(turn.began) <= timeouts::GUARD_TURN;
        if let (Some((_, change)), Some(call), true) = (&turn.question, &turn.call, in_time) {
            w.check_allowed(change, call, &turn.list, turn.instance, &turn.truth);
            w.send_with(change, call, turn.instance, fate);
        }
    }
}
