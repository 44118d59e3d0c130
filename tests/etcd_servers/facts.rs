//! What the operator's join instruction rests on: how etcd reads `--initial-cluster`.

use std::fs;

use etcd_operator_core::etcd::Look;

use crate::server::{Server, etcd, version};

/// A joined member restarts with `existing` and itself alone in the list. Over its data that is
/// ignored; without its data it must not come up, neither as a second cluster nor under its old ID.
async fn existing_with_itself_alone(version: &str) {
    let mut a = Server::seed(version, &[]).await;
    let (reader, mut writer) = etcd().into_ports();
    let before = reader.list(&[a.target()]).await.unwrap();
    let mut b = Server::new(version, "b", &[]);
    let added = writer.add_learner(&[a.in_list(&before)], &b.peer_url).await.unwrap();
    b.spawn("existing", &added.list.initial_cluster(&"b".into(), &b.peer_url));
    b.until("answers", |look| look.status().is_some_and(|s| s.leader.is_some())).await;
    let list = reader.list(&[a.target()]).await.unwrap();
    assert_eq!(list.members.len(), 2);

    for server in [&mut a, &mut b] {
        server.kill();
        server.spawn("existing", &server.itself());
    }
    a.until("serves again", Look::serves).await;
    let look = b.until("answers again", |look| look.status().is_some_and(|s| s.leader.is_some())).await;
    assert_eq!(look.status().map(|s| (s.cluster_id, s.member_id)), Some((list.cluster_id, b.id(&list))));
    assert_eq!(reader.list(&[a.target()]).await.unwrap(), list, "the list over data is etcd's own");

    b.kill();
    fs::remove_dir_all(b.data()).unwrap();
    b.spawn("existing", &b.itself());
    let status = b.end().await;
    assert!(!status.success(), "an emptied volume must not come up: {status}\n{}", b.log());
}

#[tokio::test]
async fn etcd_3_5_ignores_existing_with_itself_alone_over_data_and_dies_without() {
    existing_with_itself_alone(version("3.5")).await;
}

#[tokio::test]
async fn etcd_3_6_ignores_existing_with_itself_alone_over_data_and_dies_without() {
    existing_with_itself_alone(version("3.6")).await;
}

#[tokio::test]
async fn etcd_3_7_ignores_existing_with_itself_alone_over_data_and_dies_without() {
    existing_with_itself_alone(version("3.7")).await;
}
