//! The stores under test. Each maker is told how its store is shared: by the trait under test.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use semel::store::embedded::EmbeddedStore;
use semel::store::memory::MemoryStore;
use semel::store::postgres::PostgresStore;
use semel::store::postgres::options::PostgresOptions;

use super::{Lapse, Subject};
use crate::support::services::Services;

type Sharing<T, S> = fn(Arc<T>) -> Arc<S>;
type Opening<S> = Pin<Box<dyn Future<Output = Arc<S>>>>;

pub async fn memory<S: ?Sized>(share: Sharing<MemoryStore, S>) -> Subject<S> {
    let store = Arc::new(MemoryStore::new());
    Subject { store: share(store.clone()), reopen: None, lapse: Lapse::Advanced(store), keep: Box::new(()) }
}

/// Reopened, it reads its own journal again: nothing is flushed in between.
pub async fn embedded<S: ?Sized + 'static>(share: Sharing<EmbeddedStore, S>) -> Subject<S> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("claims");
    let open = move || share(Arc::new(EmbeddedStore::open(&path).expect("the store opens")));
    let store = open();
    let reopen = move |old: Arc<S>| -> Opening<S> {
        drop(old);
        let store = open();
        Box::pin(async move { store })
    };
    Subject { store, reopen: Some(Box::new(reopen)), lapse: Lapse::Waited, keep: Box::new(folder) }
}

/// A database of its own whose defaults are as unlike what Semel needs as they may be (beside a server that is fourteen
/// hours ahead of UTC): isolation, date style, limits.
pub async fn postgres<S: ?Sized + 'static>(share: Sharing<PostgresStore, S>) -> Subject<S> {
    let services = Services::shared();
    let url = make_database(&services).await;
    let name = url.rsplit_once('/').expect("a URL with a database").1.to_owned();
    let defaults = [
        "default_transaction_isolation = 'repeatable read'",
        "datestyle = 'German, DMY'",
        "statement_timeout = '60s'",
        "timezone = 'America/St_Johns'",
    ];
    for default in defaults {
        admin(&url, format!("ALTER DATABASE {name} SET {default}")).await;
    }
    on(share, &url, &url).await
}

/// Through PgBouncer in transaction mode.
pub async fn pgbouncer<S: ?Sized + 'static>(share: Sharing<PostgresStore, S>) -> Subject<S> {
    let services = Services::shared();
    let direct = make_database(&services).await;
    let name = direct.rsplit_once('/').expect("a URL with a database").1.to_owned();
    let pooler = std::env::var("SEMEL_TEST_PGBOUNCER").expect("SEMEL_TEST_PGBOUNCER is not set: run tests/run");
    let (base, _) = pooler.rsplit_once('/').expect("a URL with a database");
    on(share, &format!("{base}/{name}"), &direct).await
}

/// `url`: how the store is reached; `direct`: kept for tests that look at the tables.
async fn on<S: ?Sized + 'static>(share: Sharing<PostgresStore, S>, url: &str, direct: &str) -> Subject<S> {
    let store = connect(url).await;
    store.migrate().await.expect("a schema");
    store.check_schema().await.expect("the schema that was made");
    let url = url.to_owned();
    let reopen = move |old: Arc<S>| -> Opening<S> {
        drop(old);
        let url = url.clone();
        Box::pin(async move { share(Arc::new(connect(&url).await)) })
    };
    let keep = Box::new(OwnDatabase(direct.to_owned()));
    Subject { store: share(Arc::new(store)), reopen: Some(Box::new(reopen)), lapse: Lapse::Waited, keep }
}

/// Its URL. Dropped with its last test, and the pooler's connections to it, which would else be kept for minutes.
pub struct OwnDatabase(pub String);

impl Drop for OwnDatabase {
    fn drop(&mut self) {
        let name = self.0.rsplit_once('/').expect("a URL with a database").1.to_owned();
        let drop = move || {
            let server = crate::support::database::Database::open(&Services::shared().postgres);
            server.attempt(&format!("DROP DATABASE {name} WITH (FORCE)")).map(|_| ())
        };
        // Not on this thread, which may belong to another runtime.
        let _ = std::thread::spawn(drop).join();
    }
}

pub async fn connect(url: &str) -> PostgresStore {
    let options = PostgresOptions { pool_size: 6, ..PostgresOptions::new(url) };
    PostgresStore::connect_with(&options, &|_| None).await.expect("a connection")
}

pub async fn make_database(services: &Services) -> String {
    let services = services.clone();
    blocking(move || services.make_database()).await
}

/// One statement on a connection of its own.
pub async fn admin(url: &str, sql: String) {
    let url = url.to_owned();
    blocking(move || crate::support::database::Database::open(&url).execute(&sql)).await;
}

/// The tests' own SQL has a runtime of its own, which may not begin or end on another's threads.
pub async fn blocking<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(call).await.expect("no panic")
}
