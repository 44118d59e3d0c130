//! The whole world of one schedule: API server, etcd, calls in flight, the operator, the clock and
//! the source of chance. Owns what happens to a call on its way.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use etcd_operator_core::{
    etcd::{MemberList, Refusal},
    ids::Uid,
    membership::{Call, Change},
    time::{Time, timeouts},
    view::PodTrouble,
};

use super::{
    actors::Operator,
    calls::ApiCall,
    coverage::Coverage,
    etcd::{Boot, Etcd, Landed},
    kube::{M, Server},
    mutants::Mutant,
    properties::Ledger,
};

/// splitmix64: small, fast without optimisation of its crate, and the same on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    /// True `n` times in a hundred.
    pub(crate) fn percent(&mut self, n: u64) -> bool {
        self.below(100) < n
    }

    pub(crate) fn pick<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        if of.is_empty() { None } else { of.get(self.below(of.len() as u64) as usize).cloned() }
    }
}

/// A membership call whose outcome its caller does not know.
#[derive(Clone, Debug)]
pub(crate) struct Flight {
    pub(crate) change: Change,
    pub(crate) call: Call,
    pub(crate) instance: usize,
    /// Until when nobody can exclude that it is applied.
    pub(crate) until: Time,
    /// When it reaches etcd; none if it never does or already has.
    pub(crate) lands: Option<Time>,
    /// It is in the leader's log without a quorum, and is committed when the quorum returns.
    pub(crate) in_log: bool,
}

/// What the caller of a membership call learns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Done(MemberList),
    Refused(Refusal),
    Ambiguous,
    Unreachable,
}

/// What happens to a call on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Prompt,
    ReplyLost,
    Late,
    Dropped,
    NotSent,
}

/// What the scheduler says when no node has the volume.
const NOWHERE: &str = "0/2 nodes are available: 2 node(s) didn't match PersistentVolume's node affinity";

pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) chance: Chance,
    pub(crate) server: Server,
    pub(crate) etcd: Etcd,
    pub(crate) flights: Vec<Flight>,
    /// After how long a member whose node seems to be gone is replaced.
    pub(crate) lost_node_after: Option<Duration>,
    /// Writes to the API server of a former life that may still land, and when.
    pub(crate) late_writes: Vec<(Time, ApiCall)>,
    /// The write that is being carried out is one of those.
    pub(crate) landing_late: bool,
    pub(crate) operator: Option<Operator>,
    pub(crate) mutant: Option<Mutant>,
    pub(crate) coverage: Coverage,
    pub(crate) ledger: Ledger,
    /// Faults have stopped: every call is prompt and every store is filled at once.
    pub(crate) fair: bool,
    pub(crate) trace: Option<Vec<String>>,
    said: std::collections::BTreeMap<String, String>,
    pub(crate) violation: Option<String>,
}

impl World {
    pub(crate) fn new(seed: u64, mutant: Option<Mutant>, tracing: bool) -> Self {
        let mut chance = Chance::new(seed);
        let replicas = [1, 1, 2, 3, 3, 3, 3, 4, 5, 0][chance.below(10) as usize];
        // A cluster in memory cannot be paused.
        let memory = replicas > 0 && chance.percent(20);
        World {
            now: Time(1_000_000),
            chance,
            server: Server::new(replicas, memory),
            etcd: Etcd::default(),
            flights: vec![],
            // Long enough that the clock of another life is no match, short enough that a schedule sees it.
            lost_node_after: seed.is_multiple_of(3).then_some(Duration::from_secs(15)),
            late_writes: vec![],
            landing_late: false,
            operator: None,
            mutant,
            coverage: Coverage::default(),
            ledger: Ledger::default(),
            fair: false,
            trace: tracing.then(Vec::new),
            said: std::collections::BTreeMap::new(),
            violation: None,
        }
    }

    pub(crate) fn log(&mut self, line: impl FnOnce() -> String) {
        let now = self.now;
        if let Some(trace) = &mut self.trace {
            let line = line();
            // Decisions repeat until something changes; a person wants to see the change.
            let actor = line.split(": ").next().unwrap_or_default().to_owned();
            if self.said.insert(actor, line.clone()).as_ref() == Some(&line) {
                return;
            }
            trace.push(format!("{:>9} ms  {}", now.0 - 1_000_000, line));
        }
    }

