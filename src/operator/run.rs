//! The composition root: puts the layers together, holds the Lease, and ends in order. Does I/O.

use std::{sync::Arc, time::Duration};

use etcd_operator_actors::{
    Clock, Context, EtcdPorts, Kubernetes, LaunchError, Metrics, News, Replacements, Running,
};
use etcd_operator_api::names;
use etcd_operator_etcd::{Channels, Dialer, Etcd, MemberReader, MembershipWriter};
use etcd_operator_kubernetes::{
    client,
    events::Events,
    failure::ApiFailure,
    gate::Writer,
    lease::{self, LeaseLoop, LeaseSettings, Ownership},
    objects::PodSettings,
    reads::Reader,
    shards,
    stores::{Kind, Stores},
    tasks,
};
use prometheus_client::registry::Registry;
use tokio::{
    signal::unix::{SignalKind, signal},
    task::JoinSet,
};

use super::{
    args::{Args, bind_address},
    domain,
    http::{self, Ready},
};

/// How the operator ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It was asked to end, and handed the Lease back.
    Asked,
    /// It lost the Lease. The process must end: whatever it knows is no longer the truth.
    LeaseLost,
}

/// Why the operator could not go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// No client for the API server.
    #[error(transparent)]
    Connect(#[from] client::ConnectError),
    /// A bad address.
    #[error("{0}")]
    Address(String),
    /// An address cannot be listened on.
    #[error("cannot serve on {address}: {source}")]
    Serve {
        /// The address.
        address: String,
        /// Why.
        source: std::io::Error,
    },
    /// The actors did not start, which is a bug.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// A part that lives as long as the process ended, which is a bug.
    #[error("{0} ended by itself")]
    Ended(String),
    /// A signal handler cannot be installed.
    #[error("signals cannot be received: {0}")]
    Signal(std::io::Error),
}

/// etcd for all clusters of the process: one table of channels.
struct ProcessEtcd {
    channels: Arc<Channels>,
    clock: Clock,
}

impl ProcessEtcd {
    fn etcd(&self) -> Etcd {
        Etcd::new(self.channels.clone(), Dialer::default(), self.clock.as_fn())
    }
}

impl EtcdPorts for ProcessEtcd {
    fn ports(&self) -> (MemberReader, MembershipWriter) {
        self.etcd().into_ports()
    }
    fn reader(&self) -> MemberReader {
        self.etcd().into_reader()
    }
}

/// Runs the operator until it is asked to end or loses the Lease.
///
/// # Errors
/// What keeps it from starting, or a bug in its root.
pub(crate) async fn run(args: Args) -> Result<End, RunError> {
    let Args {
        metrics_bind_address,
        health_probe_bind_address,
        leader_elect,
        leader_elect_namespace,
        cluster_domain,
        operator_image: _, // For the Jobs of snapshots, which this build refuses.
        etcd_image_repository,
        max_concurrent_replacements,
        replace_lost_node_after,
        watch_namespace,
        kubeconfig,
        log: _,
        log_text: _,
    } = args;
    let resolv_conf = std::fs::read_to_string("/etc/resolv.conf").ok();
    let (domain, from) = domain::choose(cluster_domain.as_deref(), resolv_conf.as_deref());
    tracing::info!(domain, from, "the cluster's DNS domain");

    let config = client::config(kubeconfig.as_deref()).await?;
    let lease_namespace = leader_elect_namespace.unwrap_or_else(|| config.default_namespace.clone());
    let api = client::client(&config)?;
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let ready = Ready::default();
    let mut servers = serve(&health_probe_bind_address, &metrics_bind_address, &ready, registry)?;
    let mut ask_to_end = AskedToEnd::new()?;

    let lease = leader_elect.then(|| {
        let settings = LeaseSettings {
            namespace: lease_namespace,
            name: shards::lease_name(0),
            identity: lease::identity(),
        };
        // A pool of its own: renewals must not queue behind other calls.
        client::client(&config).map(|client| LeaseLoop::start(client, settings))
    });
    let lease = lease.transpose()?;
    // Standing by is being ready: a Deployment's second replica waits here for as long as it takes.
    ready.set();
    let ownership = tokio::select! {
        ownership = owned(lease.as_ref()) => ownership,
        () = ask_to_end.asked() => return Ok(End::Asked),
        Some(failed) = servers.join_next() => return Err(served(failed)),
    };

    let namespaces: Vec<String> = watch_namespace.into_iter().filter(|n| !n.is_empty()).collect();
    let instance = std::env::var("POD_NAME").unwrap_or_else(|_| "etcd-operator".to_owned());
    let events = Events::start(api.clone(), instance);
    let stores = Stores::start_telling(api.clone(), &namespaces, Some(events.clone()));
    let writer = Writer::new(api.clone(), ownership.clone());
    let settings = PodSettings { image_repository: etcd_image_repository };
    let kubernetes = Kubernetes::new(stores.clone(), Reader::new(api), writer.clone(), events, settings);
    let clock = Clock::system();
    let context = Arc::new(Context {
        sight: Arc::new(kubernetes.clone()),
        hands: Arc::new(kubernetes),
        etcd: Arc::new(ProcessEtcd { channels: Arc::new(Channels::new()), clock: clock.clone() }),
        clock,
        metrics,
        owns_for: {
            let ownership = ownership.clone();
            Arc::new(move |needed| ownership.valid_for(needed))
        },
        replacements: Replacements::new(max_concurrent_replacements),
        lost_node_after: (!replace_lost_node_after.is_zero()).then_some(replace_lost_node_after),
        names: Arc::new(|cluster| format!("{cluster}-{}", names::suffix(rand::random())).into()),
    });
    tokio::select! {
        // Before every store is filled, "not there" means nothing.
        () = stores.ready() => {}
        () = ownership.lost() => return Ok(End::LeaseLost),
        () = ask_to_end.asked() => return end(None, lease).await,
        Some(failed) = servers.join_next() => return Err(served(failed)),
    }
    tracing::info!("the stores are filled; the work begins");
    let mut running = Running::launch(context, Arc::new(|_| true)).await?;
    tokio::spawn(feed(stores, running.news(), writer));
    tokio::select! {
        () = ownership.lost() => {
            // No time for an orderly end: somebody else may own the clusters in a moment.
            running.kill();
            Ok(End::LeaseLost)
        }
        () = ask_to_end.asked() => end(Some(running), lease).await,
        Some(failed) = servers.join_next() => Err(served(failed)),
        () = running.ended() => Err(RunError::Ended("the root actor".into())),
    }
}

