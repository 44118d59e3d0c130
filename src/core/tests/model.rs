//! A small model, explored completely: three voters, one that joins and one that leaves, a guard
//! that may die at any moment, calls whose answers are lost and that land late, processes that stop
//! and return. The real judge decides every change; the model only carries it out.
//!
//! Time is one bit: whether the doubt of the guard may have ended. It ends only when no call can
//! land any more, as the eight seconds are there to make sure.

#![allow(
    clippy::panic,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test fails by panicking, its helpers too"
)]

use std::collections::BTreeMap;

use etcd_operator_core::{
    etcd::{ListedMember, Look, MemberList, MemberStatus, quorum},
    ids::{ClusterId, MemberId, PeerUrl},
    membership::{Call, Change, Doubt, Evidence, STEADY, Verdict, judge},
    time::{Time, timeouts},
};
use stateright::{Checker, Model, Property};

/// Members by number: 0, 1, 2 vote at first, 3 joins, 2 leaves.
const MEMBERS: usize = 4;
const JOINER: usize = 3;
const LEAVER: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Role {
    Absent,
    Learner,
    Voter,
}

/// A call that was sent and has not been answered to anybody.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Flight {
    change: Change,
    call: Call,
}

/// What one turn of the guard has seen so far.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Turn {
    change: Change,
    roles: [Role; MEMBERS],
    started: [bool; MEMBERS],
    id: u64,
    looked: Option<[bool; MEMBERS]>,
    second: Option<bool>,
    /// Whether the learner really ran at the second look.
    really: bool,
    call: Option<Call>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    roles: [Role; MEMBERS],
    /// Its process has announced itself.
    started: [bool; MEMBERS],
    up: [bool; MEMBERS],
    /// The joiner's ID: each add gives another.
    joiner_id: u64,
    flights: Vec<Flight>,
    doubt: Option<Option<Change>>,
    turn: Option<Turn>,
    /// The member actors: the leaver was told that it is out; its volume is gone.
    leaver_gone: bool,
    crashes: u8,
    stops: u8,
    losses: u8,
    /// What the judge allowed, against the truth of the moment at which it looked.
    broken: Option<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Step {
    Ask(Change),
    Look,
    SecondLook,
    Judge,
    Call { answered: bool, late: bool },
    Land(usize),
    Lost(usize),
    DoubtEnds,
    GuardDies,
    Stop(usize),
    Return(usize),
    LeaverLetsGo,
}

/// How much may go wrong on one way through, and which fault is planted.
struct JoinAndLeave {
    crashes: u8,
    stops: u8,
    losses: u8,
    fault: Option<Fault>,
}

/// Faults that the properties must notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The judge is not told of the doubt.
    DoubtIgnored,
    /// A new guard does not wait for what the former one sent.
    NoFormerLife,
    /// The first look is taken for the second.
    OneLook,
}

fn url(n: usize) -> PeerUrl {
    PeerUrl(format!("http://m{n}.c.ns.svc:2380"))
}

impl State {
    fn id(&self, n: usize) -> MemberId {
        id(n, self.joiner_id)
    }

    fn quorate(&self) -> bool {
        let voters = (0..MEMBERS).filter(|n| self.roles[*n] == Role::Voter);
        let up = voters.clone().filter(|n| self.up[*n]).count();
        up >= quorum(voters.count())
    }

