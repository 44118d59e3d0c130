//! Owns the reading of etcd's errors: what may have happened to the cluster. Does no I/O.
//!
//! Text and code are the only contract over the wire, and the code alone cannot tell a refusal
//! from doubt: etcd answers Unavailable for "unhealthy cluster" (refused, nothing done) and for
//! "request timed out" (may be done yet). So the text decides first, the code second, and an
//! unknown text is doubt.

use std::{error::Error, io};

use etcd_operator_core::etcd::{EtcdFailure, Refusal};
use tonic::{Code, ConnectError, Status};

use crate::target::Target;

/// What one of etcd's texts means.
enum Meaning {
    /// Not done, and never will be.
    No(Refusal),
    /// Not done; our credentials were the reason.
    Auth,
    /// May be done, or be done yet.
    Doubt,
}
use Meaning::{Auth, Doubt, No};

/// Every text that 3.5, 3.6 and 3.7 can answer to the calls we make, without its `etcdserver: ` in
/// front. The texts are the same in all three; what differs is the code:
///
/// - "rpc not supported for learner", "not capable" and "cluster version not found during
///   downgrade" are Unavailable in 3.5 and FailedPrecondition since 3.6;
/// - "request canceled" is spelt "cancelled" and comes as Unknown before 3.7 where etcd's own
///   forwarding to the leader was cancelled.
///
/// "request timed out, leader transfer took too long" comes as Unknown in all.
fn meaning(text: &str) -> Option<Meaning> {
    Some(match text {
        "unhealthy cluster" => No(Refusal::UnhealthyCluster),
        "re-configuration failed due to not enough started members" => No(Refusal::NotEnoughStarted),
        "can only promote a learner member which is in sync with leader" => No(Refusal::LearnerNotReady),
        "can only promote a learner member" => No(Refusal::NotLearner),
        "too many learner members in cluster" => No(Refusal::TooManyLearners),
        "Peer URLs already exists" => No(Refusal::PeerUrlExists),
        "member ID already exist" => No(Refusal::MemberIdExists),
        "member not found" => No(Refusal::MemberNotFound),
        "rpc not supported for learner" => No(Refusal::LearnerAsked),
        "bad leader transferee" => No(Refusal::BadLeaderTransferee),
        "not leader" => No(Refusal::NotLeader),
        "mvcc: database space exceeded" | "no space" => No(Refusal::NoSpace),
        "corrupt cluster" => No(Refusal::Corrupt),

        "not capable"
        | "given member URLs are invalid"
        | "cluster ID mismatch"
        | "too many requests"
        | "request is too large"
        | "cluster has a downgrade job in progress"
        | "cluster version not found during downgrade"
        | "invalid client api version"
        | "key is not provided"
        | "mvcc: required revision has been compacted"
        | "mvcc: required revision is a future revision" => No(Refusal::Other(text.to_owned())),

        "invalid auth token"
        | "revision of auth store is old"
        | "user name is empty"
        | "authentication failed, invalid user ID or password"
        | "permission denied"
        | "authentication is not enabled" => Auth,

        "no leader"
        | "leader changed"
        | "server stopped"
        | "request canceled"
        | "request cancelled"
        | "context deadline exceeded" => Doubt,
        _ if text.starts_with("request timed out") => Doubt,
        _ => return None,
    })
}

/// What an error of etcd-client means for the cluster.
pub fn classify(error: &etcd_client::Error) -> EtcdFailure {
    match error {
        etcd_client::Error::GRpcStatus(status) => classify_status(status),
        etcd_client::Error::TransportError(e) => {
            transport(e).unwrap_or_else(|| EtcdFailure::Ambiguous(chain(e)))
        }
        // The crate found fault with what it was given, before it sent anything.
        etcd_client::Error::InvalidArgs(text) => EtcdFailure::Unreachable(text.clone()),
        other => EtcdFailure::Ambiguous(other.to_string()),
    }
}

