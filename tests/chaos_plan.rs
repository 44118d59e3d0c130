//! What `make chaos` draws from its seed: every rule of the game holds for every seed. Needs nothing.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a part of the program is used; a test ends at its first surprise"
)]

#[path = "chaos/blows.rs"]
mod blows;
#[path = "chaos/plan.rs"]
mod plan;
#[path = "chaos/spec.rs"]
mod spec;

use std::collections::BTreeSet;

use blows::{Blow, Fault, Lasting, Trouble, Who};
use plan::{Plan, Round};
use serde_json::{Value, json};
use spec::{Edit, LADDER, Spec};

const SEEDS: u64 = 300;
/// About what an hour has.
const ROUNDS: usize = 80;

/// Shows each round of each seed, with the specs before it and after it.
fn every_round(mut look: impl FnMut(u64, &Round, &[Spec; 3], &[Spec; 3])) {
    for seed in 0..SEEDS {
        let mut plan = Plan::new(seed);
        for _ in 0..ROUNDS {
            let before = plan.wanted.clone();
            let round = plan.round();
            look(seed, &round, &before, &plan.wanted);
        }
    }
}

fn destroys(fault: &Fault) -> bool {
    matches!(fault, Fault::Blow(_, Blow::DataWiped(_) | Blow::VolumeDeleted(_) | Blow::VolumeLost(_)))
}

/// A merge patch, as the API server applies one.
fn merge(into: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            into.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut into[key], value);
        }
    }
}

#[test]
fn a_seed_repeats_its_choices_and_another_one_makes_others() {
    let draw = |seed| {
        let mut plan = Plan::new(seed);
        (0..ROUNDS).map(|_| plan.round()).collect::<Vec<_>>()
    };
    assert_eq!(draw(7), draw(7));
    assert_ne!(draw(7), draw(8));
}

#[test]
fn data_is_destroyed_once_in_a_round_where_a_majority_of_it_stays_and_before_anybody_else_is_hit() {
    every_round(|seed, round, before, _| {
        let blows: Vec<usize> = (0..round.len()).filter(|n| destroys(&round[*n].1)).collect();
        let Some(at) = blows.first() else { return };
        assert_eq!(blows.len(), 1, "seed {seed}: {round:?}");
        let Fault::Blow(cluster, blow) = round[*at].1 else { unreachable!() };
        assert!(before[cluster].replicas >= 3, "seed {seed}: {round:?} of {before:?}");
        let only_the_operator = round[..*at].iter().all(|(_, fault)| matches!(fault, Fault::Trouble(_)));
        assert!(only_the_operator, "seed {seed}: {round:?}");
        // It waits for Kubernetes, and whoever ends meanwhile is not started again.
        assert!(!matches!(blow, Blow::VolumeLost(_)) || round.len() == 1, "seed {seed}: {round:?}");
    });
}

// The hour of the first version took another member, since by then no cluster of three had its seed any more.
#[test]
fn a_seed_loses_its_data_in_either_way_in_the_first_two_rounds_while_two_clusters_have_theirs() {
    for seed in 0..SEEDS {
        let mut plan = Plan::new(seed);
        let first = plan.wanted.clone();
        assert!(first.iter().filter(|spec| spec.replicas >= 3).count() >= 2, "{first:?}");
        let mut ways = BTreeSet::new();
        for (_, fault) in (0..2).flat_map(|_| plan.round()) {
            match fault {
                Fault::Blow(_, Blow::DataWiped(Who::Seed)) => ways.insert("wiped"),
                Fault::Blow(_, Blow::VolumeDeleted(Who::Seed)) => ways.insert("deleted"),
                Fault::Trouble(_) => true,
                other => panic!("seed {seed}: {other:?} may cost the other one its place"),
            };
        }
        assert_eq!((ways.len(), &plan.wanted), (2, &first), "seed {seed}");
        let later = (0..ROUNDS).flat_map(|_| plan.round());
        let seeds = |(_, fault): &(_, Fault)| {
            matches!(fault, Fault::Blow(_, Blow::DataWiped(Who::Seed) | Blow::VolumeDeleted(Who::Seed)))
        };
        assert_eq!(later.filter(seeds).count(), 0, "seed {seed}");
    }
}

#[test]
fn some_cluster_can_always_lose_a_member_and_none_is_asked_for_no_member() {
    every_round(|seed, round, _, after| {
        assert!(after.iter().any(|spec| spec.replicas >= 3), "seed {seed}: {after:?}");
        let nobody = |fault: &Fault| match fault {
            Fault::Blow(_, Blow::Scaled(n)) => *n == 0,
            Fault::Blow(_, Blow::MindChanged(a, _, b)) => *a == 0 || *b == 0,
            _ => false,
        };
        assert!(!round.iter().any(|(_, fault)| nobody(fault)), "seed {seed}: {round:?}");
    });
}

#[test]
fn the_operator_is_in_trouble_once_in_a_round_and_one_thing_lasts() {
    every_round(|seed, round, _, _| {
        let troubles = round.iter().filter(|(_, fault)| matches!(fault, Fault::Trouble(_))).count();
        let lasting = round.iter().filter(|(_, fault)| matches!(fault, Fault::Lasting(..))).count();
        assert!(troubles <= 1 && lasting <= 1 && !round.is_empty(), "seed {seed}: {round:?}");
    });
}

