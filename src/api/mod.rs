//! What the daemon serves over HTTP: whether it lives, whether it is ready, its metrics.
//!
//! Everything is bounded: connections, the time for a request's head, and the time for an answer. A caller beyond the
//! bounds is hung up on, not queued.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::get;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

mod readiness;

pub use readiness::Readiness;

const CONNECTIONS_MAX: usize = 256;
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// A connection ends after this, whatever goes on in it.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);

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
    let routes = routes(api);
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    tokio::pin!(end);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut end => return,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of file descriptors, most likely: accepting again at once would spin.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else { continue };
        let service = TowerToHyperService::new(routes.clone());
        tokio::spawn(async move {
            let mut server = auto::Builder::new(TokioExecutor::new()).http1_only();
            server.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
            let connection = server.serve_connection(TokioIo::new(stream), service);
            // What a caller does to its own connection is not news.
            let _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await;
            drop(slot);
        });
    }
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
