//! `membership::judge`: each link of each chain, when it finds something and when it does not.

use std::collections::BTreeMap;

use etcd_operator_core::{
    etcd::{ListedMember, Look, MemberList, MemberStatus},
    ids::{ClusterId, MemberId},
    membership::{Call, Change, Doubt, Evidence, Verdict, judge},
    reason::Reason,
    time::Time,
};

use crate::fixtures::*;

struct Case {
    cluster_id: Option<ClusterId>,
    list: MemberList,
    looks: BTreeMap<MemberId, Look>,
    second: Option<Look>,
    doomed: bool,
    restarting: Option<MemberId>,
    doubt: Option<Doubt>,
}

/// Everything serves, in a cluster of these members.
fn all_well(members: Vec<ListedMember>) -> Case {
    let looks = members
        .iter()
        .map(|m| {
            let n = m.id.0 - 100;
            (m.id, if m.is_learner { learns(n) } else { serves(n) })
        })
        .collect();
    Case {
        cluster_id: Some(CLUSTER),
        list: list(members),
        looks,
        second: None,
        doomed: false,
        restarting: None,
        doubt: None,
    }
}

impl Case {
    fn look(mut self, n: u64, look: Look) -> Self {
        self.looks.insert(id(n), look);
        self
    }

    fn unseen(mut self, n: u64) -> Self {
        self.looks.remove(&id(n));
        self
    }

    fn second(mut self, look: Look) -> Self {
        self.second = Some(look);
        self
    }

    fn doubt(mut self, doubt: Doubt) -> Self {
        self.doubt = Some(doubt);
        self
    }

    fn judge(&self, change: &Change) -> Verdict {
        judge(
            change,
            &Evidence {
                now: NOW,
                cluster_id: self.cluster_id,
                list: &self.list,
                looks: &self.looks,
                second_look: self.second.as_ref(),
                doomed: self.doomed,
                restarting: self.restarting,
                doubt: self.doubt.as_ref(),
            },
        )
    }

    fn reason(&self, change: &Change) -> Reason {
        match self.judge(change) {
            Verdict::Wait { reason, .. } | Verdict::Refuse(reason) => reason,
            other => panic!("{other:?}"),
        }
    }
}

fn add(n: u64) -> Change {
    Change::Add { peer_url: url(n) }
}

fn promote(n: u64) -> Change {
    Change::Promote { peer_url: url(n) }
}

fn remove(n: u64) -> Change {
    Change::Remove { peer_url: url(n), id: Some(id(n)) }
}

fn three() -> Vec<ListedMember> {
    vec![listed(0), listed(1), listed(2)]
}

const LATER: Time = Time(NOW.0 + 1_000);

#[test]
fn without_a_recorded_cluster_id_every_change_waits() {
    let case = Case { cluster_id: None, ..all_well(three()) };
    for change in [add(3), promote(2), remove(2)] {
        assert_eq!(case.reason(&change), Reason::NotFormed);
    }
}

// MQ-13
#[test]
fn the_list_of_another_cluster_refuses_every_change() {
    let case = Case { cluster_id: Some(ClusterId(8)), ..all_well(three()) };
    for change in [add(3), promote(2), remove(2)] {
        assert_eq!(case.judge(&change), Verdict::Refuse(Reason::ForeignClusterID));
    }
}

// MQ-05
#[test]
fn an_open_change_lets_only_itself_through_until_it_can_no_longer_be_applied() {
    let open = Doubt { change: Some(add(3)), until: LATER };
    let case = all_well(three()).doubt(open.clone());
    assert_eq!(case.judge(&add(3)), Verdict::Allow(Call::Add(url(3))));
    for other in [add(4), promote(2), remove(2), remove(3)] {
        let again = std::time::Duration::from_secs(1);
        assert_eq!(case.judge(&other), Verdict::Wait { reason: Reason::MembershipInDoubt, again });
    }
    let over = all_well(three()).doubt(Doubt { until: NOW, ..open });
    assert_eq!(over.judge(&add(4)), Verdict::Allow(Call::Add(url(4))));
}

