//! Lends lanes to windows, and mends those that were given up or owe something.
//!
//! A lane that is not whole is lent only while there is no whole one at all: then its borrower tries to mend it and
//! finds out at once that the store is away, instead of waiting for nothing.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::Shared;
use super::lane::Lane;
use crate::pipeline::chain;

/// The store hears within a second what is committed.
const MEND_EVERY: Duration = Duration::from_millis(400);

pub(super) struct Lanes {
    state: Mutex<State>,
    freed: Notify,
}

struct State {
    whole: Vec<Lane>,
    broken: Vec<Lane>,
    lent_whole: usize,
    lent_broken: usize,
}

impl State {
    fn take(&mut self) -> Option<(Lane, bool)> {
        if let Some(lane) = self.whole.pop() {
            self.lent_whole += 1;
            return Some((lane, true));
        }
        let lane = if self.lent_whole == 0 { self.broken.pop()? } else { return None };
        self.lent_broken += 1;
        Some((lane, false))
    }

    fn has_some(&self) -> bool {
        !self.whole.is_empty() || (self.lent_whole == 0 && !self.broken.is_empty())
    }
}

impl Lanes {
    pub fn start(lanes: Vec<Lane>, shared: Arc<Shared>) -> Arc<Lanes> {
        let (whole, broken) = lanes.into_iter().partition(Lane::is_whole);
        let state = Mutex::new(State { whole, broken, lent_whole: 0, lent_broken: 0 });
        let lanes = Arc::new(Lanes { state, freed: Notify::new() });
        tokio::spawn(keep(Arc::downgrade(&lanes), shared));
        lanes
    }

    pub fn ready(&self) -> usize {
        let state = self.lock();
        state.whole.len() + state.lent_whole
    }

    /// Waits for a lane; in the order of the callers.
    ///
    /// Cancel safety: a dropped call has taken none.
    pub async fn take(self: &Arc<Self>) -> Held {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if let Some(held) = self.try_take(State::take) {
                return held;
            }
            freed.await;
        }
    }

    fn try_take(self: &Arc<Self>, take: impl FnOnce(&mut State) -> Option<(Lane, bool)>) -> Option<Held> {
        let mut state = self.lock();
        let (lane, was_whole) = take(&mut state)?;
        if state.has_some() {
            self.freed.notify_one();
        }
        Some(Held { lane: Some(lane), was_whole, lanes: Arc::clone(self) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for every lane and lets its lease lapse.
    pub async fn leave(self: &Arc<Self>, shared: &Shared) {
        let count = shared.own.len();
        let mut held = Vec::with_capacity(count);
        while held.len() < count {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            let any = |state: &mut State| {
                let lane = state.whole.pop().or_else(|| state.broken.pop())?;
                state.lent_broken += 1;
                Some((lane, false))
            };
            match self.try_take(any) {
                Some(lane) => held.push(lane),
                None => freed.await,
            }
        }
        for mut lane in held {
            let left = if lane.is_given_up() { lane.mend(shared).await } else { Ok(()) };
            let left = match left {
                Ok(()) => lane.reserve(shared, None, &[], Duration::ZERO).await.map(drop).map_err(Into::into),
                Err(error) => Err(error),
            };
            match left {
                Ok(()) => tracing::info!(slot = %lane.slot, "left the slot with everything settled"),
                Err(error) => tracing::warn!(slot = %lane.slot, error = chain(&error), "left the slot"),
            }
        }
    }
}

/// A lane on loan. Dropped, it is free again.
pub(super) struct Held {
    lane: Option<Lane>,
    was_whole: bool,
    lanes: Arc<Lanes>,
}

impl Deref for Held {
    type Target = Lane;

    fn deref(&self) -> &Lane {
        self.lane.as_ref().expect("it is there until it is dropped")
    }
}

impl DerefMut for Held {
    fn deref_mut(&mut self) -> &mut Lane {
        self.lane.as_mut().expect("it is there until it is dropped")
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(lane) = self.lane.take() else { return };
        let mut state = self.lanes.lock();
        let lent = if self.was_whole { &mut state.lent_whole } else { &mut state.lent_broken };
        *lent -= 1;
        if lane.is_whole() {
            state.whole.push(lane);
        } else {
            state.broken.push(lane);
        }
        drop(state);
        self.lanes.freed.notify_one();
    }
}

/// Mends what is not whole, until nobody needs the lanes any more.
async fn keep(lanes: Weak<Lanes>, shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(MEND_EVERY).await;
        let Some(lanes) = lanes.upgrade() else { return };
        let broken = |state: &mut State| {
            let lane = state.broken.pop()?;
            state.lent_broken += 1;
            Some((lane, false))
        };
        // All that are broken now, each once.
        let held: Vec<Held> = std::iter::from_fn(|| lanes.try_take(broken)).collect();
        for mut lane in held {
            let was_given_up = lane.is_given_up();
            match lane.mend(&shared).await {
                Ok(()) if was_given_up => tracing::info!(slot = %lane.slot, "the lane can be used again"),
                Ok(()) => tracing::debug!(slot = %lane.slot, "the store knows what is committed"),
                Err(error) => tracing::debug!(slot = %lane.slot, error = chain(&error), "the lane cannot be used yet"),
            }
        }
    }
}
