//! How the three threads of a worker agree on what is still alive.
//!
//! A window carries the epoch in which it was read. An epoch ends when one of its windows failed, or when the reader is
//! about to move: from then on every window of it is discarded, wherever it is, and none is ever kept and published
//! first (keeping the next window over an abort loses; keeping it over a revocation doubles). Only the reader starts a
//! new epoch, after it has seen the failure and read the positions anew, so that nothing read beyond a failed window can
//! slip into a living one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossbeam_channel::{Receiver, Sender, unbounded};

use super::PipelineError;
use super::window::RefusedRecord;
use crate::shutdown::Shutdown;

/// Why the reader has to do something other than read on.
#[derive(Debug)]
pub enum Trouble {
    /// A window was discarded: fetch the positions and read again.
    Reread { why: String, refused: Vec<RefusedRecord> },
    /// The right to read is gone: leave the group and join anew.
    Rejoin { why: String },
    /// The worker cannot go on.
    Leave(PipelineError),
}

pub struct Control {
    dead_through: AtomicU64,
    troubles: Sender<Trouble>,
    pub shutdown: Shutdown,
}

impl Control {
    pub fn new(shutdown: Shutdown) -> (Arc<Control>, Receiver<Trouble>) {
        let (troubles, received) = unbounded();
        (Arc::new(Control { dead_through: AtomicU64::new(0), troubles, shutdown }), received)
    }

    /// Epochs count from 1.
    pub fn is_alive(&self, epoch: u64) -> bool {
        epoch > self.dead_through.load(Ordering::Acquire)
    }

    /// Ends an epoch and all before it.
    pub fn end(&self, epoch: u64) {
        self.dead_through.fetch_max(epoch, Ordering::AcqRel);
    }

    /// Ends the epoch of a window that failed and tells the reader why. Only the first failure of an epoch counts.
    pub fn fail(&self, epoch: u64, trouble: Trouble) {
        let first = self.is_alive(epoch);
        self.end(epoch);
        if first || matches!(trouble, Trouble::Leave(_)) {
            // The reader is gone only when the worker ends, and then nobody needs to know.
            let _ = self.troubles.send(trouble);
        }
    }
}

/// A mutex whose poison is ignored: a thread that panicked ends the worker anyway.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
