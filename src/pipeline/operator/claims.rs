//! The store, for a program that asks a few questions and ends.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;

use super::OperatorError;
use crate::config::store;
use crate::protocol::backoff::Backoff;
use crate::protocol::lane::{Position, StreamId};
use crate::protocol::start::Row;
use crate::store::slots::SlotStore;
use crate::store::{Recovery, StoreError, open};

/// Tries of a call whose failure passes by itself.
const TRIES: u32 = 6;

pub struct Claims {
    runtime: Runtime,
    pub store: Arc<dyn SlotStore>,
}

impl Claims {
    /// As `semel run` opens it, but an embedded store is never made.
    pub fn open(config: &store::Store) -> Result<Claims, OperatorError> {
        if let store::Store::Embedded { folder } = config
            && !folder.exists()
        {
            return Err(OperatorError::NoStore { folder: folder.clone() });
        }
        let runtime = runtime()?;
        let store: Arc<dyn SlotStore> = runtime.block_on(open::open(config))?;
        Ok(Claims { runtime, store })
    }

    pub fn new(runtime: Runtime, store: Arc<dyn SlotStore>) -> Claims {
        Claims { runtime, store }
    }

    /// For what asks the store by itself.
    pub fn run<T>(&self, asks: impl Future<Output = T>) -> T {
        self.runtime.block_on(asks)
    }

    /// Makes a call, again where its failure may pass. Every call may be repeated after an unknown outcome.
    pub fn ask<T, F>(&self, call: impl Fn(Arc<dyn SlotStore>) -> F) -> Result<T, OperatorError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(2));
        loop {
            match self.runtime.block_on(call(Arc::clone(&self.store))) {
                Ok(answer) => return Ok(answer),
                Err(error) => match error.recovery() {
                    Recovery::Retry | Recovery::Retake if backoff.tries() < TRIES => {
                        std::thread::sleep(backoff.next(128));
                    }
                    _ => return Err(error.into()),
                },
            }
        }
    }

    /// How far a stream's open lane is settled, where the store knows it: of partitions and slots whose sink has no
    /// transactions. None for others, and where another lane is open by now.
    pub fn settled(&self, stream: &StreamId, row: Row) -> Result<Option<Position>, OperatorError> {
        if stream.as_partition().is_none() && !stream.is_slot() {
            return Ok(None);
        }
        let seen = self.ask(|store| async move { store.standing(stream).await })?;
        let open = seen.and_then(|seen| seen.open).filter(|open| open.lane == row.open);
        Ok(open.map(|open| open.settled))
    }
}

pub(super) fn runtime() -> Result<Runtime, std::io::Error> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}