// UP-02: 3.7 does not read what 3.5 wrote until 3.6 has made a snapshot, so nobody goes through both steps in a run.
#[test]
fn each_cluster_goes_up_by_one_minor_and_never_again() {
    for seed in 0..SEEDS {
        let mut plan = Plan::new(seed);
        let mut rung =
            plan.wanted.each_ref().map(|spec| LADDER.iter().position(|v| *v == spec.version()).unwrap());
        let mut steps = [0; 3];
        for (_, fault) in (0..ROUNDS).flat_map(|_| plan.round()) {
            if let Fault::Blow(cluster, Blow::Edited(Edit::Version(to))) = fault {
                assert_eq!(to, rung[cluster] + 1, "seed {seed}");
                rung[cluster] = to;
                steps[cluster] += 1;
            }
        }
        assert_eq!(steps, [1; 3], "seed {seed}");
        assert_eq!(plan.wanted.map(|spec| spec.version()), rung.map(|n| LADDER[n]));
    }
}

// With OnDelete its members would wait for a person, and two versions would run side by side for ever.
#[test]
fn a_cluster_on_its_way_to_another_version_is_left_to_the_operator() {
    every_round(|seed, round, _, after| {
        for (_, fault) in round {
            if let Fault::Blow(cluster, Blow::Edited(Edit::Version(_))) = fault {
                assert!(!after[*cluster].on_delete && !after[*cluster].waits, "seed {seed}: {round:?}");
            }
        }
    });
}

#[test]
fn what_a_spec_should_say_is_what_its_edits_make_of_it() {
    for seed in 0..SEEDS {
        let mut plan = Plan::new(seed);
        let mut live = plan.wanted.each_ref().map(Spec::wanted);
        for (_, fault) in (0..ROUNDS).flat_map(|_| plan.round()) {
            match fault {
                Fault::Blow(cluster, Blow::Edited(edit)) => merge(&mut live[cluster], &edit.patch()),
                Fault::Blow(cluster, Blow::Scaled(n) | Blow::MindChanged(_, _, n)) => {
                    live[cluster]["replicas"] = json!(n);
                }
                _ => {}
            }
        }
        for (live, wanted) in live.iter_mut().zip(&plan.wanted) {
            let mut wanted = wanted.wanted();
            // The default, in words or not; and a null is nothing.
            let rolls = json!({"type": "RollingUpdate"});
            if live["updateStrategy"] == rolls {
                live.as_object_mut().unwrap().remove("updateStrategy");
            }
            let mut nothing = json!({});
            merge(&mut nothing, &wanted);
            wanted = nothing;
            live.as_object_mut().unwrap().retain(|_, value| !value.is_null());
            assert_eq!(*live, wanted, "seed {seed}");
        }
    }
}

#[test]
fn what_changes_under_on_delete_waits_until_the_operator_rolls_an_edit() {
    let mut spec = Spec::first(0);
    let mut after = |edit| {
        spec.edited(edit);
        spec.waits
    };
    assert!(!after(Edit::Resources(11)));
    assert!(!after(Edit::Metadata(12)));
    // The roll of the first edit stops where it is.
    assert!(after(Edit::Strategy { on_delete: true }));
    assert!(after(Edit::Tuning(13)));
    assert!(after(Edit::Strategy { on_delete: false }));
    assert!(after(Edit::Metadata(14)));
    assert!(!after(Edit::Resources(15)));
    assert!(after(Edit::Strategy { on_delete: true }));
    assert!(!after(Edit::Version(2)), "an upgrade is rolled");
}

#[test]
fn no_run_of_twenty_five_rounds_goes_without_a_theme() {
    let wanted = BTreeSet::from([
        "data directory wiped, the seed's",
        "data directory wiped",
        "volume deleted under its Pod, the seed's",
        "volume lost, EtcdMember deleted",
        "node drained",
        "upgrade to the next minor",
        "paused and resumed",
        "operator killed or at failpoints in a roll",
    ]);
    for seed in 0..SEEDS {
        let mut plan = Plan::new(seed);
        let mut seen = BTreeSet::new();
        for round in (0..25).map(|_| plan.round()) {
            let faults: Vec<&Fault> = round.iter().map(|(_, fault)| fault).collect();
            seen.extend(faults.iter().map(|fault| match fault {
                Fault::Blow(_, Blow::DataWiped(Who::Leader)) => "data directory wiped",
                fault => fault.kind(),
            }));
            let rolls = |f: &&Fault| matches!(f, Fault::Blow(_, Blow::Edited(edit)) if edit.needs_pods());
            let ends =
                |f: &&Fault| matches!(f, Fault::Trouble(Trouble::Killed { .. } | Trouble::Failpoints(_)));
            if faults.iter().any(rolls) && faults.iter().any(ends) {
                seen.insert("operator killed or at failpoints in a roll");
            }
        }
        let missing: Vec<_> = wanted.difference(&seen).collect();
        assert!(missing.is_empty(), "seed {seed}: {missing:?}");
    }
}

#[test]
fn every_fault_has_a_name_that_fits_the_table() {
    every_round(|seed, round, _, _| {
        for (pause, fault) in round {
            assert!(fault.kind().len() <= 44, "{fault:?}");
            assert!(pause.as_secs() < 10, "seed {seed}: {pause:?}");
            if let Fault::Lasting(Lasting::Drained(_) | Lasting::Paused(_), time) = fault {
                assert!(time.as_secs() <= 60, "seed {seed}: {time:?}");
            }
        }
    });
}