    fn apply(&mut self, call: &Call) {
        if !self.quorate() {
            return;
        }
        let all_up = (0..MEMBERS).all(|n| self.roles[n] != Role::Voter || self.up[n]);
        let at = |state: &State, id: &MemberId| {
            (0..MEMBERS).find(|n| state.roles[*n] != Role::Absent && state.id(*n) == *id)
        };
        match call {
            Call::Add(url_) => {
                let learner = self.roles.contains(&Role::Learner);
                if all_up && !learner && self.roles[JOINER] == Role::Absent && *url_ == url(JOINER) {
                    self.roles[JOINER] = Role::Learner;
                    self.started[JOINER] = false;
                    self.joiner_id += 1;
                }
            }
            // Real etcd does not ask whether the learner lives.
            Call::Promote(id) => {
                if let Some(n) = at(self, id)
                    && self.roles[n] == Role::Learner
                    && self.started[n]
                {
                    self.roles[n] = Role::Voter;
                }
            }
            Call::Remove(id) => {
                if let Some(n) = at(self, id) {
                    let others = (0..MEMBERS).filter(|o| *o != n && self.roles[*o] == Role::Voter);
                    let rest = others.clone().filter(|o| self.up[*o]).count();
                    let safe = !self.up[n] || rest >= quorum(others.count());
                    if self.roles[n] == Role::Learner || safe {
                        self.roles[n] = Role::Absent;
                    }
                }
            }
            Call::MoveLeader { .. } | Call::Restart(_) => {}
        }
    }
}

fn id(n: usize, joiner_id: u64) -> MemberId {
    MemberId(if n == JOINER { 100 + joiner_id } else { n as u64 + 1 })
}

impl Turn {
    fn list(&self) -> MemberList {
        let members = (0..MEMBERS)
            .filter(|n| self.roles[*n] != Role::Absent)
            .map(|n| ListedMember {
                id: id(n, self.id),
                name: if self.started[n] { format!("m{n}") } else { String::new() },
                peer_urls: vec![url(n)],
                client_urls: vec![],
                is_learner: self.roles[n] == Role::Learner,
            })
            .collect();
        MemberList { cluster_id: ClusterId(7), members }
    }

    fn look(&self, n: usize, up: bool, at: Time) -> Look {
        if !up {
            return Look::Silent { at };
        }
        let learner = self.roles[n] == Role::Learner;
        let status = MemberStatus {
            cluster_id: ClusterId(7),
            member_id: id(n, self.id),
            is_learner: learner,
            leader: Some(MemberId(1)),
            term: 2,
            raft_index: 5,
            applied_index: 5,
            db_size: 1,
            db_size_in_use: 1,
            version: None,
            errors: vec![],
        };
        Look::Answered { at, status, linearizable: !learner }
    }

    /// The real judge on what was seen.
    fn judge(&self, up: &[bool; MEMBERS], doubt: Option<&Option<Change>>) -> Verdict {
        let list = self.list();
        let (first, second) = (Time(10_000), Time(10_000) + STEADY);
        let looks: BTreeMap<MemberId, Look> = (0..MEMBERS)
            .filter(|n| self.roles[*n] != Role::Absent)
            .map(|n| (id(n, self.id), self.look(n, up[n], first)))
            .collect();
        let second_look = self.second.map(|up| self.look(JOINER, up, second));
        let doubt = doubt.map(|change| Doubt { change: change.clone(), until: first + timeouts::DOUBT });
        let evidence = Evidence {
            now: first,
            cluster_id: Some(ClusterId(7)),
            list: &list,
            looks: &looks,
            second_look: second_look.as_ref(),
            doomed: false,
            restarting: None,
            doubt: doubt.as_ref(),
        };
        judge(&self.change, &evidence)
    }

    /// What must be true of a call that was allowed on this view.
    fn wrong(&self, call: &Call, up: &[bool; MEMBERS]) -> Option<&'static str> {
        let mut voters: Vec<usize> = (0..MEMBERS).filter(|n| self.roles[*n] == Role::Voter).collect();
        match call {
            Call::Add(_) if self.roles.contains(&Role::Learner) => return Some("a second learner"),
            Call::Promote(_) if !up[JOINER] || !self.really => {
                return Some("a promotion of a member that does not answer");
            }
            Call::Promote(_) => voters.push(JOINER),
            Call::Remove(gone) => voters.retain(|n| id(*n, self.id) != *gone),
            Call::Add(_) | Call::MoveLeader { .. } | Call::Restart(_) => {}
        }
        let healthy = voters.iter().filter(|n| up[**n]).count();
        (healthy < quorum(voters.len())).then_some("fewer healthy voters than a quorum")
    }
}