#[test]
fn what_a_former_life_sent_holds_back_every_change() {
    let case = all_well(three()).doubt(Doubt::former_life(NOW));
    for change in [add(3), promote(2), remove(2)] {
        assert_eq!(case.reason(&change), Reason::MembershipInDoubt);
    }
    assert_eq!(Doubt::about(add(3), NOW).until, Time(NOW.0 + 8_000));
}

#[test]
fn an_open_removal_of_one_id_does_not_let_a_removal_of_another_through() {
    let open = Doubt { change: Some(Change::Remove { peer_url: url(2), id: None }), until: LATER };
    assert_eq!(all_well(three()).doubt(open).reason(&remove(2)), Reason::MembershipInDoubt);
}

#[test]
fn a_learner_is_added_when_every_voter_serves() {
    for voters in [vec![listed(0)], vec![listed(0), listed(1)], three()] {
        assert_eq!(all_well(voters).judge(&add(3)), Verdict::Allow(Call::Add(url(3))));
    }
}

// MQ-02
#[test]
fn what_is_listed_at_the_peer_url_is_added_already_with_or_without_a_name() {
    for member in [listed(3), learner(3), nameless(3)] {
        let mut members = three();
        members.push(member);
        assert_eq!(all_well(members).judge(&add(3)), Verdict::AlreadyDone);
    }
}

// LP-05
#[test]
fn there_is_no_second_learner() {
    let mut members = three();
    members.push(learner(3));
    assert_eq!(all_well(members).reason(&add(4)), Reason::LearnerPresent);
}

// MQ-04
#[test]
fn nobody_is_added_while_a_member_has_not_started() {
    let mut members = three();
    members[2].name.clear();
    assert_eq!(all_well(members).reason(&add(3)), Reason::MemberNotStarted);
}

// MQ-08
#[test]
fn nobody_is_added_while_a_voter_does_not_serve() {
    for look in [silent(), unknown(), answers(2)] {
        assert_eq!(all_well(three()).look(2, look).reason(&add(3)), Reason::VoterNotServing);
    }
    assert_eq!(all_well(three()).unseen(2).reason(&add(3)), Reason::VoterNotServing);
}

fn promotable() -> Case {
    all_well(vec![listed(0), learner(1)]).second(learns_at(1, LATER, 5_000))
}

#[test]
fn a_learner_that_answered_twice_and_is_close_is_promoted() {
    assert_eq!(promotable().judge(&promote(1)), Verdict::Allow(Call::Promote(id(1))));
}

// LS-08: it was asked for before the volume was deleted, and the process still answers until its Pod ends.
#[test]
fn a_learner_whose_volume_is_lost_is_never_promoted() {
    let doomed = Case { doomed: true, ..promotable() };
    assert_eq!(doomed.reason(&promote(1)), Reason::VolumeMissing);
}

#[test]
fn a_voter_is_promoted_already_and_who_is_not_listed_cannot_be() {
    assert_eq!(all_well(three()).judge(&promote(2)), Verdict::AlreadyDone);
    assert_eq!(all_well(three()).judge(&promote(3)), Verdict::Refuse(Reason::NotListed));
}

/// A second look that says something else than the first.
fn but(change: impl Fn(&mut MemberStatus)) -> Look {
    let Look::Answered { at, mut status, linearizable } = learns_at(1, LATER, 5_000) else { unreachable!() };
    change(&mut status);
    Look::Answered { at, status, linearizable }
}

// LP-04
#[test]
fn a_learner_that_does_not_answer_steadily_is_never_promoted() {
    let cases = [
        ("never looked at", promotable().unseen(1)),
        ("first look silent", promotable().look(1, silent())),
        ("first look unknown", promotable().look(1, unknown())),
        ("no second look", Case { second: None, ..promotable() }),
        ("second look silent", promotable().second(silent())),
        ("second look too early", promotable().second(learns_at(1, Time(NOW.0 + 999), 5_000))),
        ("second look at another member", promotable().second(but(|s| s.member_id = id(2)))),
        ("second look at another cluster", promotable().second(but(|s| s.cluster_id = ClusterId(8)))),
        ("no leader any more", promotable().second(but(|s| s.leader = None))),
    ];
    for (what, case) in cases {
        assert_eq!(case.reason(&promote(1)), Reason::LearnerNotAnswering, "{what}");
    }
    let never_started = all_well(vec![listed(0), nameless(1)]).second(learns_at(1, LATER, 5_000));
    assert_eq!(never_started.reason(&promote(1)), Reason::LearnerNotAnswering);
}

