//! Connections, and the one way in which statements are sent.
//!
//! Every statement travels as three messages in one flight: `BEGIN` with its isolation level and limits, the statement,
//! `COMMIT`. One round trip, like an autocommit statement, but
//! - READ COMMITTED whatever the server's default is: under REPEATABLE READ a claim that waits for another's commit
//!   fails instead of finding it;
//! - lock and statement limits hold for this transaction only. As startup parameters PgBouncer refuses them; as `SET`
//!   they would stay with whoever uses the server connection next;
//! - an error that the server answers to the statement proves that nothing was written, since COMMIT was not reached.
//!
//! All three are queued at the first poll, so that a dropped call never leaves a transaction open: it runs to its end
//! without us. A call that did not see its end takes its connection out of the pool.

use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool as Connections, PoolError, RecyclingMethod, Runtime};
use postgres_openssl::MakeTlsConnector;
use tokio_postgres::{NoTls, Row};

use super::error::{is_refused, rolled_back, source, spoils_connection};
use super::options::{Connect, PostgresOptions};
use super::params::Param;
use crate::store::StoreError;

/// How long past a statement's own limit its answer is waited for. Then the connection is given up.
const ANSWER_GRACE: Duration = Duration::from_secs(5);

/// What one transaction may take.
#[derive(Debug, Clone)]
pub struct Limits {
    begin: String,
    answer: Duration,
}

impl Limits {
    /// `lock`: longest wait for one lock, and longest time that the server waits for us in the middle of a transaction: a
    /// process that is halted there must not keep its locks from its successor. `statement`: longest run of one
    /// statement, its waits included.
    pub fn new(lock: Duration, statement: Duration) -> Limits {
        let millis = |limit: Duration| limit.as_millis().clamp(1, i32::MAX as u128);
        let lock_ms = millis(lock);
        let begin = format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL jit = off;
             SET LOCAL lock_timeout = {lock_ms}; SET LOCAL statement_timeout = {};
             SET LOCAL idle_in_transaction_session_timeout = {lock_ms}",
            millis(statement)
        );
        Limits { begin, answer: statement + ANSWER_GRACE }
    }
}

#[derive(Clone)]
pub struct Pool {
    connections: Connections,
    /// For cancelling, which makes a connection of its own.
    tls: Option<MakeTlsConnector>,
}

/// A connection that goes back to the pool only where its last call is known to have ended well.
pub struct Lease {
    /// None only while dropping.
    object: Option<Object>,
    keep: bool,
}

/// What a call came to, before it is known what an error of its statement means.
pub enum Ended {
    Committed(Vec<Row>),
    /// The server answered this error: nothing was written.
    RolledBack(tokio_postgres::Error),
}

impl Pool {
    pub fn new(options: &PostgresOptions, connect: Connect) -> Result<Pool, StoreError> {
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = match connect.tls.clone() {
            None => Manager::from_config(connect.config, NoTls, recycling),
            Some(tls) => Manager::from_config(connect.config, tls, recycling),
        };
        let connections = Connections::builder(manager)
            // Retiring weeks needs two at once.
            .max_size(options.pool_size.max(2))
            .create_timeout(Some(options.connect_timeout))
            .wait_timeout(Some(options.connect_timeout))
            .runtime(Runtime::Tokio1)
            .build()
            .map_err(|error| StoreError::Rejected(error.into()))?;
        Ok(Pool { connections, tls: connect.tls })
    }

    /// Waits at most twice the connect timeout: for a free connection, then for a new one.
    pub async fn lease(&self) -> Result<Lease, StoreError> {
        let object = self.connections.get().await.map_err(unavailable)?;
        Ok(Lease { object: Some(object), keep: false })
    }

    /// Makes a connection, to see that it can be made. Refused log-ins are [`StoreError::Rejected`] here, and only
    /// here: later they are an outage, to be waited for.
    pub async fn probe(&self) -> Result<(), StoreError> {
        match self.connections.get().await {
            Ok(_) => Ok(()),
            Err(PoolError::Backend(error)) if is_refused(&error) => Err(StoreError::Rejected(source(error))),
            Err(error) => Err(unavailable(error)),
        }
    }

