//! Situations in few words: a healthy cluster of `n` voters `m0`, `m1`, …, to be made worse.

use std::collections::BTreeMap;

use etcd_operator_core::{
    departure::Departure,
    etcd::{ListedMember, Look, MemberList, MemberStatus, quorum},
    ids::{ClusterId, MemberId, PeerUrl},
    roll::Blueprint,
    time::Time,
    version::EtcdVersion,
    view::*,
};

pub(crate) const NOW: Time = Time(100_000);
pub(crate) const CLUSTER: ClusterId = ClusterId(7);

pub(crate) const GIB: u64 = 1 << 30;

/// What all members are made from unless a test is about that.
pub(crate) fn blueprint() -> Blueprint {
    Blueprint {
        version: Some(EtcdVersion::new(3, 6, 16)),
        size: Some(GIB),
        pod: "p".into(),
        metadata: String::new(),
    }
}

pub(crate) fn url(n: u64) -> PeerUrl {
    PeerUrl(format!("http://m{n}.c.ns.svc:2380"))
}

pub(crate) fn id(n: u64) -> MemberId {
    MemberId(100 + n)
}

pub(crate) fn listed(n: u64) -> ListedMember {
    ListedMember {
        id: id(n),
        name: format!("m{n}"),
        peer_urls: vec![url(n)],
        client_urls: vec![],
        is_learner: false,
    }
}

pub(crate) fn learner(n: u64) -> ListedMember {
    ListedMember { is_learner: true, ..listed(n) }
}

/// Added, and its process never ran.
pub(crate) fn nameless(n: u64) -> ListedMember {
    ListedMember { name: String::new(), ..learner(n) }
}

pub(crate) fn list(members: Vec<ListedMember>) -> MemberList {
    MemberList { cluster_id: CLUSTER, members }
}

pub(crate) fn status(n: u64) -> MemberStatus {
    MemberStatus {
        cluster_id: CLUSTER,
        member_id: id(n),
        is_learner: false,
        leader: Some(id(0)),
        term: 2,
        raft_index: 5_000,
        applied_index: 5_000,
        db_size: 1,
        db_size_in_use: 1,
        version: None,
        errors: vec![],
    }
}

pub(crate) fn serves(n: u64) -> Look {
    Look::Answered { at: NOW, status: status(n), linearizable: true }
}

/// It answers, and is not connected to a quorum.
pub(crate) fn answers(n: u64) -> Look {
    Look::Answered { at: NOW, status: MemberStatus { leader: None, ..status(n) }, linearizable: false }
}

pub(crate) fn learns(n: u64) -> Look {
    learns_at(n, NOW, 5_000)
}

pub(crate) fn learns_at(n: u64, at: Time, applied_index: u64) -> Look {
    let status = MemberStatus { is_learner: true, applied_index, raft_index: applied_index, ..status(n) };
    Look::Answered { at, status, linearizable: false }
}

pub(crate) fn silent() -> Look {
    Look::Silent { at: NOW }
}

pub(crate) fn unknown() -> Look {
    Look::Unknown { since: Time(0) }
}

pub(crate) fn alone(n: u64) -> String {
    format!("m{n}={}", url(n))
}

pub(crate) fn pod(n: u64) -> PodView {
    PodView {
        uid: format!("pod{n}").into(),
        ours: true,
        created: Time(0),
        deleting: false,
        ended: false,
        ip: Some([10, 0, 0, n as u8].into()),
        node: Some("node".into()),
        zone: None,
        started: true,
        ready: true,
        voter_label: true,
        labels_right: true,
        instruction: Some(JoinInstruction::Existing { initial_cluster: alone(n) }),
        trouble: None,
        restarts: 0,
        made_from: 1,
        rewrites: false,
    }
}

pub(crate) fn pvc(n: u64) -> PvcView {
    PvcView {
        uid: format!("pvc{n}").into(),
        ours: true,
        deleting: false,
        labels_right: true,
        requested: Some(GIB),
        capacity: Some(GIB),
        resize_pending: None,
    }
}

