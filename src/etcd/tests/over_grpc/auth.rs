//! The token: of each call, never of a connection.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use etcd_operator_core::{etcd::EtcdFailure, ids::MemberId};
use etcd_operator_etcd::{Credentials, Token};
use futures::future::BoxFuture;

use crate::fake::{Fake, etcd};

/// Holds `old` until it is refused, then `new`.
#[derive(Default)]
struct Rotated {
    fetched: AtomicUsize,
}

impl Credentials for Rotated {
    fn token<'a>(&'a self, refused: Option<&'a Token>) -> BoxFuture<'a, Result<Option<Token>, EtcdFailure>> {
        Box::pin(async move {
            if refused == Some(&Token::new("old")) {
                self.fetched.fetch_add(1, Ordering::SeqCst);
            }
            let held = if self.fetched.load(Ordering::SeqCst) == 0 { "old" } else { "new" };
            Ok(Some(Token::new(held)))
        })
    }
}

fn tokens(fake: &Fake, method: &str) -> Vec<Option<String>> {
    fake.seen(method).into_iter().map(|s| s.token).collect()
}

#[tokio::test]
async fn every_call_carries_its_token_and_a_refused_one_is_replaced_once() {
    let fake = Fake::voter(1).await;
    fake.require_token("new");
    let credentials = Arc::new(Rotated::default());
    let (reader, mut writer) = etcd(None).with_credentials(credentials.clone()).into_ports();
    reader.list(&[fake.target()]).await.unwrap();
    writer.remove(&[fake.target()], MemberId(3)).await.unwrap();
    let (old, new) = (Some("old".to_owned()), Some("new".to_owned()));
    assert_eq!(tokens(&fake, "MemberList"), [old, new.clone()]);
    for method in ["Status", "MemberRemove"] {
        assert_eq!(tokens(&fake, method).as_slice(), std::slice::from_ref(&new), "{method}");
    }
    assert_eq!(credentials.fetched.load(Ordering::SeqCst), 1);
    assert_eq!(fake.count("Authenticate"), 0, "nothing is sent at connect");
}

#[tokio::test]
async fn a_token_that_is_refused_again_is_a_matter_of_credentials() {
    let fake = Fake::voter(1).await;
    fake.require_token("another");
    let reader = etcd(None).with_credentials(Arc::new(Rotated::default())).into_reader();
    let failure = reader.list(&[fake.target()]).await.unwrap_err();
    assert!(matches!(failure, EtcdFailure::Auth(_)), "{failure:?}");
    assert_eq!(fake.count("MemberList"), 2);
}

#[test]
fn no_token_shows_in_a_log() {
    assert!(!format!("{:?}", Token::new("s3cret")).contains("s3cret"));
}