/// What a gRPC status means for the cluster.
pub fn classify_status(status: &Status) -> EtcdFailure {
    let message = status.message();
    let text = message.strip_prefix("etcdserver: ").unwrap_or(message);
    match meaning(text) {
        Some(No(refusal)) => return EtcdFailure::Refused(refusal),
        Some(Auth) => return EtcdFailure::Auth(text.to_owned()),
        Some(Doubt) => return EtcdFailure::Ambiguous(text.to_owned()),
        None => {}
    }
    if let Some(failure) = transport(status) {
        return failure;
    }
    match status.code() {
        // The server does not know the method, so it cannot have carried it out.
        Code::Unimplemented => EtcdFailure::Refused(Refusal::Other(message.to_owned())),
        code => EtcdFailure::Ambiguous(format!("{code:?}: {}", chain(status))),
    }
}

/// Whether a new token may help. The call was refused before it was looked at.
pub(crate) fn token_refused(status: &Status) -> bool {
    matches!(
        status.message().strip_prefix("etcdserver: "),
        Some("invalid auth token" | "revision of auth store is old")
    )
}

/// Why a connection could not be made.
pub(crate) fn connect_error(error: &tonic::transport::Error, target: &Target) -> EtcdFailure {
    let text = format!("member {} at {}: {}", target.member, target.address, chain(error));
    if sources(error).any(is_tls) { EtcdFailure::Tls(text) } else { EtcdFailure::Unreachable(text) }
}

/// Whether the failure is the silence of a process that is not there: no connection, or no answer
/// in time. TLS trouble is none, and neither is a connection that broke: it may have met a server
/// that speaks TLS where we did not. If the process is gone, the next look finds no connection.
pub(crate) fn is_silence(status: &Status) -> bool {
    !sources(status).any(is_tls)
        && sources(status).any(|e| e.is::<ConnectError>() || e.is::<tonic::TimeoutExpired>())
}

/// Whether etcd itself answered, if only with an error, so that the connection is good.
pub(crate) fn is_answer(status: &Status) -> bool {
    status.message().starts_with("etcdserver: ")
}

/// The failures that prove that the request was never carried out because no connection stood.
fn transport(error: &(dyn Error + 'static)) -> Option<EtcdFailure> {
    let connecting = sources(error).any(|e| e.is::<ConnectError>());
    // After the connection was made, TLS proves nothing but by the alerts below.
    if sources(error).any(if connecting { is_tls } else { is_handshake_alert }) {
        return Some(EtcdFailure::Tls(chain(error)));
    }
    connecting.then(|| EtcdFailure::Unreachable(chain(error)))
}

fn is_tls(error: &(dyn Error + 'static)) -> bool {
    error.is::<rustls::Error>() || is_handshake_alert(error)
}

/// With TLS 1.3 a client learns only after its first bytes that the server did not accept its
/// certificate. A server sends these alerts during the handshake alone, before it reads a request.
/// The h2 crate keeps nothing of such an error but its text.
fn is_handshake_alert(error: &(dyn Error + 'static)) -> bool {
    use rustls::AlertDescription as A;
    let text = error.to_string();
    [
        A::CertificateRequired,
        A::BadCertificate,
        A::UnsupportedCertificate,
        A::CertificateRevoked,
        A::CertificateExpired,
        A::CertificateUnknown,
        A::UnknownCA,
        A::AccessDenied,
        A::HandshakeFailure,
    ]
    .into_iter()
    .any(|alert| text.ends_with(&rustls::Error::AlertReceived(alert).to_string()))
}

/// The error and all its sources. An `io::Error` names the source of what it holds as its own, and
/// so hides what it holds: that is put back in.
fn sources<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&e| {
        match e.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(held) => Some(held as &(dyn Error + 'static)),
            None => e.source(),
        }
    })
}

/// The error's text with those of its sources, each once.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut parts: Vec<String> = Vec::new();
    for e in sources(error) {
        let text = match e.downcast_ref::<Status>() {
            Some(status) => status.message().to_owned(),
            None => e.to_string(),
        };
        if !text.is_empty() && !parts.iter().any(|p| p.contains(&text)) {
            parts.push(text);
        }
    }
    parts.join(": ")
}

#[cfg(test)]
#[path = "classify_tests.rs"]
mod tests;
