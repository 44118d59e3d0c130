//! What is not known never destroys: over all small clusters, when nobody has been looked at and no
//! list was read, no decision throws anything away.

use etcd_operator_core::{
    cluster::{ClusterAction, ClusterDecision, decide},
    departure::Departure,
    etcd::Look,
    member::{self, MemberAction, MemberDecision},
    membership::{Call, Change, Evidence, Verdict, judge},
    reason::Reason,
    time::Time,
    view::*,
};

use crate::fixtures::*;

/// Every cluster of up to three members of these kinds.
fn clusters(kinds: &[fn(u64) -> MemberFacts]) -> Vec<Vec<MemberFacts>> {
    let mut all: Vec<Vec<MemberFacts>> = vec![vec![]];
    for n in 0..3 {
        let longer: Vec<_> = all
            .iter()
            .filter(|c| c.len() as u64 == n)
            .flat_map(|c| kinds.iter().map(move |kind| [c.clone(), vec![kind(n)]].concat()))
            .collect();
        all.extend(longer);
    }
    all
}

fn unseen(m: MemberFacts) -> MemberFacts {
    let pod = if m.pod.present().is_some() { m.pod.clone() } else { Presence::Unknown };
    MemberFacts { look: unknown(), pod, stalled: true, ..m }
}

#[test]
fn with_everything_unknown_no_member_is_replaced() {
    let kinds: [fn(u64) -> MemberFacts; 4] = [voter, joined, newcomer, |n| leaving(voter(n))];
    for members in clusters(&kinds) {
        for replicas in 1..=3 {
            let mut s = cluster(replicas, members.iter().cloned().map(unseen).collect());
            s.list = ListFact::Unknown { since: Time(0) };
            if let ClusterDecision::Act(action) = decide(&s) {
                let shrinks = matches!(&action, ClusterAction::DeleteMember { why: Reason::ScalingDown, name, .. }
                        if s.members.iter().any(|m| m.member.name == *name && !s.is_voter(m)));
                assert!(shrinks, "{action:?} for {replicas} replicas and {members:?}");
            }
        }
    }
}

#[test]
fn with_everything_unknown_no_pod_and_no_volume_is_deleted() {
    for facts in [voter(1), joined(1), leaving(voter(1)), leaving(joined(1))] {
        for (pod, pvc) in [
            (Presence::Unknown, facts.pvc.clone()),
            (facts.pod.clone(), Presence::Unknown),
            (Presence::Unknown, Presence::Unknown),
        ] {
            for removed in [false, true] {
                let mut s = situation(MemberFacts { pod: pod.clone(), pvc: pvc.clone(), ..facts.clone() });
                s.facts.look = unknown();
                s.list = ListFact::Unknown { since: Time(0) };
                s.removed = removed;
                s.departure = if removed { Departure::Go } else { Departure::Hold(Reason::NotKnownYet) };
                let decision = member::decide(&s);
                assert!(
                    !matches!(
                        decision,
                        MemberDecision::Act(MemberAction::DeletePod { .. } | MemberAction::DeletePvc { .. })
                    ),
                    "{decision:?}"
                );
            }
        }
    }
}

#[test]
fn with_nobody_looked_at_no_voter_is_removed_and_nobody_promoted() {
    let looks = (0..4).map(|n| (id(n), Look::Unknown { since: Time(0) })).collect();
    let members = list(vec![listed(0), listed(1), listed(2), learner(3)]);
    let evidence = Evidence {
        now: NOW,
        cluster_id: Some(CLUSTER),
        list: &members,
        looks: &looks,
        second_look: Some(&Look::Unknown { since: Time(0) }),
        doomed: false,
        restarting: None,
        doubt: None,
    };
    for n in 0..4 {
        let remove = Change::Remove { peer_url: url(n), id: Some(id(n)) };
        for change in [remove, Change::Promote { peer_url: url(n) }] {
            let verdict = judge(&change, &evidence);
            assert!(!matches!(verdict, Verdict::Allow(Call::Remove(_) | Call::Promote(_))), "{change:?}");
        }
    }
}
