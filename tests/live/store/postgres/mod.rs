//! What only PostgreSQL has to show: late statements, lost connections, partitions in use, schemas, TLS, lanes of
//! instances.

use std::sync::Arc;
use std::time::Duration;

use semel::store::StoreError;
use semel::store::postgres::PostgresStore;
use tokio_postgres::{Client, NoTls};

use super::subjects::{OwnDatabase, connect, make_database};
use crate::support::services::Services;

mod late;
mod migrate;
mod outage;
mod partitions;
mod plans;
mod slots;
mod tls;

/// A database of the test's own, with the schema in it, reached directly.
struct Own {
    store: Arc<PostgresStore>,
    url: String,
    _database: OwnDatabase,
}

impl Own {
    async fn empty() -> Own {
        let url = make_database(&Services::shared()).await;
        Own { store: Arc::new(connect(&url).await), _database: OwnDatabase(url.clone()), url }
    }

    async fn migrated() -> Own {
        let own = Own::empty().await;
        own.store.migrate().await.expect("a schema");
        own
    }

    /// A connection of the test's own beside the store's.
    async fn side(&self) -> Client {
        side(&self.url).await
    }
}

async fn side(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a connection");
    tokio::spawn(async move { drop(connection.await) });
    client
}

fn run(test: impl AsyncFnOnce()) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime starts").block_on(test());
}

/// Long enough for a statement to arrive and to wait, where it is to be seen waiting.
async fn while_it_waits() {
    tokio::time::sleep(Duration::from_millis(250)).await;
}

/// The whole chain of an error in one line, as a log has it.
fn told(error: &StoreError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}
