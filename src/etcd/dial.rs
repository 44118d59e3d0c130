//! Owns how one member is dialled: URL, TLS, deadlines, keep-alive. Does I/O.

use std::{
    fmt, io,
    sync::{Arc, Mutex},
    time::Duration,
};

use etcd_operator_core::{etcd::EtcdFailure, time::timeouts};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity, Uri};

use crate::{classify, target::Target};

/// How long each step may take. [`Deadlines::default`] is what the operator runs with; tests shorten it.
#[derive(Debug, Clone, Copy)]
pub struct Deadlines {
    /// From the first SYN to an accepted connection. A Pod answers within its node's round trip,
    /// and a lost SYN is sent again after 1 s.
    pub connect: Duration,
    /// One read, over all its targets.
    pub read: Duration,
    /// One membership call, without the check that comes before it.
    pub membership: Duration,
    /// HTTP/2 pings on a silent connection, also when no call is under way, so that a dead one is
    /// found before a call needs it. etcd counts each ping on an idle connection but the first and
    /// closes the connection at the third counted one, so this is more than a quarter of
    /// [`Deadlines::idle`]. It also wants at least 5 s between pings.
    pub keep_alive: Duration,
    /// How long a ping may stay unanswered.
    pub keep_alive_timeout: Duration,
    /// An unused channel is dropped after this.
    pub idle: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(2),
            read: timeouts::ETCD_READ,
            membership: timeouts::MEMBERSHIP_CALL,
            keep_alive: Duration::from_secs(31),
            keep_alive_timeout: Duration::from_secs(5),
            idle: Duration::from_secs(120),
        }
    }
}

/// TLS towards a cluster's members. The name to be verified is each target's own.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsConfig {
    /// The CA bundle that signed the members' server certificates, PEM.
    pub ca: String,
    /// Our client certificate and key, PEM, where the members ask for one.
    pub identity: Option<(String, String)>,
}

impl fmt::Debug for TlsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsConfig")
            .field("client_certificate", &self.identity.is_some())
            .finish_non_exhaustive()
    }
}

/// Dials one member at a time. Never balances and never retries.
#[derive(Debug, Clone, Default)]
pub struct Dialer {
    deadlines: Deadlines,
    tls: Option<Arc<TlsConfig>>,
}

impl Dialer {
    /// A dialer: plain HTTP without `tls`.
    pub fn new(deadlines: Deadlines, tls: Option<TlsConfig>) -> Self {
        Self { deadlines, tls: tls.map(Arc::new) }
    }

    pub(crate) fn deadlines(&self) -> &Deadlines {
        &self.deadlines
    }

    pub(crate) fn tls(&self) -> Option<&Arc<TlsConfig>> {
        self.tls.as_ref()
    }

    /// A channel that connects with its first call, and again when the connection is lost.
    ///
    /// For reads only: whoever took over the address between two calls would answer the second.
    pub(crate) fn lazy(&self, target: &Target) -> Result<Channel, EtcdFailure> {
        Ok(self.endpoint(target)?.connect_lazy())
    }

    /// A channel over exactly one connection, made now. When it is lost, calls fail with "not
    /// connected" instead of reaching whoever answers at that address by then.
    pub(crate) async fn single(&self, target: &Target) -> Result<Channel, EtcdFailure> {
        let endpoint = self.endpoint(target)?;
        let unreachable = |why: &dyn fmt::Display| {
            EtcdFailure::Unreachable(format!("member {} at {}: {why}", target.member, target.address))
        };
        let stream = tokio::time::timeout(self.deadlines.connect, TcpStream::connect(target.address))
            .await
            .map_err(|_| unreachable(&"it did not accept the connection in time"))?
            .map_err(|e| unreachable(&e))?;
        stream.set_nodelay(true).map_err(|e| unreachable(&e))?;
        let once = Mutex::new(Some(TokioIo::new(stream)));
        let connector = tower::service_fn(move |_: Uri| {
            let stream = once.lock().map_or(None, |mut slot| slot.take());
            async move { stream.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected)) }
        });
        endpoint.connect_with_connector(connector).await.map_err(|e| classify::connect_error(&e, target))
    }

    fn endpoint(&self, target: &Target) -> Result<Endpoint, EtcdFailure> {
        let broken = |e: &(dyn std::error::Error + 'static)| {
            EtcdFailure::Tls(format!(
                "member {}: the connection cannot be set up, check the cluster's TLS Secrets: {}",
                target.member,
                classify::chain(e)
            ))
        };
        let d = &self.deadlines;
        // A socket address writes an IPv6 host in brackets, as a URL needs it.
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{}", target.address))
            .map_err(|e| broken(&e))?
            .connect_timeout(d.connect)
            .http2_keep_alive_interval(d.keep_alive)
            .keep_alive_timeout(d.keep_alive_timeout)
            .keep_alive_while_idle(true);
        if let Some(tls) = &self.tls {
            let mut config = ClientTlsConfig::new()
                .domain_name(&target.server_name)
                .ca_certificate(Certificate::from_pem(&tls.ca));
            if let Some((cert, key)) = &tls.identity {
                config = config.identity(Identity::from_pem(cert, key));
            }
            endpoint = endpoint.tls_config(config).map_err(|e| broken(&e))?;
        }
        Ok(endpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Expected;

    // DN-06
    #[test]
    fn an_ipv6_member_is_dialled_in_brackets() {
        let target = Target::new(
            "a".into(),
            "uid".into(),
            "fd00::7".parse().unwrap(),
            "a.c.ns.svc",
            Expected::default(),
        );
        let endpoint = Dialer::default().endpoint(&target).unwrap();
        assert_eq!(endpoint.uri().to_string(), "http://[fd00::7]:2379/");
    }

    #[test]
    fn an_idle_channel_is_dropped_before_etcd_counts_its_pings_as_abuse() {
        let d = Deadlines::default();
        assert!(d.keep_alive * 4 > d.idle, "the fourth ping on an idle connection makes etcd close it");
        assert!(d.keep_alive >= Duration::from_secs(5));
    }
}
