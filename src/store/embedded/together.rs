//! Reserves that share a sync: those that come while one is under way make up the next batch.
//!
//! Every reserve is put into a queue before it waits for the store's mutex. Whoever gets the mutex does all that are
//! queued by then, in their order, in one batch with one sync, and leaves the others their answers; they find them when
//! they get the mutex in turn. Nobody waits for company: alone, a reserve is a batch of its own. What one of them does the
//! next ones in the batch see, as if it were committed: they are durable together or not at all, and nobody is answered
//! before.
//!
//! A reserve that is refused (its guard does not hold, a week has no room) has written nothing and is left out. An error
//! in the middle of one drops the whole batch, for all.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Trouble;
use super::draft::Draft;
use super::inner::Inner;
use crate::protocol::event::{EventTime, Scope};
use crate::protocol::lane::Position;
use crate::protocol::verdict::Claimed;
use crate::store::slots::{Reserve, Reserved, SlotAsk};
use crate::store::{Guard, StoreError};

/// A reserve of the caller's own, and its answer.
pub(super) struct Asked {
    pub guard: Guard,
    pub committed: Position,
    pub lease: Duration,
    scope: Scope,
    rows: Vec<SlotAsk>,
    origin: Arc<str>,
    partition: Option<i32>,
    first_seen_at: EventTime,
    answer: Mutex<Option<Answer>>,
}

type Answer = Result<Vec<Reserved>, StoreError>;

impl Asked {
    fn of(reserve: &Reserve<'_>) -> Asked {
        Asked {
            guard: reserve.guard,
            committed: reserve.committed,
            lease: reserve.lease,
            scope: reserve.scope.clone(),
            rows: reserve.rows.to_vec(),
            origin: Arc::clone(reserve.origin),
            partition: reserve.partition,
            first_seen_at: reserve.first_seen_at,
            answer: Mutex::default(),
        }
    }

    fn set(&self, answer: Answer) {
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
    }

    pub fn answer(&self) -> Option<Answer> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[derive(Default)]
pub(super) struct Queue(Mutex<Vec<Arc<Asked>>>);

impl Queue {
    pub fn push(&self, reserve: &Reserve<'_>) -> Arc<Asked> {
        let asked = Arc::new(Asked::of(reserve));
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&asked));
        asked
    }

    pub fn take(&self) -> Vec<Arc<Asked>> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// One batch, one sync; every one of them has its answer then.
pub(super) fn reserve(inner: MutexGuard<'_, Inner>, queued: &[Arc<Asked>]) {
    let mut draft = Draft::new(inner, EventTime::from_micros(0));
    if queued.len() > 1 {
        draft.look_at_own_claims();
    }
    let mut done = Vec::with_capacity(queued.len());
    let mut failed = None;
    for asked in queued {
        match draft.reserve(asked) {
            Ok(answers) => done.push((asked, answers)),
            Err(refused @ (Trouble::NotOwner | Trouble::NoWeek(_))) => asked.set(Err(refused.into())),
            Err(trouble) => {
                failed = Some(StoreError::from(trouble));
                break;
            }
        }
    }
    let ended = match failed {
        Some(error) => Err(error),
        None => draft.commit_under_lock().map_err(StoreError::from),
    };
    match ended {
        Ok(()) => done.into_iter().for_each(|(asked, answers)| asked.set(Ok(answers))),
        Err(error) => {
            // Each hears the same.
            let alike = |error: &StoreError| match error {
                StoreError::Unavailable(cause) => StoreError::Unavailable(cause.to_string().into()),
                StoreError::Rejected(cause) => StoreError::Rejected(cause.to_string().into()),
                StoreError::Unknown(cause) => StoreError::Unknown(cause.to_string().into()),
                other => StoreError::Unknown(other.to_string().into()),
            };
            let refused = |asked: &&Arc<Asked>| asked.answer.lock().unwrap_or_else(PoisonError::into_inner).is_some();
            queued.iter().filter(|asked| !refused(asked)).for_each(|asked| asked.set(Err(alike(&error))));
        }
    }
    // Whoever gets the mutex next finds its answer.
    drop(draft);
}

impl Draft<'_> {
    /// Writes nothing where it is refused.
    fn reserve(&mut self, asked: &Asked) -> Result<Vec<Reserved>, Trouble> {
        let lane = asked.guard.lane;
        let of_slot = self.guarded_slot_lane(asked.guard)?.raised(asked.committed).renewed(asked.lease);
        self.check_weeks(asked.rows.iter().map(|row| row.week))?;
        self.set_slot_lane(lane, of_slot);
        let mut answers = Vec::with_capacity(asked.rows.len());
        if !asked.rows.is_empty() {
            self.see_first_at(asked.first_seen_at);
            let scope = self.scope(&asked.scope);
            let origin = self.slot_origin(lane, &asked.origin, asked.partition);
            let is_offset = asked.partition.is_some();
            for row in &asked.rows {
                answers.push(match self.claim_on_slot(scope, (lane, origin), row, is_offset)? {
                    Claimed::Inserted => Reserved::Inserted,
                    Claimed::Held(holder) => Reserved::InTheWay(Some(self.conflicting(holder))),
                });
            }
        }
        Ok(answers)
    }
}

#[cfg(test)]
#[path = "together_tests.rs"]
mod tests;
