//! Owns how a call proves who we are. Does no I/O: an implementation may.

use std::fmt;

use etcd_operator_core::etcd::EtcdFailure;
use futures::future::BoxFuture;

/// An etcd auth token. It is a secret: neither `Debug` nor any error shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// A token as etcd's Authenticate returned it.
    pub fn new(token: impl Into<String>) -> Self {
        Self(token.into())
    }

    pub(crate) fn secret(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Where the token of each call comes from.
///
/// The token belongs to the cluster, not to a connection: it is asked for at each call and sent
/// with that call. Nothing is sent at connect, because a learner refuses Authenticate.
pub trait Credentials: Send + Sync {
    /// The token for the next call; none when the cluster runs without auth.
    ///
    /// `refused` is the token that etcd has just refused: an implementation that still holds that
    /// one fetches another, one that already holds a newer returns it.
    ///
    /// # Errors
    /// When no token can be had; the call is then not sent.
    fn token<'a>(&'a self, refused: Option<&'a Token>) -> BoxFuture<'a, Result<Option<Token>, EtcdFailure>>;
}

/// For a cluster without auth.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoCredentials;

impl Credentials for NoCredentials {
    fn token<'a>(&'a self, _: Option<&'a Token>) -> BoxFuture<'a, Result<Option<Token>, EtcdFailure>> {
        Box::pin(async { Ok(None) })
    }
}
