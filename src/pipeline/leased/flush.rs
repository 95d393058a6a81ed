//! Telling the store what is committed, where no window does it.

use std::time::Duration;

use metrics::counter;

use super::LeasedError;
use super::slots::{Known, RETRY_FIRST, RETRY_LONGEST};
use super::worker::{FLUSH_AFTER, Worker};
use crate::metrics as names;
use crate::pipeline::chain;
use crate::protocol::backoff::Backoff;
use crate::protocol::instance::Beyond;
use crate::store::StoreError;
use crate::store::slots::Reserve;

/// What became of telling the store.
pub(super) enum Told {
    Settled,
    /// It does not answer.
    NotYet,
    Overtaken,
    Unknown,
}

impl Worker {
    /// A reserve of nothing: the store is told of what is committed. False where that has to wait.
    pub(super) async fn flush(&mut self, lease: Duration) -> Result<bool, LeasedError> {
        loop {
            if !self.take_own().await? {
                return Ok(false);
            }
            let committed = self.standing.committed;
            match self.tell(lease).await? {
                Told::Settled => return Ok(true),
                Told::NotYet => return Ok(false),
                Told::Overtaken => self.give_up(None, "overtaken"),
                Told::Unknown => self.give_up(Some(Known { committed, beyond: Beyond::default() }), "unknown_outcome"),
            }
        }
    }

    /// While a window is not done with, `lease` is what is left of it, so that it ends as before.
    pub(super) async fn tell(&mut self, lease: Duration) -> Result<Told, LeasedError> {
        let mut backoff = Backoff::new(RETRY_FIRST, RETRY_LONGEST);
        let committed = self.standing.committed;
        loop {
            let reserve = Reserve {
                guard: self.guard,
                scope: &self.options.scope,
                committed,
                lease,
                rows: &[],
                origin: &self.keyer.origin,
                partition: None,
                first_seen_at: self.clock.now(),
            };
            match self.store.reserve(&reserve).await {
                Ok(_) => {
                    counter!(names::STORE_COMMITS).increment(1);
                    self.standing.settled = committed;
                    self.owes_since = None;
                    self.store_answers();
                    return Ok(Told::Settled);
                }
                Err(StoreError::NotOwner) => return Ok(Told::Overtaken),
                Err(StoreError::Unknown(cause)) => {
                    tracing::warn!(error = chain(&*cause), "it is unknown whether the store knows what is committed");
                    return Ok(Told::Unknown);
                }
                Err(error) => {
                    if !self.bear(error, &mut backoff).await? {
                        self.owes_since = self.owes_since.map(|_| self.machine.now());
                        return Ok(Told::NotYet);
                    }
                }
            }
        }
    }

    /// Within a second of the last commit the store is to know of it.
    pub(super) fn is_flush_due(&self) -> bool {
        self.owes_since.is_some_and(|since| self.machine.now() >= since + FLUSH_AFTER)
    }
}
