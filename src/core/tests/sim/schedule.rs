//! One random run: faults for a while, then fair execution, then silence.

use super::{
    actors::Operator,
    faults::Profile,
    mutants::Mutant,
    world::{Fate, World},
};

/// What one schedule came to.
pub(crate) struct Outcome {
    pub(crate) violation: Option<String>,
    pub(crate) coverage: super::coverage::Coverage,
    pub(crate) trace: Vec<String>,
    /// It had to converge, and the rounds that it took.
    pub(crate) converged: Option<u64>,
}

/// Fair rounds within which everything must be done. A member takes about ten; a stalled learner
/// is waited for, with the clock running fast.
const ROUNDS: u64 = 600;

pub(crate) fn run(seed: u64, mutant: Option<Mutant>, tracing: bool) -> Outcome {
    let mut w = World::new(seed, mutant, tracing);
    let profile = Profile::draw(&mut w);
    w.log(|| format!("{profile:?}"));
    for _ in 0..profile.steps {
        step(&mut w, &profile);
        if w.violation.is_some() {
            break;
        }
    }
    let mut converged = None;
    if w.violation.is_none() {
        converged = fair(&mut w);
    }
    Outcome { violation: w.violation, coverage: w.coverage, trace: w.trace.unwrap_or_default(), converged }
}

fn step(w: &mut World, profile: &Profile) {
    let ms = match w.chance.below(40) {
        0 => 4_000 + w.chance.below(6_000),
        1..6 => w.chance.below(2_000),
        _ => w.chance.below(150),
    };
    w.pass(ms);
    match w.chance.below(100) {
        0..48 => operator(w),
        48..58 => sync(w),
        58..84 => world(w),
        84..92 => {
            // Everything that would happen in a quiet second.
            let now_and_then = w.chance.below(3);
            for _ in 0..=now_and_then {
                round(w);
            }
        }
        92..94 => crash(w),
        94 => with(w, |op, w| {
            if let Some(guard) = &mut op.guard {
                guard.stray_question(w);
            }
        }),
        _ if profile.calm => operator(w),
        _ => w.fault(profile),
    }
}

/// Runs `f` on the operator, starting one if there is none. A fresh operator's first lists are
/// consistent reads, so its stores start out true, one kind after the other.
fn with<T>(w: &mut World, f: impl FnOnce(&mut Operator, &mut World) -> T) -> T {
    let mut operator = w.operator.take().unwrap_or_else(|| {
        w.log(|| "the operator starts".into());
        Operator::new(w.now, w.lost_node_after)
    });
    let result = f(&mut operator, w);
    w.operator = Some(operator);
    result
}

fn operator(w: &mut World) {
    with(w, |op, w| {
        let what = w.chance.below(10);
        let times = 1 + w.chance.below(3);
        match what {
            0..3 => {
                for _ in 0..times {
                    op.supervise(w);
                }
            }
            3..6 => {
                for _ in 0..=times {
                    op.guard_step(w);
                }
            }
            _ => {
                let all = op.actors();
                let Some(m) = w.chance.pick(&all) else { return };
                if w.chance.percent(60) {
                    op.look_at(w, m);
                }
                for _ in 0..times {
                    op.act_member(w, m);
                }
            }
        }
    });
}

fn sync(w: &mut World) {
    with(w, |op, w| {
        if w.chance.percent(40) {
            (0..6).for_each(|kind| op.sync(w, kind));
        } else {
            let kind = w.chance.below(6);
            op.sync(w, kind);
        }
    });
}

fn world(w: &mut World) {
    match w.chance.below(10) {
        0..6 => {
            let all: Vec<usize> = w.server.pods.iter().map(|p| p.m).collect();
            if let Some(m) = w.chance.pick(&all) {
                w.kubelet(m);
            }
        }
        6..9 => {
            let announce = w.chance.percent(25);
            w.etcd.replicate(announce);
        }
        _ => {
            let now = w.now;
            w.server.collect_garbage(now);
        }
    }
}