    /// One statement that cannot run in a transaction, with no limit on the server's side: `limit` cancels it.
    pub async fn alone(&self, sql: &str, limit: Duration) -> Result<(), StoreError> {
        let mut lease = self.lease().await?;
        let answer = {
            let client = lease.object();
            let call = client.batch_execute(sql);
            tokio::pin!(call);
            match tokio::time::timeout(limit, &mut call).await {
                Ok(answer) => answer,
                Err(_) => {
                    let token = client.cancel_token();
                    // Whether or not the cancellation arrived, the answer to the statement says how it ended.
                    let _ = match &self.tls {
                        None => token.cancel_query(NoTls).await,
                        Some(tls) => token.cancel_query(tls.clone()).await,
                    };
                    tokio::time::timeout(ANSWER_GRACE, call)
                        .await
                        .map_err(|_| StoreError::Unknown("no answer in time".into()))?
                }
            }
        };
        lease.keep = answer.as_ref().err().is_none_or(|error| !spoils_connection(error));
        answer.map_err(|error| match error.as_db_error() {
            Some(_) => rolled_back(error),
            None => StoreError::Unknown(source(error)),
        })
    }

    /// One statement, one round trip, one commit. Unknown where its end was not seen.
    pub async fn run(&self, limits: &Limits, sql: &str, params: &[Param<'_>]) -> Result<Ended, StoreError> {
        let mut lease = self.lease().await?;
        let ended = lease.run(limits, sql, params).await;
        lease.keep = match &ended {
            Ok(Ended::Committed(_)) => true,
            Ok(Ended::RolledBack(error)) => !spoils_connection(error),
            Err(_) => false,
        };
        ended
    }

    /// As [`Pool::run`], with every error of the statement in its usual meaning.
    pub async fn rows(&self, limits: &Limits, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, StoreError> {
        match self.run(limits, sql, params).await? {
            Ended::Committed(rows) => Ok(rows),
            Ended::RolledBack(error) => Err(rolled_back(error)),
        }
    }
}

impl Lease {
    fn object(&self) -> &Object {
        self.object.as_ref().expect("a lease holds its connection until it is dropped")
    }

    async fn run(&self, limits: &Limits, sql: &str, params: &[Param<'_>]) -> Result<Ended, StoreError> {
        let client = self.object();
        if client.is_closed() {
            return Err(StoreError::Unavailable("the connection was closed before the call".into()));
        }
        let calls = async {
            tokio::join!(
                biased;
                client.batch_execute(&limits.begin),
                client.query_typed(sql, params),
                client.batch_execute("COMMIT"),
            )
        };
        let Ok((begun, rows, committed)) = tokio::time::timeout(limits.answer, calls).await else {
            return Err(StoreError::Unknown("no answer in time".into()));
        };
        match (begun, rows, committed) {
            (Ok(()), Ok(rows), Ok(())) => Ok(Ended::Committed(rows)),
            // Refused at BEGIN (a server or a pooler that is going away), and so was everything behind it.
            (Err(error), Err(_), _) if error.as_db_error().is_some() => Ok(Ended::RolledBack(error)),
            (Ok(()), Err(error), _) if error.as_db_error().is_some() => Ok(Ended::RolledBack(error)),
            (_, _, Err(error)) | (_, Err(error), _) | (Err(error), _, _) => Err(StoreError::Unknown(source(error))),
        }
    }

    /// Begins a transaction of several statements. Whatever ends it other than [`Lease::commit`] and
    /// [`Lease::rollback`] closes the connection, which rolls it back.
    pub async fn begin(&mut self, limits: &Limits) -> Result<(), StoreError> {
        self.object().batch_execute(&limits.begin).await.map_err(before_commit)
    }

    /// One statement of a transaction that was begun.
    pub async fn rows(&mut self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, StoreError> {
        self.object().query_typed(sql, params).await.map_err(before_commit)
    }

    /// Statements without parameters and without an answer, of a transaction that was begun.
    pub async fn batch(&mut self, sql: &str) -> Result<(), StoreError> {
        self.object().batch_execute(sql).await.map_err(before_commit)
    }

    /// To be called only where every statement returned Ok: a server that has rolled back says Ok all the same.
    pub async fn commit(mut self) -> Result<(), StoreError> {
        self.object().batch_execute("COMMIT").await.map_err(|error| StoreError::Unknown(source(error)))?;
        self.keep = true;
        Ok(())
    }

    pub async fn rollback(mut self) {
        self.keep = self.object().batch_execute("ROLLBACK").await.is_ok();
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(object) = self.object.take()
            && !self.keep
        {
            // Out of the pool, which makes room for a new one; the connection is closed with it.
            drop(Object::take(object));
        }
    }
}

fn unavailable(error: PoolError) -> StoreError {
    StoreError::Unavailable(match error {
        PoolError::Backend(error) => source(error),
        other => other.into(),
    })
}

/// An error of any kind before COMMIT was sent: the transaction never committed and never will.
fn before_commit(error: tokio_postgres::Error) -> StoreError {
    match error.as_db_error() {
        Some(_) => rolled_back(error),
        None => StoreError::Unavailable(source(error)),
    }
}