/// A voter that serves, with everything in place and on record.
pub(crate) fn voter(n: u64) -> MemberFacts {
    MemberFacts {
        member: MemberView {
            name: format!("m{n}").into(),
            uid: format!("uid{n}").into(),
            peer_url: url(n),
            seed: n == 0,
            founds: CLUSTER,
            dormant: false,
            memory: false,
            initial_cluster: if n == 0 { String::new() } else { alone(n) },
            created: Time(n * 1_000),
            deleting: None,
            finalizer: true,
            blueprint: blueprint(),
            generation: 1,
            pod_generation: 0,
            permit: None,
            recorded: MemberRecord {
                version: None,
                member_id: Some(id(n)),
                is_voter: true,
                ready: true,
                pvc_uid: Some(format!("pvc{n}").into()),
                pod_uid: Some(format!("pod{n}").into()),
            },
        },
        pod: Presence::Present(pod(n)),
        pvc: Presence::Present(pvc(n)),
        look: serves(n),
        stalled: false,
        refused: None,
        cannot_grow: None,
        thrown_out: ThrownOut::default(),
        stranded: None,
    }
}

/// A voter that was asked and does not answer.
pub(crate) fn dead(n: u64) -> MemberFacts {
    MemberFacts { look: silent(), ..voter(n) }
}

/// An EtcdMember that has just been created.
pub(crate) fn newcomer(n: u64) -> MemberFacts {
    let mut m = voter(n);
    m.member.seed = false;
    m.member.initial_cluster = String::new();
    m.member.recorded = MemberRecord::default();
    MemberFacts { pod: Presence::Absent, pvc: Presence::Absent, look: unknown(), ..m }
}

/// A learner that answers, on record as such.
pub(crate) fn joined(n: u64) -> MemberFacts {
    let mut m = voter(n);
    m.member.seed = false;
    m.member.recorded.is_voter = false;
    m.member.recorded.ready = false;
    m.look = learns(n);
    m.pod = Presence::Present(PodView { voter_label: false, ..pod(n) });
    m
}

pub(crate) fn leaving(mut m: MemberFacts) -> MemberFacts {
    m.member.deleting = Some(Time(90_000));
    m
}

/// A formed cluster of these members, with a list that has all of them as voters.
pub(crate) fn cluster(replicas: usize, members: Vec<MemberFacts>) -> ClusterSituation {
    let all = members
        .iter()
        .map(|m| ListedMember {
            id: m.member.recorded.member_id.unwrap_or(MemberId(1)),
            name: m.member.name.0.clone(),
            peer_urls: vec![m.member.peer_url.clone()],
            client_urls: vec![],
            is_learner: !m.member.recorded.is_voter,
        })
        .collect();
    let target = Target { replicas, template: "t".into(), blueprint: blueprint() };
    let floor_for = members.iter().filter(|m| m.member.recorded.is_voter).count().max(replicas);
    ClusterSituation {
        now: NOW,
        cluster: ClusterView {
            name: "c".into(),
            uid: "u".into(),
            deleting: false,
            paused: false,
            refused: vec![],
            replicas,
            template: "t".into(),
            blueprint: blueprint(),
            rolls: true,
            recover_from: None,
            warnings: vec![],
            progress_deadline_seconds: 600,
            recorded: ClusterRecord {
                cluster_id: Some(CLUSTER),
                target: Some(target),
                progress_deadline: None,
                drift: Some(Drift::Rolled),
                recovery: None,
                refused_recovery: None,
            },
        },
        services: BTreeMap::from([
            (ServiceKind::Headless, ServiceState::Right),
            (ServiceKind::Client, ServiceState::Right),
        ]),
        budget: if members.is_empty() {
            BudgetState::Absent
        } else {
            BudgetState::Present { min_available: quorum(floor_for), right: true }
        },
        members,
        list: ListFact::Known { at: NOW, list: list(all) },
        members_confirmed: None,
        refused: None,
        fault: None,
        lost_node_after: None,
    }
}

/// A cluster whose ID is not recorded yet.
pub(crate) fn unformed(members: Vec<MemberFacts>) -> ClusterSituation {
    let mut s = cluster(3, members);
    s.cluster.recorded.cluster_id = None;
    s.budget = BudgetState::Absent;
    s.list = ListFact::Unknown { since: Time(0) };
    s
}

/// One member in a formed cluster where everything is as it should be.
pub(crate) fn situation(facts: MemberFacts) -> MemberSituation {
    MemberSituation {
        now: NOW,
        owner: Owner::Present { cluster_id: Some(CLUSTER), confirmed: false, hands_off: false },
        facts,
        list: ListFact::Known { at: NOW, list: list(vec![listed(0), listed(1), listed(2)]) },
        departure: Departure::Go,
        granted: false,
        parks: false,
        recovery: None,
        removed: false,
        budget_covers_label: true,
    }
}
