//! From the configuration to a store.

use std::sync::Arc;

use super::StoreError;
use super::embedded::EmbeddedStore;
use super::postgres::PostgresStore;
use super::postgres::options::{PostgresOptions, connect_settings};
use super::slots::SlotStore;
use crate::config::store;

/// Opens the configured store. Embedded: makes its folder where there is none. PostgreSQL: connects, and checks that its schema is the one that this version knows.
pub async fn open(config: &store::Store) -> Result<Arc<dyn SlotStore>, StoreError> {
    match config {
        store::Store::Embedded { folder } => {
            let store = EmbeddedStore::open(folder).map_err(|error| StoreError::Rejected(error.into()))?;
            Ok(Arc::new(store))
        }
        store::Store::Postgres(postgres) => {
            let store = PostgresStore::connect(&options(postgres)).await?;
            store.check_schema().await?;
            Ok(Arc::new(store))
        }
    }
}

/// What of the settings only the store can judge, without a connection: the database's URL with its parameters, the PG*
/// variables, and the certificates that they name.
pub fn check(config: &store::Store) -> Result<(), StoreError> {
    match config {
        store::Store::Embedded { .. } => Ok(()),
        store::Store::Postgres(postgres) => {
            connect_settings(&options(postgres), &|name| std::env::var(name).ok()).map(drop)
        }
    }
}

pub fn options(postgres: &store::Postgres) -> PostgresOptions {
    PostgresOptions {
        url: postgres.url.clone(),
        pool_size: postgres.connections,
        connect_timeout: postgres.connect_timeout,
        tcp_user_timeout: postgres.tcp_timeout,
        lock_timeout: postgres.lock_timeout,
        statement_timeout: postgres.statement_timeout,
        scan_timeout: postgres.scan_timeout,
    }
}