    /// Notes the first broken property; the schedule ends there.
    pub(crate) fn violated(&mut self, what: impl FnOnce() -> String) {
        if self.violation.is_none() {
            let what = what();
            self.log(|| format!("VIOLATION: {what}"));
            self.violation = Some(what);
        }
    }

    /// A write reaches the API server now.
    pub(crate) fn write(&mut self, call: &ApiCall) -> bool {
        self.before_write(call);
        let now = self.now;
        let volumes = &mut self.etcd.volumes;
        let done = self.server.apply(call, now, &mut || {
            volumes.push(None);
            volumes.len() - 1
        });
        self.log(|| format!("{}: {call:?}", if done { "write" } else { "write refused" }));
        if done {
            self.after_write(call);
        }
        done
    }

    /// Sends a membership call and returns what its caller learns.
    pub(crate) fn send(&mut self, change: &Change, call: &Call, instance: usize) -> Reply {
        let fate = if self.fair {
            Fate::Prompt
        } else {
            match self.chance.below(100) {
                0..70 => Fate::Prompt,
                70..78 => Fate::ReplyLost,
                78..90 => Fate::Late,
                90..96 => Fate::Dropped,
                _ => Fate::NotSent,
            }
        };
        self.send_with(change, call, instance, fate)
    }

    pub(crate) fn send_with(&mut self, change: &Change, call: &Call, instance: usize, fate: Fate) -> Reply {
        self.log(|| format!("etcd call {call:?} ({fate:?}) for {change:?}"));
        self.coverage.hit("fate", fate_name(fate));
        if fate == Fate::NotSent {
            return Reply::Unreachable;
        }
        self.before_send(change, call);
        let mut flight = Flight {
            change: change.clone(),
            call: call.clone(),
            instance,
            until: self.now + timeouts::MEMBERSHIP_CALL,
            lands: None,
            in_log: false,
        };
        let reply = match fate {
            Fate::Late => {
                let delay = std::time::Duration::from_millis(self.chance.below(8_000));
                flight.lands = Some(self.now + delay);
                Reply::Ambiguous
            }
            Fate::Dropped | Fate::NotSent => Reply::Ambiguous,
            Fate::Prompt | Fate::ReplyLost => match self.land(&mut flight) {
                Landed::NoQuorum => Reply::Ambiguous,
                _ if fate == Fate::ReplyLost => Reply::Ambiguous,
                Landed::Done => Reply::Done(self.etcd.instances[instance].list()),
                Landed::Refused(refusal) => Reply::Refused(refusal),
            },
        };
        if reply == Reply::Ambiguous && !matches!(call, Call::MoveLeader { .. }) {
            self.flights.push(flight);
        }
        reply
    }

    fn land(&mut self, flight: &mut Flight) -> Landed {
        flight.lands = None;
        let landed = self.etcd.land(flight.instance, &flight.call, self.now);
        let call = flight.call.clone();
        self.log(|| format!("etcd: {call:?} {landed:?}"));
        if landed == Landed::NoQuorum {
            // A minority leader has it in its log; whether it survives there, chance decides.
            flight.in_log = self.chance.percent(50);
        }
        if landed == Landed::Done {
            self.after_change(flight.instance, &call);
        }
        landed
    }

    /// Lets land what is due, and commits what a returning quorum finds in its log.
    pub(crate) fn land_due(&mut self) {
        self.etcd.settle();
        let mut flights = std::mem::take(&mut self.flights);
        for flight in &mut flights {
            let due = flight.lands.is_some_and(|t| t <= self.now);
            let committed = flight.in_log && self.etcd.has_quorum(flight.instance);
            if committed {
                flight.in_log = false;
            }
            if due || committed {
                self.land(flight);
            }
        }
        let now = self.now;
        // Kept for a guard's turn longer, for the property that asks whether a call is a repetition.
        flights.retain(|f| f.until + timeouts::GUARD_TURN > now || f.in_log || f.lands.is_some());
        self.flights = flights;
        let due: Vec<ApiCall> =
            self.late_writes.iter().filter(|(t, _)| *t <= now).map(|(_, c)| c.clone()).collect();
        self.late_writes.retain(|(t, _)| *t > now);
        for call in due {
            self.landing_late = true;
            self.write(&call);
            self.landing_late = false;
        }
    }

    pub(crate) fn pass(&mut self, ms: u64) {
        self.now = Time(self.now.0 + ms);
        self.land_due();
    }

