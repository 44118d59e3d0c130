//! What a decision costs on a healthy cluster of three, five and seven members, which is what the operator
//! looks at most: nothing to do. A decision runs at every wake of an actor, so for a thousand clusters it
//! must stay in the microseconds.

#![allow(missing_docs, reason = "criterion's macros make a public function without one")]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use etcd_operator_core::{
    cluster,
    departure::Departure,
    etcd::{ListedMember, Look, MemberList, MemberStatus, quorum},
    ids::{ClusterId, MemberId, MemberName, PeerUrl, Uid},
    member,
    membership::{Change, Evidence, STEADY, Verdict, judge},
    reason::Reason,
    report::report,
    time::Time,
    version::EtcdVersion,
    view::{
        BudgetState, ClusterRecord, ClusterSituation, ClusterView, ListFact, MemberFacts, MemberRecord,
        MemberSituation, MemberView, Owner, PodView, Presence, PvcView, ServiceKind, ServiceState, Target,
        ThrownOut,
    },
};

const CLUSTER: ClusterId = ClusterId(0xcafe);
const NOW: Time = Time(1_800_000_000_000);

fn name(n: u64) -> MemberName {
    MemberName(format!("bench-{n:05}"))
}

fn peer_url(n: u64) -> PeerUrl {
    PeerUrl(format!("http://bench-{n:05}.bench.ns.svc:2380"))
}

fn status(n: u64, is_learner: bool) -> MemberStatus {
    MemberStatus {
        cluster_id: CLUSTER,
        member_id: MemberId(n),
        is_learner,
        leader: Some(MemberId(1)),
        term: 2,
        raft_index: 5_000,
        applied_index: 5_000,
        db_size: 20 << 20,
        db_size_in_use: 10 << 20,
        version: Some(EtcdVersion::new(3, 6, 16)),
        errors: vec![],
    }
}

fn look(n: u64, is_learner: bool, at: Time) -> Look {
    Look::Answered { at, status: status(n, is_learner), linearizable: !is_learner }
}

/// Members 1 to `voters` are voters, member 1 leads; `learner` adds one more that is none yet.
fn list(voters: u64, learner: bool) -> MemberList {
    let members = (1..=voters + u64::from(learner)).map(|n| ListedMember {
        id: MemberId(n),
        name: name(n).0,
        peer_urls: vec![peer_url(n)],
        client_urls: vec![format!("http://bench-{n:05}.bench.ns.svc:2379")],
        is_learner: n > voters,
    });
    MemberList { cluster_id: CLUSTER, members: members.collect() }
}

fn facts(n: u64) -> MemberFacts {
    let pvc = Uid(format!("pvc-{n}"));
    let view = MemberView {
        name: name(n),
        uid: Uid(format!("member-{n}")),
        peer_url: peer_url(n),
        seed: n == 1,
        founds: CLUSTER,
        dormant: false,
        memory: false,
        initial_cluster: format!("{}={}", name(n), peer_url(n)),
        created: Time(n),
        deleting: None,
        finalizer: true,
        blueprint: etcd_operator_core::roll::Blueprint::default(),
        generation: 1,
        pod_generation: 0,
        permit: None,
        recorded: MemberRecord {
            version: None,
            member_id: Some(MemberId(n)),
            is_voter: true,
            ready: true,
            pvc_uid: Some(pvc.clone()),
            pod_uid: Some(Uid(format!("pod-{n}"))),
        },
    };
    let pod = PodView {
        uid: Uid(format!("pod-{n}")),
        ours: true,
        created: Time(0),
        deleting: false,
        ended: false,
        ip: Some([10, 0, 0, u8::try_from(n).unwrap_or(u8::MAX)].into()),
        node: Some(format!("node{n}")),
        zone: None,
        started: true,
        ready: true,
        voter_label: true,
        labels_right: true,
        instruction: member::instruction(&view, true),
        trouble: None,
        restarts: 0,
        rewrites: false,
        made_from: 1,
    };
    MemberFacts {
        member: view,
        pod: Presence::Present(pod),
        pvc: Presence::Present(PvcView {
            uid: pvc,
            ours: true,
            deleting: false,
            labels_right: true,
            requested: Some(1 << 30),
            capacity: Some(1 << 30),
            resize_pending: None,
        }),
        look: look(n, false, NOW),
        stalled: false,
        refused: None,
        cannot_grow: None,
        thrown_out: ThrownOut::default(),
        stranded: None,
    }
}