/// How often every cluster is looked at though no watch has told anything, so that a watch that has
/// stalled in silence costs time and not truth (CL-07).
const FULL_CHECK: Duration = Duration::from_secs(300);

/// Passes the watches' news on, for as long as the process lives.
async fn feed(stores: Stores, news: News, writer: Writer) {
    let mut checked = tokio::time::Instant::now();
    loop {
        let Ok(news_of) = tokio::time::timeout_at(checked + FULL_CHECK, stores.feed().next()).await else {
            checked = tokio::time::Instant::now();
            for (namespace, cluster) in stores.cluster_names() {
                news.touched(&namespace, &cluster);
            }
            continue;
        };
        for touched in news_of {
            match touched.kind {
                Kind::Snapshot => {
                    if let Some(object) = stores.snapshot(&touched.namespace, &touched.name) {
                        tokio::spawn(refuse(writer.clone(), object));
                    }
                }
                Kind::Defrag => {
                    if let Some(object) = stores.defrag(&touched.namespace, &touched.name) {
                        tokio::spawn(refuse(writer.clone(), object));
                    }
                }
                Kind::Cluster | Kind::Member | Kind::Pod | Kind::Pvc | Kind::Service | Kind::Budget => {
                    if let Some(cluster) = &touched.cluster {
                        news.touched(&touched.namespace, cluster);
                    }
                }
            }
        }
    }
}

/// Says on the object that its kind is not acted on. A conflict means that it changed, so that news
/// of it come again by themselves; other failures are tried again, less and less often.
async fn refuse<K: tasks::Task>(writer: Writer, object: Arc<K>) {
    let mut pause = Duration::from_secs(1);
    loop {
        match tasks::refuse(&writer, &*object, k8s_openapi::jiff::Timestamp::now()).await {
            Ok(_) | Err(ApiFailure::Conflict(_) | ApiFailure::NotFound | ApiFailure::NotOwner) => return,
            Err(failure) => tracing::warn!(%failure, "a condition could not be written"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(300));
    }
}

async fn owned(lease: Option<&LeaseLoop>) -> Ownership {
    match lease {
        Some(lease) => lease.acquired().await,
        None => {
            tracing::warn!(
                "--leader-elect=false: nothing keeps a second operator from acting at the same time"
            );
            Ownership::without_lease()
        }
    }
}

/// Ends in order: the actors first, guards last in their turn, then the Lease, so that nothing of
/// this process runs beside its successor.
async fn end(running: Option<Running>, lease: Option<LeaseLoop>) -> Result<End, RunError> {
    if let Some(running) = running
        && !running.stop(Duration::from_secs(25)).await
    {
        tracing::warn!("the actors did not end in time; the Lease is left to expire");
        return Ok(End::Asked);
    }
    if let Some(lease) = lease
        && let Err(failure) = lease.release().await
    {
        tracing::warn!(%failure, "the Lease could not be given back; it expires by itself");
    }
    Ok(End::Asked)
}

type Servers = JoinSet<Result<(), RunError>>;

fn serve(health: &str, metrics: &str, ready: &Ready, registry: Registry) -> Result<Servers, RunError> {
    let mut servers = JoinSet::new();
    if let Some(address) = bind_address(health).map_err(RunError::Address)? {
        let server = http::serve_health(address, ready.clone());
        servers.spawn(async move {
            server.await.map_err(|source| RunError::Serve { address: address.to_string(), source })
        });
    }
    if let Some(address) = bind_address(metrics).map_err(RunError::Address)? {
        let server = http::serve_metrics(address, Arc::new(registry));
        servers.spawn(async move {
            server.await.map_err(|source| RunError::Serve { address: address.to_string(), source })
        });
    }
    Ok(servers)
}

fn served(ended: Result<Result<(), RunError>, tokio::task::JoinError>) -> RunError {
    match ended {
        Ok(Err(error)) => error,
        Ok(Ok(())) => RunError::Ended("an HTTP server".into()),
        Err(error) => RunError::Ended(format!("an HTTP server ({error})")),
    }
}

/// SIGTERM or SIGINT.
struct AskedToEnd {
    term: tokio::signal::unix::Signal,
    int: tokio::signal::unix::Signal,
}

impl AskedToEnd {
    fn new() -> Result<Self, RunError> {
        let handler = |kind| signal(kind).map_err(RunError::Signal);
        Ok(Self { term: handler(SignalKind::terminate())?, int: handler(SignalKind::interrupt())? })
    }

    async fn asked(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
        }
        tracing::info!("asked to end");
    }
}