    pub(crate) fn free_ip(&mut self) -> IpAddr {
        // A small range, so that addresses come back under other Pods.
        let start = self.chance.below(9) as u8;
        let others: Vec<IpAddr> = self.etcd.processes.iter().map(|p| p.ip).collect();
        let used = |ip: IpAddr, server: &Server| {
            others.contains(&ip) || server.pods.iter().any(|p| p.view.ip == Some(ip))
        };
        let all = (0..16u8).map(|i| IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1 + (start + i) % 16)));
        let mut free = all.filter(|ip| !used(*ip, &self.server));
        free.next().unwrap_or(IpAddr::V4(Ipv4Addr::new(10, 0, 1, 1)))
    }

    /// The process of this Pod ends.
    pub(crate) fn kill(&mut self, pod: &Uid) {
        self.etcd.processes.retain(|p| p.pod != *pod);
        self.etcd.settle();
    }

    /// The kubelet looks after one member's Pod. Returns whether anything changed.
    pub(crate) fn kubelet(&mut self, m: M) -> bool {
        let Some(pod) = self.server.pod(m).cloned() else { return false };
        if pod.node_lost {
            return false;
        }
        if pod.view.deleting {
            self.kill(&pod.view.uid);
            self.log(|| format!("kubelet: Pod m{m} is gone"));
            self.server.pods.retain(|p| p.m != m);
            return true;
        }
        if pod.view.ended {
            return false;
        }
        let Some(ip) = pod.view.ip else {
            if self.server.pvc(m).is_some_and(|v| v.node_gone) {
                let trouble = PodTrouble::Unschedulable(NOWHERE.into());
                let news = pod.view.trouble.as_ref() != Some(&trouble);
                if news {
                    self.server.edit_pod(m, |p| p.view.trouble = Some(trouble));
                }
                return news;
            }
            let pvc = self.server.pvc(m).filter(|v| !v.view.deleting).map(|v| v.view.uid.clone());
            let Some(mounted) = pod.memory.map(|_| pod.view.uid.clone()).or(pvc) else { return false };
            let ip = self.free_ip();
            self.log(|| format!("kubelet: Pod m{m} is scheduled, {ip}, on {mounted}"));
            self.server.edit_pod(m, |p| {
                p.mounted = Some(mounted.clone());
                p.view.ip = Some(ip);
                p.view.node = Some("node".into());
                p.view.trouble = None;
            });
            return true;
        };
        if self.etcd.processes.iter().any(|p| p.pod == pod.view.uid) {
            if !pod.view.started {
                self.server.edit_pod(m, |p| {
                    p.view.started = true;
                    p.view.trouble = None;
                    p.view.restarts = 0;
                });
                return true;
            }
            return false;
        }
        self.start_container(m, ip)
    }

    fn start_container(&mut self, m: M, ip: IpAddr) -> bool {
        let Some(pod) = self.server.pod(m).cloned() else { return false };
        let (Some(instruction), Some(mounted)) = (&pod.view.instruction, &pod.mounted) else { return false };
        let of_pvc = || self.server.pvcs.iter().find(|v| v.view.uid == *mounted).map(|v| v.volume);
        let Some(volume) = pod.memory.or_else(of_pvc) else { return false };
        let had_data = self.etcd.volumes[volume].is_some();
        let now = self.now;
        let boot = self.etcd.boot(m, &pod.view.uid, ip, volume, instruction, now);
        self.log(|| format!("kubelet: m{m} starts on {mounted} with {instruction:?}: {boot:?}"));
        match boot {
            Boot::Runs { formed, .. } => {
                self.etcd.settle();
                self.after_boot(m, mounted, formed, had_data);
                true
            }
            Boot::Exits(words) => {
                self.coverage.hit("boot", words);
                let trouble = etcd_operator_core::view::PodTrouble::CrashLooping(words.into());
                let news = pod.view.trouble.as_ref() != Some(&trouble);
                if news || pod.view.restarts < etcd_operator_core::healing::MANY_RESTARTS {
                    self.server.edit_pod(m, |p| {
                        p.view.trouble = Some(trouble);
                        p.view.restarts += 1;
                        p.view.started = false;
                    });
                }
                news
            }
        }
    }
}

pub(crate) fn fate_name(fate: Fate) -> &'static str {
    match fate {
        Fate::Prompt => "prompt",
        Fate::ReplyLost => "reply lost",
        Fate::Late => "late",
        Fate::Dropped => "dropped",
        Fate::NotSent => "not sent",
    }
}
