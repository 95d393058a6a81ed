//! One request: its windows, one after another, and what became of its records.
//!
//! Every step that touches a lane is a task of its own that goes on to its end when the caller goes away, so that nothing
//! is left in the middle. What the caller's going away prevents is the publish of a window that has not begun.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::lanes::Held;
use super::prepare::{Outcome, Prepared, Reason, Rejected, prepare};
use super::window::{self, Failure};
use super::{Ingest, Misfit, Target};
use crate::key::Headers;
use crate::protocol::ingest::Answer;

/// Whether somebody waits for the answer.
#[derive(Debug, Clone, Default)]
pub(super) struct Caller(Arc<AtomicBool>);

impl Caller {
    pub fn is_gone(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Why a request is not answered record by record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// A row of the failure table answers it.
    Answer(Answer),
    /// Nobody waits for an answer.
    CallerGone,
}

/// What became of a request's records, in their order.
#[derive(Debug, Default)]
pub struct Outcomes {
    pub list: Vec<Outcome>,
    /// Of records that do not fit their table's schema, with their places, ascending: as many of the first ones as there
    /// is room for.
    pub misfits: Vec<(usize, Misfit)>,
}

/// Of a request's misfits.
const MISFITS_BYTES_MAX: usize = 1 << 20;

pub struct Request {
    ingest: Ingest,
    target: Arc<Target>,
    outcomes: Vec<Option<Outcome>>,
    misfits: Vec<(usize, Misfit)>,
    misfits_bytes: usize,
    /// Prepared, and their places among the outcomes.
    open: Vec<Prepared>,
    places: Vec<usize>,
    open_bytes: usize,
    lane: Option<Held>,
    caller: Caller,
}

impl Request {
    pub fn new(ingest: &Ingest, target: Target) -> Request {
        Request {
            ingest: ingest.clone(),
            target: Arc::new(target),
            outcomes: Vec::new(),
            misfits: Vec::new(),
            misfits_bytes: 0,
            open: Vec::new(),
            places: Vec::new(),
            open_bytes: 0,
            lane: None,
            caller: Caller::default(),
        }
    }

    /// Records so far.
    pub fn len(&self) -> usize {
        self.outcomes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.outcomes.is_empty()
    }

    /// Prepares a record and adds it to the open window; a bad one is rejected.
    pub fn add(&mut self, text: &[u8], headers: &dyn Headers) {
        match prepare(self.ingest.options(), &self.target, text, headers) {
            Ok(prepared) => {
                self.open_bytes += prepared.size();
                self.places.push(self.outcomes.len());
                self.open.push(prepared);
                self.outcomes.push(None);
            }
            Err(Rejected { reason, misfit }) => {
                if let Some(misfit) = misfit.filter(|misfit| self.misfits_bytes + misfit.bytes() <= MISFITS_BYTES_MAX) {
                    self.misfits_bytes += misfit.bytes();
                    self.misfits.push((self.outcomes.len(), misfit));
                }
                self.reject(reason);
            }
        }
    }

    pub fn reject(&mut self, reason: Reason) {
        self.outcomes.push(Some(Outcome::Rejected(reason)));
    }

    /// The window is to be closed before another record is added.
    pub fn is_full(&self) -> bool {
        let options = self.ingest.options();
        self.open.len() >= options.window_records_max.max(1) || self.open_bytes >= options.window_bytes_max
    }

    /// Reserves and publishes the open window; waits for a free lane where the request has none.
    ///
    /// Cancel safety: a window that is dropped here is published whole or not at all.
    pub async fn close_window(&mut self) -> Result<(), Stopped> {
        if self.open.is_empty() {
            return Ok(());
        }
        let (records, places) = (std::mem::take(&mut self.open), std::mem::take(&mut self.places));
        self.open_bytes = 0;
        let mut lane = match self.lane.take() {
            Some(lane) => lane,
            None => self.ingest.lanes.take().await,
        };
        let (shared, target, caller) = (self.ingest.shared.clone(), self.target.clone(), self.caller.clone());
        let run = async move {
            let ended = window::run(&shared, &mut lane, &target, records, &caller).await;
            if matches!(ended, Err(Failure::CallerGone)) {
                tracing::debug!(origin = %target.origin, "the caller went away, its open window is dropped");
            }
            (lane, ended)
        };
        // A task that panicked has left its lane to be taken again, with all of the window in doubt.
        let Ok((lane, ended)) = tokio::spawn(run).await else {
            tracing::error!(origin = %self.target.origin, "a window's task has panicked");
            return Err(Stopped::Answer(PANICKED));
        };
        match ended {
            Ok(outcomes) => {
                places.into_iter().zip(outcomes).for_each(|(place, outcome)| self.outcomes[place] = Some(outcome));
                self.lane = Some(lane);
                Ok(())
            }
            Err(Failure::Answer(answer)) => Err(Stopped::Answer(answer)),
            Err(Failure::CallerGone) => Err(Stopped::CallerGone),
        }
    }

    /// Commits, and gives the lane back: the next window is not at hand. A commit that fails is told and counted.
    pub async fn rest(&mut self) {
        let Some(mut lane) = self.lane.take() else { return };
        let shared = self.ingest.shared.clone();
        let commit = async move { window::commit(&shared, &mut lane).await };
        // One that panicked has left its lane to be taken again.
        let _ = tokio::spawn(commit).await;
    }

    /// The last window, and its commit. Answers what became of each record.
    pub async fn finish(mut self) -> Result<Outcomes, Stopped> {
        self.close_window().await?;
        self.rest().await;
        let outcomes = std::mem::take(&mut self.outcomes);
        let list = outcomes.into_iter().collect::<Option<_>>().ok_or(Stopped::Answer(PANICKED))?;
        Ok(Outcomes { list, misfits: std::mem::take(&mut self.misfits) })
    }
}

const PANICKED: Answer = Answer { status: 500, error: "publish failed", retry_after_s: None };

impl Drop for Request {
    fn drop(&mut self) {
        self.caller.0.store(true, Ordering::Release);
        if !self.open.is_empty() {
            let (origin, records) = (&self.target.origin, self.open.len());
            tracing::debug!(%origin, records, "the request ended early, its open window is dropped");
        }
    }
}
