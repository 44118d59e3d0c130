//! Owns the implementation of both ports for one cluster: what its calls share. Does I/O.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use etcd_operator_core::{etcd::EtcdFailure, ids::MemberName, time::Time};
use tonic::transport::Channel;

use crate::{
    channels::Channels,
    classify,
    credentials::{Credentials, NoCredentials},
    dial::{Deadlines, Dialer},
    ports::{MemberReader, MembershipWriter},
    target::Target,
    wire::{Answerer, Wire},
};

/// Where the time of a [`etcd_operator_core::etcd::Look`] comes from.
pub type Clock = Arc<dyn Fn() -> Time + Send + Sync>;

/// etcd, as one cluster's actors see it. Cheap to make; the channels are the process's.
pub struct Etcd {
    channels: Arc<Channels>,
    dialer: Dialer,
    credentials: Arc<dyn Credentials>,
    clock: Clock,
}

impl Etcd {
    /// A cluster's etcd, without auth.
    pub fn new(channels: Arc<Channels>, dialer: Dialer, clock: Clock) -> Self {
        Self { channels, dialer, credentials: Arc::new(NoCredentials), clock }
    }

    /// The same with credentials.
    #[must_use]
    pub fn with_credentials(mut self, credentials: Arc<dyn Credentials>) -> Self {
        self.credentials = credentials;
        self
    }

    /// The two ports of one guard's life. The writer goes into the guard, the reader to anyone.
    pub fn into_ports(self) -> (MemberReader, MembershipWriter) {
        let other = Self {
            channels: self.channels.clone(),
            dialer: self.dialer.clone(),
            credentials: self.credentials.clone(),
            clock: self.clock.clone(),
        };
        (MemberReader::new(Arc::new(other)), MembershipWriter::new(self))
    }

    /// The reading port alone.
    pub fn into_reader(self) -> MemberReader {
        MemberReader::new(Arc::new(self))
    }

    pub(crate) fn channels(&self) -> &Channels {
        &self.channels
    }

    pub(crate) fn dialer(&self) -> &Dialer {
        &self.dialer
    }

    pub(crate) fn deadlines(&self) -> &Deadlines {
        self.dialer.deadlines()
    }

    pub(crate) fn now(&self) -> Time {
        (self.clock)()
    }

    /// One call with its token. A refused token is replaced once: etcd looks at it before it looks
    /// at the request, so nothing was done.
    pub(crate) async fn call<T, F>(
        &self,
        call: &Call<'_>,
        send: impl Fn(Wire) -> F + Send + Sync,
    ) -> Result<T, Failed>
    where
        F: Future<Output = Result<T, etcd_client::Error>> + Send,
    {
        let failed = |error| Failed::There { member: call.target.member.clone(), error };
        let mut token = self.credentials.token(None).await.map_err(Failed::Here)?;
        let mut fresh = false;
        loop {
            let wire = Wire::new(call.channel.clone(), token.as_ref(), call.limit)
                .map_err(|e| Failed::Here(EtcdFailure::Auth(e.message().to_owned())))?;
            match send(wire).await {
                Err(etcd_client::Error::GRpcStatus(status))
                    if !fresh && token.is_some() && classify::token_refused(&status) =>
                {
                    token = self.credentials.token(token.as_ref()).await.map_err(Failed::Here)?;
                    fresh = true;
                }
                result => return result.map_err(failed),
            }
        }
    }
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd").field("dialer", &self.dialer).finish_non_exhaustive()
    }
}

/// One call to be made.
pub(crate) struct Call<'a> {
    pub(crate) channel: Channel,
    pub(crate) target: &'a Target,
    /// Told to the server.
    pub(crate) limit: Duration,
}

/// How one call failed, before it is reduced to what it means for the cluster.
#[derive(Debug)]
pub(crate) enum Failed {
    /// Before anything was sent.
    Here(EtcdFailure),
    /// By its answer, or by the connection.
    There { member: MemberName, error: etcd_client::Error },
    /// By our own deadline.
    Expired { member: MemberName, after: Duration },
}

impl Failed {
    pub(crate) fn into_failure(self) -> EtcdFailure {
        match self {
            Failed::Here(failure) => failure,
            Failed::There { member, error } => named(&member, classify::classify(&error)),
            Failed::Expired { member, after } => {
                EtcdFailure::Ambiguous(format!("member {member} did not answer within {after:?}"))
            }
        }
    }

    /// Whether the member was silent, rather than that it answered or that we could not ask.
    pub(crate) fn is_silence(&self) -> bool {
        match self {
            Failed::Expired { .. } => true,
            Failed::There { error: etcd_client::Error::GRpcStatus(status), .. } => {
                classify::is_silence(status)
            }
            Failed::There { .. } | Failed::Here(_) => false,
        }
    }

    /// Whether etcd itself answered with an error.
    pub(crate) fn is_answer(&self) -> bool {
        match self {
            Failed::There { error: etcd_client::Error::GRpcStatus(status), .. } => {
                classify::is_answer(status)
            }
            Failed::There { .. } | Failed::Here(_) | Failed::Expired { .. } => false,
        }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failed::Here(failure) => failure.fmt(f),
            Failed::There { member, error } => write!(f, "member {member}: {}", classify::classify(error)),
            Failed::Expired { member, after } => write!(f, "member {member} did not answer within {after:?}"),
        }
    }
}

/// The failure with the member's name in its text, where it has a text.
fn named(member: &MemberName, failure: EtcdFailure) -> EtcdFailure {
    let with = |text: String| format!("member {member}: {text}");
    match failure {
        EtcdFailure::Ambiguous(text) => EtcdFailure::Ambiguous(with(text)),
        EtcdFailure::Unreachable(text) => EtcdFailure::Unreachable(with(text)),
        EtcdFailure::Auth(text) => EtcdFailure::Auth(with(text)),
        EtcdFailure::Tls(text) => EtcdFailure::Tls(with(text)),
        other @ (EtcdFailure::Refused(_) | EtcdFailure::WrongPeer(_)) => other,
    }
}

/// Refuses another cluster or another member than was recorded. For an effect (`strict`) both
/// must be recorded; a read compares what is.
pub(crate) fn verify(target: &Target, who: Answerer, strict: bool) -> Result<(), EtcdFailure> {
    let Target { member, address, expected, .. } = target;
    let wrong = |text: String| Err(EtcdFailure::WrongPeer(text));
    match expected.cluster_id {
        Some(id) if id != who.cluster_id => {
            return wrong(format!(
                "member {member} at {address} answers for cluster {}, recorded is {id}; nothing was done there",
                who.cluster_id
            ));
        }
        None if strict => {
            return wrong(format!(
                "no cluster ID is recorded for member {member}, so nothing may be changed through it"
            ));
        }
        _ => {}
    }
    match expected.member_id {
        Some(id) if id != who.member_id => wrong(format!(
            "member {member} at {address} answers as member {}, recorded is {id}; nothing was done there",
            who.member_id
        )),
        None if strict => wrong(format!(
            "no member ID is recorded for member {member}, so nothing may be changed through it"
        )),
        _ => Ok(()),
    }
}
