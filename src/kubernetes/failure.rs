//! Owns how a call to the API server failed, by what may have happened. Does no I/O.

use std::{error::Error as _, time::Duration};

use kube::core::Status;

/// Whether a call could have changed something. Doubt matters for writes only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// GET or LIST.
    Read,
    /// POST, PUT, PATCH or DELETE.
    Write,
}

/// How a call to the API server failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApiFailure {
    /// There is no such object now.
    #[error("the object does not exist")]
    NotFound,
    /// A create met an object of that name.
    #[error("an object of that name exists already")]
    AlreadyExists,
    /// A resourceVersion or UID precondition did not hold: read again and decide again.
    #[error("the object changed since it was read: {0}")]
    Conflict(String),
    /// The API server will never accept this request as it is.
    #[error("the API server refuses the request as invalid: {0}")]
    Invalid(String),
    /// The operator lacks a right, or its credentials were refused.
    #[error("the API server forbids it: {0}; check the operator's role and service account")]
    Forbidden(String),
    /// The version or page that was asked for is gone: read from the beginning.
    #[error("what was asked for has expired, a new read is needed")]
    Expired,
    /// The API server asks for patience. The request was not carried out.
    #[error("the API server is busy and asks to be called later")]
    Throttled {
        /// How long it asked to wait, if it said so.
        retry_after: Option<Duration>,
    },
    /// A write that may have been carried out, or may be yet: look before doing anything else.
    #[error("the answer leaves open whether the write was carried out: {0}")]
    Ambiguous(String),
    /// No connection, so nothing was sent; or a read without an answer.
    #[error("the API server did not answer: {0}")]
    Unreachable(String),
    /// The gate did not let the call through: the shard's ownership ends too soon. Nothing was sent.
    #[error("this process does not own the cluster's shard for long enough to make the call")]
    NotOwner,
    /// A failure on our side, or an answer that fits nothing above. Not carried out.
    #[error("{0}")]
    Other(String),
}

impl ApiFailure {
    /// What kube's error says about the world. A write that was answered by 5xx, by something
    /// unreadable or not at all may have been carried out.
    pub fn classify(error: &kube::Error, call: Call) -> Self {
        match error {
            kube::Error::Api(status) => Self::from_status(status, call),
            // The request was never made.
            kube::Error::BuildRequest(_) | kube::Error::Auth(_) => Self::Other(chain(error)),
            _ if never_connected(error) => Self::Unreachable(chain(error)),
            _ => Self::unanswered(call, chain(error)),
        }
    }

    fn from_status(status: &Status, call: Call) -> Self {
        let message = || status.message.clone();
        match (status.code, status.reason.as_str()) {
            (_, "AlreadyExists") => Self::AlreadyExists,
            (_, "Expired" | "Gone") | (410, _) => Self::Expired,
            (404, _) | (_, "NotFound") => Self::NotFound,
            (409, _) | (_, "Conflict") => Self::Conflict(message()),
            (400 | 413 | 415 | 422, _) => Self::Invalid(message()),
            (401 | 403, _) => Self::Forbidden(message()),
            (429, _) => {
                let seconds = status.details.as_ref().map_or(0, |d| d.retry_after_seconds);
                Self::Throttled {
                    retry_after: (seconds > 0).then(|| Duration::from_secs(u64::from(seconds))),
                }
            }
            (500.., _) => Self::unanswered(call, format!("HTTP {}: {}", status.code, status.message)),
            // kube makes up a Status without a code only for bodies that it cannot read.
            (0, _) => Self::unanswered(call, message()),
            _ => Self::Other(message()),
        }
    }

    /// The failure of a call that got no answer, or none that can be read.
    pub fn unanswered(call: Call, why: String) -> Self {
        match call {
            Call::Read => Self::Unreachable(why),
            Call::Write => Self::Ambiguous(why),
        }
    }

    /// A text that is the same at each occurrence, for conditions and metrics. Addresses, ports and
    /// request IDs stay in the log.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::NotFound => "not found",
            Self::AlreadyExists => "already exists",
            Self::Conflict(_) => "conflict",
            Self::Invalid(_) => "invalid",
            Self::Forbidden(_) => "forbidden",
            Self::Expired => "expired",
            Self::Throttled { .. } => "throttled",
            Self::Ambiguous(_) => "no clear answer",
            Self::Unreachable(_) => "unreachable",
            Self::NotOwner => "not owner",
            Self::Other(_) => "other",
        }
    }
}

/// Whether the HTTP client failed while it was still connecting, so that no byte of the request left.
fn never_connected(error: &kube::Error) -> bool {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(client) = cause.downcast_ref::<hyper_util::client::legacy::Error>() {
            return client.is_connect();
        }
        source = cause.source();
    }
    false
}

/// The error with its causes: kube's own text often ends before the reason.
fn chain(error: &kube::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api(code: u16, reason: &str) -> kube::Error {
        kube::Error::Api(Status::failure("why", reason).with_code(code).boxed())
    }

    fn write(code: u16, reason: &str) -> ApiFailure {
        ApiFailure::classify(&api(code, reason), Call::Write)
    }

    #[test]
    fn a_write_answered_by_5xx_may_have_landed_and_a_read_has_not() {
        for (code, reason) in [
            (500, "InternalError"),
            (500, "ServerTimeout"),
            (503, "ServiceUnavailable"),
            (504, "Timeout"),
            (0, ""),
        ] {
            assert!(matches!(write(code, reason), ApiFailure::Ambiguous(_)), "{code} {reason}");
            let read = ApiFailure::classify(&api(code, reason), Call::Read);
            assert!(matches!(read, ApiFailure::Unreachable(_)), "{code} {reason}");
        }
    }

    #[test]
    fn refusals_are_told_apart() {
        assert_eq!(write(404, "NotFound"), ApiFailure::NotFound);
        assert_eq!(write(409, "AlreadyExists"), ApiFailure::AlreadyExists);
        assert_eq!(write(409, "Conflict"), ApiFailure::Conflict("why".into()));
        assert_eq!(write(422, "Invalid"), ApiFailure::Invalid("why".into()));
        assert_eq!(write(400, "BadRequest"), ApiFailure::Invalid("why".into()));
        assert_eq!(write(403, "Forbidden"), ApiFailure::Forbidden("why".into()));
        assert_eq!(write(401, "Unauthorized"), ApiFailure::Forbidden("why".into()));
        assert_eq!(write(410, "Expired"), ApiFailure::Expired);
        assert_eq!(write(429, "TooManyRequests"), ApiFailure::Throttled { retry_after: None });
    }

    #[test]
    fn a_refused_connection_means_that_nothing_was_sent() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let error = runtime.block_on(async {
            // A port that was just freed, so nobody listens there.
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            drop(listener);
            let config = kube::Config::new(format!("http://{address}").parse().unwrap());
            let client = kube::Client::try_from(config).unwrap();
            client.apiserver_version().await.unwrap_err()
        });
        assert!(matches!(ApiFailure::classify(&error, Call::Write), ApiFailure::Unreachable(_)), "{error:?}");
    }

    #[test]
    fn a_connection_that_breaks_after_the_request_leaves_doubt() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let error = runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            tokio::spawn(async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut bytes = [0; 16];
                let _ = tokio::io::AsyncReadExt::read(&mut stream, &mut bytes).await;
            });
            let config = kube::Config::new(format!("http://{address}").parse().unwrap());
            let client = kube::Client::try_from(config).unwrap();
            client.apiserver_version().await.unwrap_err()
        });
        assert!(matches!(ApiFailure::classify(&error, Call::Write), ApiFailure::Ambiguous(_)), "{error:?}");
    }
}
