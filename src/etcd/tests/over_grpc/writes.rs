//! Membership changes: to the right process, once, and never again while the outcome is open.

use std::{
    io,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use etcd_operator_core::{
    etcd::{EtcdFailure, Refusal},
    ids::{ClusterId, MemberId, PeerUrl},
};
use tonic::Code;

use crate::fake::{Answer, Fake, etcd, short, with};

fn joiner() -> PeerUrl {
    "http://m-255.c.ns.svc:2380".into()
}

#[tokio::test]
async fn each_change_reaches_the_voter_once_and_over_one_connection() {
    let fake = Fake::voter(1).await;
    let (_, mut writer) = etcd(None).into_ports();
    let voters = [fake.target()];
    let added = writer.add_learner(&voters, &joiner()).await.unwrap();
    assert_eq!(added.member_id, MemberId(0xff));
    assert_eq!(added.list.at(&joiner()).unwrap().id, added.member_id);
    assert_eq!(fake.connections(), 1, "the check and the change share a connection");
    assert_eq!(writer.promote(&voters, MemberId(0xff)).await.unwrap().members.len(), 2);
    assert_eq!(writer.remove(&voters, MemberId(0xff)).await.unwrap().members.len(), 2);
    writer.move_leader(&voters[0], MemberId(2)).await.unwrap();
    for method in ["MemberAdd", "MemberPromote", "MemberRemove", "MoveLeader"] {
        assert_eq!(fake.count(method), 1, "{method}");
    }
    assert_eq!(
        (fake.count("Status"), fake.connections()),
        (4, 4),
        "each change is checked on its own connection"
    );
}

#[tokio::test]
async fn a_connection_lost_after_the_request_arrived_is_doubt_and_nobody_else_is_asked() {
    let (first, second) = (Fake::voter(1).await, Fake::voter(2).await);
    first.answer("MemberAdd", Answer::Cut);
    let (_, mut writer) = etcd(None).into_ports();
    let failure = writer.add_learner(&[first.target(), second.target()], &joiner()).await.unwrap_err();
    assert!(matches!(failure, EtcdFailure::Ambiguous(_)), "{failure:?}");
    assert_eq!((first.count("MemberAdd"), first.connections()), (1, 1));
    assert_eq!(second.connections(), 0);
}

#[tokio::test]
async fn an_open_answer_of_etcd_is_returned_at_once() {
    for (code, text) in [
        (Code::Unavailable, "etcdserver: request timed out"),
        (Code::Unavailable, "etcdserver: leader changed"),
        (Code::Unknown, "etcdserver: never seen before"),
    ] {
        let (first, second) = (Fake::voter(1).await, Fake::voter(2).await);
        first.answer("MemberRemove", Answer::Fail(code, text));
        let (_, mut writer) = etcd(None).into_ports();
        let failure = writer.remove(&[first.target(), second.target()], MemberId(3)).await.unwrap_err();
        assert!(matches!(failure, EtcdFailure::Ambiguous(_)), "{failure:?}");
        assert_eq!((first.count("MemberRemove"), second.connections()), (1, 0), "{text}");
    }
}

#[tokio::test]
async fn a_refusal_is_the_clusters_and_is_not_put_to_another_voter() {
    let (first, second) = (Fake::voter(1).await, Fake::voter(2).await);
    first.answer("MemberAdd", Answer::Fail(Code::Unavailable, "etcdserver: unhealthy cluster"));
    let (_, mut writer) = etcd(None).into_ports();
    let failure = writer.add_learner(&[first.target(), second.target()], &joiner()).await.unwrap_err();
    assert_eq!(failure, EtcdFailure::Refused(Refusal::UnhealthyCluster));
    assert_eq!(second.connections(), 0);
}

// CL-02
#[tokio::test]
async fn a_change_that_is_never_answered_is_doubt_at_its_deadline() {
    let (first, second) = (Fake::voter(1).await, Fake::voter(2).await);
    first.answer("MemberPromote", Answer::Hang);
    let (_, mut writer) = with(short(), None).into_ports();
    let start = Instant::now();
    let failure = writer.promote(&[first.target(), second.target()], MemberId(3)).await.unwrap_err();
    assert!(matches!(failure, EtcdFailure::Ambiguous(_)), "{failure:?}");
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    assert_eq!((first.count("MemberPromote"), second.connections()), (1, 0));
}

#[tokio::test]
async fn the_server_is_told_to_give_up_before_we_do() {
    let fake = Fake::voter(1).await;
    let (_, mut writer) = etcd(None).into_ports();
    writer.remove(&[fake.target()], MemberId(3)).await.unwrap();
    assert_eq!(fake.seen("MemberRemove")[0].timeout.as_deref(), Some("7000m"));
}

#[tokio::test]
async fn another_cluster_at_the_address_gets_no_change_and_the_next_voter_does() {
    let (stranger, voter) = (Fake::start(ClusterId(0xbad), 1, false, None).await, Fake::voter(2).await);
    let (_, mut writer) = etcd(None).into_ports();
    let failure = writer.add_learner(&[stranger.target()], &joiner()).await.unwrap_err();
    assert!(matches!(failure, EtcdFailure::WrongPeer(_)), "{failure:?}");
    writer.add_learner(&[stranger.target(), voter.target()], &joiner()).await.unwrap();
    assert_eq!((stranger.count("MemberAdd"), voter.count("MemberAdd")), (0, 1));
}

#[tokio::test]
async fn another_member_at_the_address_gets_no_change() {
    let fake = Fake::voter(2).await;
    let mut target = fake.target();
    target.expected.member_id = Some(MemberId(1));
    let (_, mut writer) = etcd(None).into_ports();
    let failure = writer.move_leader(&target, MemberId(3)).await.unwrap_err();
    assert!(matches!(failure, EtcdFailure::WrongPeer(_)), "{failure:?}");
    assert_eq!(fake.count("MoveLeader"), 0);
}

#[tokio::test]
async fn without_a_recorded_cluster_and_member_id_nothing_is_changed() {
    let fake = Fake::voter(1).await;
    let (_, mut writer) = etcd(None).into_ports();
    let (mut no_cluster, mut no_member) = (fake.target(), fake.target());
    no_cluster.expected.cluster_id = None;
    no_member.expected.member_id = None;
    for target in [no_cluster, no_member] {
        let failure = writer.remove(&[target], MemberId(3)).await.unwrap_err();
        assert!(matches!(failure, EtcdFailure::WrongPeer(_)), "{failure:?}");
    }
    assert_eq!(fake.count("MemberRemove"), 0);
}

// LP-01
#[tokio::test]
async fn a_learner_is_never_sent_a_change_and_the_next_voter_is() {
    let (learner, voter) = (Fake::learner(1).await, Fake::voter(2).await);
    let (_, mut writer) = etcd(None).into_ports();
    writer.promote(&[learner.target(), voter.target()], MemberId(3)).await.unwrap();
    assert_eq!((learner.count("MemberPromote"), voter.count("MemberPromote")), (0, 1));
    // It may have become one between the question and the change.
    let late = Fake::voter(3).await;
    late.answer(
        "MemberPromote",
        Answer::Fail(Code::Unavailable, "etcdserver: rpc not supported for learner"),
    );
    writer.promote(&[late.target(), voter.target()], MemberId(3)).await.unwrap();
    assert_eq!((late.count("MemberPromote"), voter.count("MemberPromote")), (1, 2));
}

#[tokio::test]
async fn a_voter_that_is_gone_or_silent_before_the_change_passes_it_on() {
    let (mut gone, frozen, voter) = (Fake::voter(1).await, Fake::voter(2).await, Fake::voter(3).await);
    gone.stop().await;
    frozen.freeze(true);
    let (_, mut writer) = with(short(), None).into_ports();
    let voters = [gone.target(), frozen.target(), voter.target()];
    writer.add_learner(&voters, &joiner()).await.unwrap();
    assert_eq!((frozen.count("MemberAdd"), voter.count("MemberAdd")), (0, 1));
    let failure = writer.add_learner(&voters[..2], &joiner()).await.unwrap_err();
    assert!(matches!(failure, EtcdFailure::Unreachable(_)), "{failure:?}");
}

/// What is logged while it lives, by this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn each_change_leaves_a_trace_of_what_was_sent_and_what_became_of_it() {
    let log = Log::default();
    let writer_of_log = log.clone();
    let subscriber =
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer_of_log.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let fake = Fake::voter(1).await;
    let (_, mut writer) = etcd(None).into_ports();
    writer.add_learner(&[fake.target()], &joiner()).await.unwrap();
    fake.answer("MemberRemove", Answer::Fail(Code::NotFound, "etcdserver: member not found"));
    writer.remove(&[fake.target()], MemberId(3)).await.unwrap_err();
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let lines: Vec<_> = text.lines().filter(|l| l.contains("etcd_operator::membership")).collect();
    let expected = [
        ["member-add", "m-255.c.ns.svc", "outcome=sent"],
        ["member-add", "m-255.c.ns.svc", "outcome=done"],
        ["member-remove", "0000000000000003", "outcome=sent"],
        ["member-remove", "0000000000000003", "there is no such member"],
    ];
    assert_eq!(lines.len(), expected.len(), "{text}");
    for (line, words) in lines.iter().zip(expected) {
        assert!(words.iter().all(|w| line.contains(w)) && line.contains("00000000000000c1"), "{line}");
    }
}