// LP-03, LP-04
#[test]
fn a_learner_that_is_behind_waits_and_one_that_is_close_does_not() {
    for (applied, close) in [(0, false), (3_999, false), (4_000, true), (9_000, true)] {
        let verdict = promotable().second(learns_at(1, LATER, applied)).judge(&promote(1));
        assert_eq!(verdict == Verdict::Allow(Call::Promote(id(1))), close, "{applied}: {verdict:?}");
    }
}

#[test]
fn without_a_known_leader_nobody_can_be_called_close() {
    let leaderless = promotable().look(0, answers(0));
    assert_eq!(leaderless.reason(&promote(1)), Reason::AwaitingLearnerSync);
    let stranger = Look::Answered {
        at: NOW,
        status: MemberStatus { leader: Some(MemberId(999)), ..status(0) },
        linearizable: true,
    };
    assert_eq!(promotable().look(0, stranger).reason(&promote(1)), Reason::AwaitingLearnerSync);
}

// LP-06
#[test]
fn a_promotion_needs_the_quorum_of_one_voter_more() {
    let members = vec![listed(0), listed(1), listed(2), learner(3)];
    let case = all_well(members).second(learns_at(3, LATER, 5_000));
    let one_down = case.look(2, silent());
    assert_eq!(one_down.judge(&promote(3)), Verdict::Allow(Call::Promote(id(3))), "2 + 1 of 4");
    let two_down = one_down.look(1, silent());
    assert_eq!(two_down.reason(&promote(3)), Reason::AwaitingQuorum, "1 + 1 of 4");
}

// MQ-06, MQ-07
#[test]
fn who_is_not_listed_is_removed_already_with_or_without_a_recorded_id() {
    assert_eq!(all_well(three()).judge(&remove(3)), Verdict::AlreadyDone);
    let unknown_id = Change::Remove { peer_url: url(3), id: None };
    assert_eq!(all_well(three()).judge(&unknown_id), Verdict::AlreadyDone);
}

// MQ-06
#[test]
fn a_member_whose_id_was_never_recorded_is_removed_by_its_peer_url() {
    let mut members = three();
    members.push(nameless(3));
    let change = Change::Remove { peer_url: url(3), id: None };
    let case = all_well(members).look(3, silent());
    assert_eq!(case.judge(&change), Verdict::Allow(Call::Remove(id(3))));
}

#[test]
fn another_id_at_the_peer_url_is_another_member() {
    let change = Change::Remove { peer_url: url(2), id: Some(MemberId(9)) };
    assert_eq!(all_well(three()).judge(&change), Verdict::Refuse(Reason::MemberIdMismatch));
}

#[test]
fn the_last_voter_is_never_removed_dead_or_alive() {
    for look in [serves(0), silent()] {
        let case = all_well(vec![listed(0)]).look(0, look);
        assert_eq!(case.judge(&remove(0)), Verdict::Refuse(Reason::LastVoter));
    }
    let case = all_well(vec![listed(0), learner(1)]);
    assert_eq!(case.judge(&remove(0)), Verdict::Refuse(Reason::LastVoter));
}

// MQ-08
#[test]
fn a_dead_voter_goes_when_the_rest_holds_a_quorum() {
    let case = all_well(three()).look(2, silent());
    assert_eq!(case.judge(&remove(2)), Verdict::Allow(Call::Remove(id(2))));
    let another = case.look(1, silent());
    assert_eq!(another.reason(&remove(2)), Reason::AwaitingQuorum);
}