/// Who asks for what: the joiner wants in, and the leaver out once the joiner votes, or at once when
/// it is dead.
fn questions(s: &State) -> Vec<Change> {
    let mut all = vec![];
    match s.roles[JOINER] {
        Role::Absent => all.push(Change::Add { peer_url: url(JOINER) }),
        Role::Learner => all.push(Change::Promote { peer_url: url(JOINER) }),
        Role::Voter => {}
    }
    if !s.leaver_gone && (s.roles[JOINER] == Role::Voter || !s.up[LEAVER] || s.roles[LEAVER] == Role::Absent)
    {
        all.push(Change::Remove { peer_url: url(LEAVER), id: Some(id(LEAVER, 0)) });
    }
    all
}

impl Model for JoinAndLeave {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            roles: [Role::Voter, Role::Voter, Role::Voter, Role::Absent],
            started: [true, true, true, false],
            up: [true, true, true, true],
            joiner_id: 0,
            flights: vec![],
            doubt: None,
            turn: None,
            leaver_gone: false,
            crashes: self.crashes,
            stops: self.stops,
            losses: self.losses,
            broken: None,
        }]
    }

    fn actions(&self, s: &State, steps: &mut Vec<Step>) {
        match &s.turn {
            // A list is read linearizably, so it takes a quorum.
            None if s.quorate() => steps.extend(questions(s).into_iter().map(Step::Ask)),
            None => {}
            Some(turn) if turn.looked.is_none() => steps.push(Step::Look),
            Some(turn) => match (&turn.change, &turn.call) {
                (_, Some(_)) => {
                    steps.push(Step::Call { answered: true, late: false });
                    if s.losses > 0 {
                        steps.push(Step::Call { answered: false, late: false });
                        steps.push(Step::Call { answered: false, late: true });
                    }
                }
                (Change::Promote { .. }, None) if turn.second.is_none() => steps.push(Step::SecondLook),
                _ => steps.push(Step::Judge),
            },
        }
        for n in 0..s.flights.len() {
            steps.push(Step::Land(n));
            steps.push(Step::Lost(n));
        }
        if s.doubt.is_some() && s.flights.is_empty() && s.turn.is_none() {
            steps.push(Step::DoubtEnds);
        }
        if s.crashes > 0 {
            steps.push(Step::GuardDies);
        }
        for n in 0..MEMBERS {
            if s.up[n] && s.stops > 0 {
                steps.push(Step::Stop(n));
            }
            if !s.up[n] || (s.roles[n] != Role::Absent && !s.started[n]) {
                steps.push(Step::Return(n));
            }
        }
        if s.leaver_gone && s.roles[LEAVER] != Role::Absent {
            steps.push(Step::LeaverLetsGo);
        }
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut s = last.clone();
        match step {
            Step::Ask(change) => {
                let (roles, started, id) = (s.roles, s.started, s.joiner_id);
                let (looked, second, call) = (None, None, None);
                s.turn = Some(Turn { change, roles, started, id, looked, second, really: false, call });
            }
            Step::Look => s.turn.as_mut()?.looked = Some(last.up),
            Step::SecondLook if self.fault == Some(Fault::OneLook) => {
                let turn = s.turn.as_mut()?;
                turn.second = Some(turn.looked?[JOINER]);
                turn.really = last.up[JOINER];
            }
            Step::SecondLook => {
                let turn = s.turn.as_mut()?;
                turn.second = Some(last.up[JOINER]);
                turn.really = last.up[JOINER];
            }
            Step::Judge => {
                let mut turn = s.turn.take()?;
                let up = turn.looked?;
                let doubt = s.doubt.as_ref().filter(|_| self.fault != Some(Fault::DoubtIgnored));
                match turn.judge(&up, doubt) {
                    Verdict::Allow(call) => {
                        s.broken = turn.wrong(&call, &up);
                        turn.call = Some(call);
                        s.turn = Some(turn);
                    }
                    Verdict::AlreadyDone => {
                        s.leaver_gone |= matches!(turn.change, Change::Remove { .. });
                    }
                    Verdict::Wait { .. } | Verdict::Refuse(_) => {}
                }
            }
            Step::Call { answered, late } => {
                let turn = s.turn.take()?;
                let call = turn.call?;
                if s.flights.iter().any(|f| f.change != turn.change) {
                    s.broken = Some("another change while one may still be applied");
                }
                if !late {
                    s.apply(&call);
                }
                if !answered {
                    s.losses -= 1;
                    s.doubt = Some(Some(turn.change.clone()));
                    if late {
                        s.flights.push(Flight { change: turn.change, call });
                    }
                } else if matches!(call, Call::Remove(_)) && s.roles[LEAVER] == Role::Absent {
                    s.leaver_gone = true;
                }
            }
            Step::Land(n) => {
                let flight = s.flights.remove(n);
                s.apply(&flight.call);
            }
            Step::Lost(n) => {
                s.flights.remove(n);
            }
            Step::DoubtEnds => s.doubt = None,
            Step::GuardDies => {
                s.crashes -= 1;
                if let Some(Turn { change, call: Some(call), .. }) = s.turn.take() {
                    s.flights.push(Flight { change, call });
                }
                s.doubt = (self.fault != Some(Fault::NoFormerLife)).then_some(None);
            }
            Step::Stop(n) => {
                s.up[n] = false;
                s.stops -= 1;
            }
            Step::Return(n) => {
                s.up[n] = true;
                if s.roles[n] != Role::Absent && s.quorate() {
                    s.started[n] = true;
                }
            }
            // Never possible: see the property.
            Step::LeaverLetsGo => s.broken = Some("a volume is released while etcd lists its member"),
        }
        Some(s)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no allowed change breaks a rule", |_, s: &State| s.broken.is_none()),
            Property::always("there is always a voter and never a second learner", |_, s: &State| {
                s.roles.contains(&Role::Voter) && s.roles.iter().filter(|r| **r == Role::Learner).count() <= 1
            }),
            Property::always("who is let go stays out", |_, s: &State| {
                !s.leaver_gone || s.roles[LEAVER] == Role::Absent
            }),
            Property::sometimes("the joiner votes and the leaver is out", |_, s: &State| {
                s.roles == [Role::Voter, Role::Voter, Role::Absent, Role::Voter] && s.leaver_gone
            }),
            Property::sometimes("a dead leaver is out before anybody joins", |_, s: &State| {
                s.roles[LEAVER] == Role::Absent && s.roles[JOINER] == Role::Absent
            }),
            Property::sometimes("a quorum is lost by stops alone", |_, s: &State| !s.quorate()),
            Property::sometimes("a call of a dead guard is on its way", |_, s: &State| {
                s.doubt == Some(None) && !s.flights.is_empty()
            }),
        ]
    }
}

#[test]
fn every_way_through_one_join_and_one_leave_is_safe() {
    let model = JoinAndLeave { crashes: 2, stops: 2, losses: 2, fault: None };
    let checker = model.checker().threads(2).spawn_bfs().join();
    println!("{} unique states of {}", checker.unique_state_count(), checker.state_count());
    checker.assert_properties();
    // Fewer would mean that the model no longer goes where it should.
    assert!(checker.unique_state_count() > 100_000, "{} states", checker.unique_state_count());
}

#[test]
fn a_planted_fault_is_found_by_exploration_as_well() {
    for fault in [Fault::DoubtIgnored, Fault::NoFormerLife, Fault::OneLook] {
        let model = JoinAndLeave { crashes: 1, stops: 2, losses: 2, fault: Some(fault) };
        let checker = model.checker().threads(2).spawn_bfs().join();
        let found = ["no allowed change breaks a rule", "who is let go stays out"]
            .iter()
            .any(|property| checker.discovery(property).is_some());
        assert!(found, "{fault:?} goes unnoticed");
    }
}
