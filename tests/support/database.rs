//! Plain SQL for the tests, one connection, blocking.

use tokio::runtime::Runtime;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls, Row};

pub struct Database {
    runtime: Runtime,
    client: Client,
}

impl Database {
    pub fn open(url: &str) -> Database {
        Database::try_open(url).unwrap_or_else(|error| panic!("no connection to the database: {error}"))
    }

    pub fn try_open(url: &str) -> Result<Database, tokio_postgres::Error> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime starts");
        let (client, connection) = runtime.block_on(tokio_postgres::connect(url, NoTls))?;
        runtime.spawn(async move { drop(connection.await) });
        Ok(Database { runtime, client })
    }

    pub fn execute(&self, sql: &str) -> u64 {
        self.attempt(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"))
    }

    pub fn attempt(&self, sql: &str) -> Result<u64, tokio_postgres::Error> {
        self.runtime.block_on(self.client.execute(sql, &[]))
    }

    pub fn query(&self, sql: &str, parameters: &[&(dyn ToSql + Sync)]) -> Vec<Row> {
        self.runtime.block_on(self.client.query(sql, parameters)).unwrap_or_else(|error| panic!("{sql}: {error:?}"))
    }
}