fn cluster_of(voters: u64) -> ClusterSituation {
    let replicas = usize::try_from(voters).unwrap_or(usize::MAX);
    let target = Target {
        replicas,
        template: "template".into(),
        blueprint: etcd_operator_core::roll::Blueprint::default(),
    };
    ClusterSituation {
        now: NOW,
        cluster: ClusterView {
            name: "bench".into(),
            uid: Uid("cluster".into()),
            deleting: false,
            paused: false,
            refused: vec![],
            replicas,
            template: target.template.clone(),
            blueprint: etcd_operator_core::roll::Blueprint::default(),
            rolls: true,
            recover_from: None,
            warnings: vec![],
            progress_deadline_seconds: 600,
            recorded: ClusterRecord {
                cluster_id: Some(CLUSTER),
                target: Some(target),
                progress_deadline: None,
                drift: Some(etcd_operator_core::view::Drift::Rolled),
                recovery: None,
                refused_recovery: None,
            },
        },
        budget: BudgetState::Present { min_available: quorum(replicas), right: true },
        services: [ServiceKind::Headless, ServiceKind::Client].map(|kind| (kind, ServiceState::Right)).into(),
        members: (1..=voters).map(facts).collect(),
        list: ListFact::Known { at: NOW, list: list(voters, false) },
        members_confirmed: Some(NOW),
        refused: None,
        fault: None,
        lost_node_after: None,
    }
}

fn member_of(voters: u64) -> MemberSituation {
    MemberSituation {
        now: NOW,
        owner: Owner::Present { cluster_id: Some(CLUSTER), confirmed: true, hands_off: false },
        facts: facts(2),
        list: ListFact::Known { at: NOW, list: list(voters, false) },
        granted: false,
        parks: false,
        recovery: None,
        departure: Departure::Hold(Reason::InProgress),
        removed: false,
        budget_covers_label: true,
    }
}

fn decisions(criterion: &mut Criterion) {
    for voters in [3, 5, 7] {
        let cluster = cluster_of(voters);
        assert_eq!(cluster::decide(&cluster), cluster::ClusterDecision::Settled, "the bench measures peace");
        criterion.bench_with_input(BenchmarkId::new("cluster_decide", voters), &cluster, |b, s| {
            b.iter(|| cluster::decide(black_box(s)));
        });
        criterion.bench_with_input(BenchmarkId::new("cluster_report", voters), &cluster, |b, s| {
            b.iter(|| report(black_box(s)));
        });

        let member = member_of(voters);
        assert_eq!(member::decide(&member), member::MemberDecision::Settled, "the bench measures peace");
        criterion.bench_with_input(BenchmarkId::new("member_decide", voters), &member, |b, s| {
            b.iter(|| member::decide(black_box(s)));
        });
    }
}

/// The longest chain of checks: a promotion that is allowed.
fn judgement(criterion: &mut Criterion) {
    for voters in [2, 4, 6] {
        let learner = voters + 1;
        let members = list(voters, true);
        let looks: BTreeMap<_, _> =
            (1..=learner).map(|n| (MemberId(n), look(n, n == learner, NOW))).collect();
        let second = look(learner, true, NOW + STEADY);
        let evidence = Evidence {
            now: NOW + STEADY + Duration::from_millis(1),
            cluster_id: Some(CLUSTER),
            list: &members,
            looks: &looks,
            second_look: Some(&second),
            restarting: None,
            doomed: false,
            doubt: None,
        };
        let change = Change::Promote { peer_url: peer_url(learner) };
        assert!(matches!(judge(&change, &evidence), Verdict::Allow(_)), "the bench measures a permission");
        criterion.bench_with_input(BenchmarkId::new("judge_promotion", learner), &evidence, |b, e| {
            b.iter(|| judge(black_box(&change), black_box(e)));
        });
    }
}

criterion_group!(benches, decisions, judgement);
criterion_main!(benches);
