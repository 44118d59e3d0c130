//! Owns what the operator serves over HTTP: /healthz, /readyz and /metrics. Does I/O.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{Router, extract::State, http::StatusCode, response::IntoResponse, routing::get};
use prometheus_client::{encoding::text::encode, registry::Registry};

/// Whether the operator can do its work: its stores are filled, or another process holds the Lease
/// and this one stands by.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ready(Arc<AtomicBool>);

impl Ready {
    /// From now on it is.
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Serves /healthz and /readyz until the process ends.
///
/// # Errors
/// The address cannot be listened on.
pub(crate) async fn serve_health(address: SocketAddr, ready: Ready) -> std::io::Result<()> {
    let app = Router::new()
        // That this answers shows that the runtime runs. Whether etcd or the API server is well is no
        // reason to restart the operator: it would make an outage worse.
        .route("/healthz", get(|| async { "ok" }))
        .route(
            "/readyz",
            get(|State(Ready(ready)): State<Ready>| async move {
                if ready.load(Ordering::Acquire) {
                    (StatusCode::OK, "ok")
                } else {
                    (StatusCode::SERVICE_UNAVAILABLE, "the watch stores are not filled yet")
                }
            }),
        )
        .with_state(ready);
    axum::serve(tokio::net::TcpListener::bind(address).await?, app).await
}

/// Serves /metrics until the process ends.
///
/// # Errors
/// The address cannot be listened on.
pub(crate) async fn serve_metrics(address: SocketAddr, registry: Arc<Registry>) -> std::io::Result<()> {
    let app = Router::new().route("/metrics", get(metrics)).with_state(registry);
    axum::serve(tokio::net::TcpListener::bind(address).await?, app).await
}

async fn metrics(State(registry): State<Arc<Registry>>) -> impl IntoResponse {
    let mut text = String::new();
    match encode(&mut text, &registry) {
        Ok(()) => (
            StatusCode::OK,
            [("content-type", "application/openmetrics-text; version=1.0.0; charset=utf-8")],
            text,
        ),
        Err(error) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            [("content-type", "text/plain; charset=utf-8")],
            error.to_string(),
        ),
    }
}