/// The operator's process ends, perhaps in the middle of an effect that still lands.
fn crash(w: &mut World) {
    let Some(op) = w.operator.take() else { return };
    w.log(|| "the operator crashes".into());
    let writes = op.about_to_write();
    if let Some(call) = w.chance.pick(&writes) {
        w.coverage.hit("crash in a write", call.name());
        match w.chance.below(3) {
            0 => w.coverage.hit("crash", "before a write"),
            1 => {
                w.coverage.hit("crash", "after a write");
                w.write(&call);
            }
            _ => {
                w.coverage.hit("crash", "with a write in flight");
                let lands = w.now + std::time::Duration::from_millis(w.chance.below(10_000));
                w.late_writes.push((lands, call));
            }
        }
        return;
    }
    if op.guard.as_ref().is_some_and(super::guard::Guard::about_to_call) {
        let fate = match w.chance.below(4) {
            0 => Fate::NotSent,
            1 => Fate::ReplyLost,
            2 => Fate::Late,
            _ => Fate::Dropped,
        };
        w.coverage.hit("crash in a call", super::world::fate_name(fate));
        op.send_and_die(w, fate);
        return;
    }
    w.coverage.hit("crash", "idle");
}

/// One fair round: every watch catches up, everybody gets a turn, the kubelet and etcd do theirs.
fn round(w: &mut World) -> bool {
    let mut moved = with(w, |op, w| {
        let mut moved = false;
        (0..6).for_each(|kind| op.sync(w, kind));
        for _ in 0..3 {
            moved |= op.supervise(w);
        }
        for m in op.actors() {
            moved |= op.look_at(w, m);
            for _ in 0..2 {
                moved |= op.act_member(w, m);
            }
        }
        for _ in 0..4 {
            moved |= op.guard_step(w);
        }
        moved
    });
    let pods: Vec<usize> = w.server.pods.iter().map(|p| p.m).collect();
    for m in pods {
        moved |= w.kubelet(m);
    }
    let now = w.now;
    moved |= w.server.collect_garbage(now);
    let announce = w.fair || w.chance.percent(50);
    moved |= w.etcd.replicate(announce);
    w.etcd.settle();
    moved
}

/// Faults have stopped. Everything that the injected faults themselves did not make impossible
/// must come true, and then nothing may be written any more.
fn fair(w: &mut World) -> Option<u64> {
    w.fair = true;
    w.log(|| "faults stop".into());
    w.heal_nodes();
    // A promotion that is still on its way may make a voter of a member whose memory has gone since.
    let promotes = |f: &super::world::Flight| {
        matches!(f.call, etcd_operator_core::membership::Call::Promote(_)) && (f.in_log || f.lands.is_some())
    };
    let calls =
        w.operator.as_ref().and_then(|op| op.guard.as_ref()).is_some_and(super::guard::Guard::about_to_call);
    let doomed = w.server.memory && (calls || w.flights.iter().any(promotes));
    let must = !w.ledger.by_hand && !doomed && (w.recoverable() || w.salvageable().is_some());
    let mut idle = 0;
    for n in 0..ROUNDS {
        let mut moved = round(w);
        if n % 6 == 5 {
            moved |= w.person() || w.person_recovers();
        }
        if w.violation.is_some() {
            return None;
        }
        // Where nothing moves, only time can help: the 5 s rule, a doubt, a stalled learner.
        idle = if moved { 0 } else { idle + 1 };
        // Not at each round, or no turn of the guard would end in its time.
        let late = w.late_writes.len();
        w.pass(if idle > 7 && idle % 3 == 0 { 60_000 } else { 1_500 });
        if w.late_writes.len() < late {
            // What a former life sent has landed just now, and nobody has seen it yet.
            idle = 0;
        }
        if idle > 28 || (idle > 3 && w.late_writes.is_empty() && w.unfinished().is_none()) {
            let unfinished = w.unfinished();
            if let (Some(what), true) = (&unfinished, must) {
                w.violated(|| format!("it stands still and is not done: {what}"));
                return None;
            }
            if unfinished.is_none() {
                silence(w);
            }
            return (unfinished.is_none() && must).then_some(n);
        }
    }
    if must {
        let unfinished = w.unfinished();
        w.violated(|| format!("no rest after {ROUNDS} fair rounds: {unfinished:?}"));
    }
    None
}

/// A converged view yields no action.
fn silence(w: &mut World) {
    let (writes, version) = (w.server.writes, w.etcd.instances.iter().map(|i| i.version).sum::<u64>());
    for _ in 0..5 {
        round(w);
        w.pass(60_000);
    }
    let after = (w.server.writes, w.etcd.instances.iter().map(|i| i.version).sum::<u64>());
    if after != (writes, version) {
        w.violated(|| "a converged cluster was written to".into());
    }
}
