//! Owns how the API server is reached: configuration, time limits, and no retries of kube's own.
//! Does I/O: reads the kubeconfig or the service account, opens connections.

use std::{future::Future, path::Path, time::Duration};

use etcd_operator_core::time::timeouts;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

use crate::failure::{ApiFailure, Call};

/// Time to connect, TLS included. Half of [`timeouts::API_CALL`], so that a call may fail for a
/// dead address and the reason is still known.
const CONNECT: Duration = Duration::from_secs(5);

/// No client could be made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig file cannot be read or does not fit together.
    #[error("kubeconfig {path}: {source}")]
    Kubeconfig {
        /// The file.
        path: String,
        /// What is wrong with it.
        source: kube::config::KubeconfigError,
    },
    /// There is neither a kubeconfig nor a service account.
    #[error(
        "no way to reach an API server: neither --kubeconfig, KUBECONFIG nor ~/.kube/config leads to a \
         usable file, and this is not a Pod with a service account ({0})"
    )]
    Nowhere(#[from] kube::config::InferConfigError),
    /// The configuration was found and no client can be made of it.
    #[error("the API server's configuration is not usable: {0}")]
    Client(#[from] kube::Error),
}

/// The configuration: that file if one is given, else KUBECONFIG or `~/.kube/config`, else the
/// service account.
///
/// kube's retries are off: they repeat writes that may have landed, for up to minutes, behind the
/// back of the gate that checked ownership once. There is no read timeout, because it would cut
/// quiet watches; every other call is made through [`deadline`].
///
/// # Errors
/// When there is no usable configuration; the text says where it was looked for.
pub async fn config(kubeconfig: Option<&Path>) -> Result<Config, ConnectError> {
    let mut config = match kubeconfig {
        Some(path) => {
            let context = |source| ConnectError::Kubeconfig { path: path.display().to_string(), source };
            let file = Kubeconfig::read_from(path).map_err(context)?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(context)?
        }
        None => Config::infer().await?,
    };
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT);
    config.write_timeout = Some(timeouts::API_CALL);
    config.read_timeout = None;
    Ok(config)
}

/// A client with a connection pool of its own. The Lease gets its own, so that its renewal never
/// waits behind a flood of other requests.
///
/// # Errors
/// When the TLS material in the configuration is not usable.
pub fn client(config: &Config) -> Result<Client, ConnectError> {
    Ok(Client::try_from(config.clone())?)
}

/// Makes one call with a limit on its whole duration.
///
/// # Errors
/// What went wrong, seen as a call of kind `call`. Running out of time leaves doubt about a write.
pub async fn deadline<T>(
    call: Call,
    limit: Duration,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, ApiFailure> {
    match tokio::time::timeout(limit, request).await {
        Ok(answer) => answer.map_err(|error| ApiFailure::classify(&error, call)),
        Err(_) => Err(ApiFailure::unanswered(call, format!("no answer within {limit:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // CL-02
    #[tokio::test(start_paused = true)]
    async fn a_call_without_an_answer_ends_at_its_deadline_and_leaves_doubt_about_a_write() {
        let silent = || std::future::pending::<Result<(), kube::Error>>();
        let write = deadline(Call::Write, timeouts::API_CALL, silent()).await;
        assert!(matches!(write, Err(ApiFailure::Ambiguous(_))), "{write:?}");
        let read = deadline(Call::Read, timeouts::API_CALL, silent()).await;
        assert!(matches!(read, Err(ApiFailure::Unreachable(_))), "{read:?}");
    }
}
