//! Connections, each within its bounds.
//!
//! Everything is bounded: connections, a request's head in time and size, and how long a connection lives. A caller
//! beyond the bounds is hung up on, not queued.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    pub connections_max: u32,
    /// For the head of each request, the wait for it included.
    pub head_timeout: Duration,
    pub head_bytes_max: usize,
    pub headers_max: usize,
    /// After this a connection takes no further request.
    pub life: Duration,
    /// And after this much more it ends, whatever goes on in it.
    pub last_request: Duration,
}

/// Serves until `end` is over, then lets every connection finish the request it is at.
pub async fn serve(listener: TcpListener, routes: Router, bounds: Bounds, end: impl Future<Output = ()>) {
    let slots = Arc::new(Semaphore::new(bounds.connections_max as usize));
    let (ending, ended) = watch::channel(());
    tokio::pin!(end);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut end => break,
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
        let (routes, ended) = (routes.clone(), ended.clone());
        tokio::spawn(async move {
            connection(stream, routes, bounds, ended).await;
            drop(slot);
        });
    }
    drop((listener, ending));
    // It is never closed.
    let _ = slots.acquire_many(bounds.connections_max).await;
}

async fn connection(stream: TcpStream, routes: Router, bounds: Bounds, mut ended: watch::Receiver<()>) {
    let mut server = auto::Builder::new(TokioExecutor::new()).http1_only();
    server
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.head_timeout)
        .max_buf_size(bounds.head_bytes_max)
        .max_headers(bounds.headers_max);
    let connection = server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    tokio::pin!(connection);
    // What a caller does to its own connection is not news.
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = ended.changed() => {}
        () = tokio::time::sleep(bounds.life) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(bounds.last_request, connection).await;
}
