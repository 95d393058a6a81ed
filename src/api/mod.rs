//! What the daemon serves over HTTP: whether it lives, whether it is ready, its metrics; and [`ingest`], at an address of
//! its own.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::get;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;

pub mod ingest;
mod readiness;
pub mod server;

pub use readiness::Readiness;

const BOUNDS: server::Bounds = server::Bounds {
    connections_max: 256,
    head_timeout: Duration::from_secs(5),
    head_bytes_max: 64 << 10,
    headers_max: 100,
    life: Duration::from_secs(60),
    last_request: Duration::from_secs(5),
};

/// What the routes answer from.
#[derive(Clone)]
pub struct Api {
    pub metrics: PrometheusHandle,
    pub readiness: Arc<Readiness>,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}")]
pub struct ListenError {
    address: SocketAddr,
    #[source]
    source: std::io::Error,
}

pub async fn listen(address: SocketAddr) -> Result<TcpListener, ListenError> {
    TcpListener::bind(address).await.map_err(|source| ListenError { address, source })
}

/// Serves until `end` is over.
pub async fn serve(listener: TcpListener, api: Api, end: impl Future<Output = ()>) {
    server::serve(listener, routes(api), BOUNDS, end).await;
}

fn routes(api: Api) -> Router {
    let Api { metrics, readiness } = api;
    Router::new()
        .route("/livez", get(|| async { "alive\n" }))
        .route("/readyz", get(move || async move { ready(&readiness) }))
        .route("/metrics", get(move || async move { scrape(&metrics) }))
}

/// 200, or 503 with a line for each part that is not ready.
fn ready(readiness: &Readiness) -> impl IntoResponse + use<> {
    let missing = readiness.missing();
    if missing.is_empty() {
        (StatusCode::OK, "ready\n".to_owned())
    } else {
        let lines = missing.iter().map(|(part, why)| format!("{part}: {why}\n"));
        (StatusCode::SERVICE_UNAVAILABLE, lines.collect())
    }
}

fn scrape(metrics: &PrometheusHandle) -> impl IntoResponse + use<> {
    ([("content-type", "text/plain; version=0.0.4; charset=utf-8")], metrics.render())
}