// MQ-09
#[test]
fn a_healthy_voter_does_not_go_while_another_is_down() {
    let five: Vec<_> = (0..5).map(listed).collect();
    let case = all_well(five).look(4, silent());
    assert_eq!(case.reason(&remove(3)), Reason::VoterNotServing);
    assert_eq!(case.judge(&remove(4)), Verdict::Allow(Call::Remove(id(4))));
}

#[test]
fn a_voter_that_nobody_could_look_at_counts_as_alive() {
    let five: Vec<_> = (0..5).map(listed).collect();
    let case = all_well(five).look(4, silent()).look(3, unknown());
    assert_eq!(case.reason(&remove(3)), Reason::VoterNotServing);
    assert_eq!(case.unseen(3).reason(&remove(3)), Reason::VoterNotServing);
}

#[test]
fn a_learner_goes_with_a_quorum_whatever_else_is_down() {
    let mut members = three();
    members.push(learner(3));
    let case = all_well(members).look(2, silent());
    assert_eq!(case.judge(&remove(3)), Verdict::Allow(Call::Remove(id(3))));
    assert_eq!(case.look(1, silent()).reason(&remove(3)), Reason::AwaitingQuorum);
}

#[test]
fn the_leader_hands_over_before_it_goes_to_the_voter_that_has_applied_most() {
    let behind = Look::Answered {
        at: NOW,
        status: MemberStatus { applied_index: 4_000, ..status(1) },
        linearizable: true,
    };
    let case = all_well(three()).look(1, behind);
    assert_eq!(case.judge(&remove(0)), Verdict::Allow(Call::MoveLeader { from: id(0), to: id(2) }));
    assert_eq!(case.judge(&remove(1)), Verdict::Allow(Call::Remove(id(1))));
}

#[test]
fn a_leader_that_has_died_need_not_hand_over() {
    let case = all_well(three()).look(0, silent());
    assert_eq!(case.judge(&remove(0)), Verdict::Allow(Call::Remove(id(0))));
}

#[test]
fn an_answer_of_another_member_does_not_count_for_the_one_that_was_meant() {
    // The address of m2 leads to m1, which serves: m2 may be long dead.
    let case = all_well(three()).look(2, serves(1));
    assert_eq!(case.reason(&add(3)), Reason::VoterNotServing);
    let case = case.look(1, silent());
    assert_eq!(case.reason(&remove(1)), Reason::AwaitingQuorum);
}

fn restart(n: u64) -> Change {
    Change::Restart { peer_url: url(n), pod_uid: format!("pod{n}").into() }
}

#[test]
fn a_follower_is_restarted_when_all_others_serve() {
    let three = || all_well(vec![listed(0), listed(1), listed(2)]);
    assert_eq!(three().judge(&restart(1)), Verdict::Allow(Call::Restart(id(1))));
    assert_eq!(three().look(2, silent()).reason(&restart(1)), Reason::VoterNotServing);
    assert_eq!(three().unseen(2).reason(&restart(1)), Reason::VoterNotServing);
    assert_eq!(three().reason(&restart(7)), Reason::NotListed);
}

#[test]
fn a_leader_hands_over_before_it_is_restarted_and_the_only_voter_cannot() {
    let three = all_well(vec![listed(0), listed(1), listed(2)]);
    assert!(matches!(three.judge(&restart(0)), Verdict::Allow(Call::MoveLeader { .. })));
    assert_eq!(all_well(vec![listed(0)]).judge(&restart(0)), Verdict::Allow(Call::Restart(id(0))));
}

// Between the grant and the end of its Pod it answers as if nothing were to come.
#[test]
fn a_voter_whose_restart_was_granted_counts_as_gone_for_every_other_change() {
    let three = || Case { restarting: Some(id(1)), ..all_well(vec![listed(0), listed(1), listed(2)]) };
    let remove = Change::Remove { peer_url: url(2), id: Some(id(2)) };
    assert_eq!(three().reason(&remove), Reason::AwaitingQuorum);
    assert_eq!(three().reason(&Change::Add { peer_url: url(9) }), Reason::VoterNotServing);
    assert_eq!(three().reason(&restart(2)), Reason::VoterNotServing);
}
