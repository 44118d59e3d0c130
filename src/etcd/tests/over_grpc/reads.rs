//! Reads: spread over members, bounded in time.

use std::time::{Duration, Instant};

use etcd_operator_core::{
    etcd::{EtcdFailure, Look},
    ids::{ClusterId, MemberId},
    time::Time,
};
use etcd_operator_etcd::Target;
use tonic::Code;

use crate::fake::{Answer, CLUSTER, Fake, etcd, short, with};

fn targets(fakes: &[Fake]) -> Vec<Target> {
    fakes.iter().map(Fake::target).collect()
}

async fn three() -> Vec<Fake> {
    vec![Fake::voter(1).await, Fake::voter(2).await, Fake::voter(3).await]
}

// MQ-11
#[tokio::test]
async fn the_member_list_is_asked_for_linearizably() {
    let fake = Fake::voter(1).await;
    etcd(None).into_reader().list(&[fake.target()]).await.unwrap();
    assert!(fake.seen("MemberList").iter().all(|s| s.linearizable));
    assert_eq!(fake.count("MemberList"), 1);
}

// MQ-02
#[tokio::test]
async fn a_member_that_has_not_started_is_in_the_list_without_a_name() {
    let fake = Fake::voter(1).await;
    let list = etcd(None).into_reader().list(&[fake.target()]).await.unwrap();
    assert_eq!(list.cluster_id, CLUSTER);
    let joined = list.at(&"http://m-255.c.ns.svc:2380".into()).unwrap();
    assert_eq!((joined.id, joined.started()), (MemberId(0xff), false));
    assert!(list.by_id(MemberId(1)).unwrap().started());
}

// CL-01
#[tokio::test]
async fn with_each_of_three_members_down_in_turn_no_list_fails_and_none_is_slow() {
    let mut fakes = three().await;
    let reader = etcd(None).into_reader();
    let mut took = Vec::new();
    for n in 0..200 {
        let down = n % 4;
        if down < 3 {
            fakes[down].stop().await;
        }
        let start = Instant::now();
        reader.list(&targets(&fakes)).await.unwrap_or_else(|e| panic!("list {n}: {e}"));
        took.push(start.elapsed());
        if down < 3 {
            fakes[down].start_again().await;
        }
    }
    took.sort();
    assert!(took[198] < Duration::from_secs(2), "p99 was {:?}", took[198]);
}

// CL-01, CL-02
#[tokio::test]
async fn a_silent_member_costs_a_list_its_patience_and_not_its_deadline() {
    let fakes = three().await;
    fakes[0].freeze(true);
    let start = Instant::now();
    etcd(None).into_reader().list(&targets(&fakes)).await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

// MQ-11
#[tokio::test]
async fn when_nobody_answers_a_list_ends_at_its_deadline_and_says_unknown() {
    let fakes = three().await;
    fakes.iter().for_each(|f| f.answer("MemberList", Answer::Hang));
    let start = Instant::now();
    let failure = with(short(), None).into_reader().list(&targets(&fakes)).await.unwrap_err();
    assert!(matches!(failure, EtcdFailure::Ambiguous(_)), "{failure:?}");
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

// LP-01
#[tokio::test]
async fn a_learner_asked_for_the_list_passes_it_on_to_the_next() {
    let (learner, voter) = (Fake::learner(1).await, Fake::voter(2).await);
    etcd(None).into_reader().list(&[learner.target(), voter.target()]).await.unwrap();
    assert_eq!((learner.count("MemberList"), voter.count("MemberList")), (1, 1));
}

#[tokio::test]
async fn the_list_of_another_cluster_or_another_member_is_not_taken() {
    let stranger = Fake::start(ClusterId(0xbad), 1, false, None).await;
    let failure = etcd(None).into_reader().list(&[stranger.target()]).await.unwrap_err();
    assert!(matches!(failure, EtcdFailure::WrongPeer(_)), "{failure:?}");

    let other = Fake::voter(2).await;
    let mut target = other.target();
    target.expected.member_id = Some(MemberId(9));
    let failure = etcd(None).into_reader().list(&[target]).await.unwrap_err();
    assert!(matches!(failure, EtcdFailure::WrongPeer(_)), "{failure:?}");
}

// CL-02
#[tokio::test]
async fn a_member_that_accepts_and_never_answers_is_silent_at_the_deadline_and_found_again_after() {
    let fake = Fake::voter(1).await;
    let reader = with(short(), None).into_reader();
    assert!(reader.look(&fake.target()).await.serves());
    for _ in 0..2 {
        fake.freeze(true);
        let start = Instant::now();
        assert_eq!(reader.look(&fake.target()).await, Look::Silent { at: Time(7) });
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
        fake.freeze(false);
        assert!(reader.look(&fake.target()).await.serves());
    }
}

#[tokio::test]
async fn a_refused_connection_is_silence() {
    let mut fake = Fake::voter(1).await;
    fake.stop().await;
    assert!(etcd(None).into_reader().look(&fake.target()).await.is_silent());
}

#[tokio::test]
async fn a_look_at_a_healthy_voter_finds_its_status_and_that_it_serves() {
    let fake = Fake::voter(1).await;
    let look = etcd(None).into_reader().look(&fake.target()).await;
    assert!(look.serves());
    let status = look.status().unwrap();
    assert_eq!((status.cluster_id, status.member_id), (CLUSTER, MemberId(1)));
    assert_eq!((status.applied_index, status.db_size, status.leader), (7, 4096, Some(MemberId(1))));
    assert!(fake.seen("Range").iter().all(|s| s.linearizable));
    assert_eq!(fake.connections(), 1, "both calls share one connection");
}

#[tokio::test]
async fn a_learner_answers_and_does_not_serve() {
    let fake = Fake::learner(1).await;
    let look = etcd(None).into_reader().look(&fake.target()).await;
    assert!(look.status().unwrap().is_learner && !look.serves());
}

#[tokio::test]
async fn a_member_without_quorum_answers_and_does_not_serve() {
    let fake = Fake::voter(1).await;
    fake.answer("Range", Answer::Hang);
    let start = Instant::now();
    let look = with(short(), None).into_reader().look(&fake.target()).await;
    assert!(look.status().is_some() && !look.serves());
    assert!(start.elapsed() < Duration::from_secs(2));
}

// AU-02
#[tokio::test]
async fn a_member_that_refuses_our_credentials_is_alive_and_serves() {
    let fake = Fake::voter(1).await;
    fake.answer("Range", Answer::Fail(Code::InvalidArgument, "etcdserver: user name is empty"));
    assert!(etcd(None).into_reader().look(&fake.target()).await.serves());
    fake.answer("Status", Answer::Fail(Code::PermissionDenied, "etcdserver: permission denied"));
    assert_eq!(etcd(None).into_reader().look(&fake.target()).await, Look::Unknown { since: Time(7) });
}

#[tokio::test]
async fn a_read_that_another_process_served_does_not_count_for_this_member() {
    let fake = Fake::start(ClusterId(0xbad), 1, false, None).await;
    let look = etcd(None).into_reader().look(&fake.target()).await;
    assert_eq!(look.status().unwrap().cluster_id, ClusterId(0xbad), "the caller sees who answered");
    assert!(!look.serves());
}
