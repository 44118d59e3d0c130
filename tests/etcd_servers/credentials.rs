//! Auth switched on: what each version refuses, and that a token per call is enough.

use std::sync::Arc;

use etcd_operator_core::{
    etcd::{EtcdFailure, Look},
    ids::MemberId,
};
use etcd_operator_etcd::{Credentials, Token, classify};
use futures::future::BoxFuture;

use crate::server::{Server, etcd, version};

/// One token for ever, as a process has that does not know that it was refused.
struct Fixed(String);

impl Credentials for Fixed {
    fn token<'a>(&'a self, _: Option<&'a Token>) -> BoxFuture<'a, Result<Option<Token>, EtcdFailure>> {
        Box::pin(async { Ok(Some(Token::new(self.0.clone()))) })
    }
}

async fn auth_switched_on(version: &str) {
    let a = Server::seed(version, &[]).await;
    let list = etcd().into_reader().list(&[a.target()]).await.unwrap();
    let target = a.in_list(&list);
    let mut raw = a.raw().await;
    raw.user_add("root", "right", None).await.unwrap();
    raw.role_add("root").await.unwrap();
    raw.user_grant_role("root", "root").await.unwrap();
    raw.auth_enable().await.unwrap();

    // AU-02: whoever is refused has been answered, so the member is neither silent nor dead.
    for credentials in [None, Some("no token of this cluster")] {
        let mut adapter = etcd();
        if let Some(token) = credentials {
            adapter = adapter.with_credentials(Arc::new(Fixed(token.into())));
        }
        let (reader, mut writer) = adapter.into_ports();
        let look = reader.look(&target).await;
        assert!(matches!(look, Look::Unknown { .. }) || look.serves(), "{credentials:?}: {look:?}");
        // The read index was reached before the refusal, which is all that this read asks.
        reader.linearizable_read(&target).await.unwrap();
        let failures = [
            reader.list(std::slice::from_ref(&target)).await.map(drop),
            writer.remove(std::slice::from_ref(&target), MemberId(0x1234)).await.map(drop),
        ];
        for failure in failures {
            assert!(matches!(failure, Err(EtcdFailure::Auth(_))), "{credentials:?}: {failure:?}");
        }
    }

    let wrong = raw.auth_client().authenticate("root".into(), "wrong".into()).await.unwrap_err();
    assert!(matches!(classify(&wrong), EtcdFailure::Auth(_)), "{wrong:?}");
    let token =
        raw.auth_client().authenticate("root".into(), "right".into()).await.unwrap().token().to_owned();
    let (reader, mut writer) = etcd().with_credentials(Arc::new(Fixed(token))).into_ports();
    assert!(reader.look(&target).await.serves());
    reader.list(std::slice::from_ref(&target)).await.unwrap();
    writer.add_learner(std::slice::from_ref(&target), &"http://127.0.0.1:1".into()).await.unwrap();
}

#[tokio::test]
async fn etcd_3_5_with_auth_takes_a_token_per_call_and_refuses_as_auth() {
    auth_switched_on(version("3.5")).await;
}

#[tokio::test]
async fn etcd_3_6_with_auth_takes_a_token_per_call_and_refuses_as_auth() {
    auth_switched_on(version("3.6")).await;
}

#[tokio::test]
async fn etcd_3_7_with_auth_takes_a_token_per_call_and_refuses_as_auth() {
    auth_switched_on(version("3.7")).await;
}
