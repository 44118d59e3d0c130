//! Each refusal, provoked: one value of [`Refusal`] in every version.

use std::time::{Duration, Instant};

use etcd_operator_core::{
    etcd::{EtcdFailure, Look, Refusal},
    ids::MemberId,
};
use etcd_operator_etcd::classify;

use crate::server::{Server, etcd, patiently, version};

fn refused(refusal: Refusal) -> EtcdFailure {
    EtcdFailure::Refused(refusal)
}

/// One cluster from its seed to two voters and the loss of one.
async fn the_life_of_a_cluster(version: &str) {
    let a = Server::seed(version, &[]).await;
    let (reader, mut writer) = etcd().into_ports();
    let list = reader.list(&[a.target()]).await.unwrap();
    let via_a = [a.in_list(&list)];
    let unknown = MemberId(0x1234);

    assert_eq!(
        writer.remove(&via_a, a.id(&list)).await,
        Err(refused(Refusal::NotEnoughStarted)),
        "the last voter"
    );
    assert_eq!(writer.remove(&via_a, unknown).await, Err(refused(Refusal::MemberNotFound)));
    assert_eq!(writer.promote(&via_a, unknown).await, Err(refused(Refusal::MemberNotFound)));
    assert_eq!(writer.promote(&via_a, a.id(&list)).await, Err(refused(Refusal::NotLearner)));

    // MQ-02: an added member has no name until it has started.
    let mut b = Server::new(version, "b", &[]);
    let added = writer.add_learner(&via_a, &b.peer_url).await.unwrap();
    let list = reader.list(&via_a).await.unwrap();
    assert_eq!(list, added.list, "the answer to the change is the list after it");
    let joined = list.at(&b.peer_url).unwrap();
    assert_eq!((joined.id, joined.started(), joined.is_learner), (added.member_id, false, true));

    let c = "http://127.0.0.1:1".into();
    // A member's ID is a hash of its peer URL and of the second in which it is added, so within that
    // second the same URL is refused by its ID.
    loop {
        let failure = writer.add_learner(&via_a, &b.peer_url).await.unwrap_err();
        if failure == refused(Refusal::PeerUrlExists) {
            break;
        }
        assert_eq!(failure, refused(Refusal::MemberIdExists));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(writer.add_learner(&via_a, &c).await, Err(refused(Refusal::TooManyLearners)));
    assert_eq!(writer.promote(&via_a, added.member_id).await, Err(refused(Refusal::LearnerNotReady)));
    assert_eq!(
        writer.move_leader(&via_a[0], added.member_id).await,
        Err(refused(Refusal::BadLeaderTransferee)),
        "a learner"
    );
    assert_eq!(writer.move_leader(&via_a[0], unknown).await, Err(refused(Refusal::BadLeaderTransferee)));

    b.spawn("existing", &added.list.initial_cluster(&"b".into(), &b.peer_url));
    let look =
        b.until("is a learner that follows", |look| look.status().is_some_and(|s| s.leader.is_some())).await;
    assert!(look.status().unwrap().is_learner && !look.serves());
    let via_b = [b.in_list(&list)];
    assert_eq!(reader.list(&via_b).await, Err(refused(Refusal::LearnerAsked)), "the list");
    assert_eq!(reader.linearizable_read(&via_b[0]).await, Err(refused(Refusal::LearnerAsked)), "a key");
    // LP-01: with a voter behind it, a learner asked costs nothing.
    let both = [via_b[0].clone(), via_a[0].clone()];
    assert!(reader.list(&both).await.unwrap().at(&b.peer_url).unwrap().started());

    // LP-04
    let not_ready = |f: &EtcdFailure| *f == refused(Refusal::LearnerNotReady);
    let list = patiently(async || writer.promote(&both, added.member_id).await, not_ready).await;
    assert!(!list.by_id(added.member_id).unwrap().is_learner);
    b.until("serves as a voter", Look::serves).await;
    assert_eq!(writer.promote(&via_a, added.member_id).await, Err(refused(Refusal::NotLearner)));
    assert_eq!(writer.move_leader(&via_b[0], a.id(&list)).await, Err(refused(Refusal::NotLeader)));
    // A follower hands a promotion on to the leader, over a path of its own with texts of its own.
    assert_eq!(writer.promote(&via_b, unknown).await, Err(refused(Refusal::MemberNotFound)));
    writer.move_leader(&via_a[0], added.member_id).await.unwrap();
    writer.move_leader(&via_b[0], a.id(&list)).await.unwrap();

    b.kill();
    let unhealthy = |f: &EtcdFailure| *f == refused(Refusal::UnhealthyCluster);
    assert!(unhealthy(&writer.add_learner(&via_a, &c).await.unwrap_err()));
    // MQ-11: without a quorum the list is unknown, in time; and the member itself still answers.
    let start = Instant::now();
    let failure = reader.list(&via_a).await.unwrap_err();
    assert!(matches!(failure, EtcdFailure::Ambiguous(_)), "{failure:?}");
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    let look = reader.look(&via_a[0]).await;
    assert!(look.status().is_some() && !look.serves());
    assert!(reader.look(&via_b[0]).await.is_silent());
}

/// A database at its quota refuses writes, and membership changes still go through.
async fn a_full_database(version: &str) {
    let a = Server::seed(version, &["--quota-backend-bytes=1000000"]).await;
    let mut raw = a.raw().await;
    let mut failure = None;
    for n in 0..100 {
        if let Err(e) = raw.put(format!("k{n}"), vec![0; 200_000], None).await {
            failure = Some(classify(&e));
            break;
        }
    }
    assert_eq!(failure, Some(refused(Refusal::NoSpace)));
    let (reader, mut writer) = etcd().into_ports();
    let look = reader.look(&a.target()).await;
    assert!(look.serves());
    assert!(look.status().unwrap().errors.iter().any(|e| e.contains("NOSPACE")), "{look:?}");
    let list = reader.list(&[a.target()]).await.unwrap();
    writer.add_learner(&[a.in_list(&list)], &"http://127.0.0.1:1".into()).await.unwrap();
}

macro_rules! in_each_version {
    ($($minor:literal => $life:ident, $full:ident;)*) => {$(
        // CL-04
        #[tokio::test]
        async fn $life() {
            the_life_of_a_cluster(version($minor)).await;
        }
        #[tokio::test]
        async fn $full() {
            a_full_database(version($minor)).await;
        }
    )*};
}

in_each_version! {
    "3.5" => each_refusal_of_etcd_3_5_is_one_value, a_full_database_of_etcd_3_5_refuses_writes_alone;
    "3.6" => each_refusal_of_etcd_3_6_is_one_value, a_full_database_of_etcd_3_6_refuses_writes_alone;
    "3.7" => each_refusal_of_etcd_3_7_is_one_value, a_full_database_of_etcd_3_7_refuses_writes_alone;
}
