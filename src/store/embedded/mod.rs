//! Claims in a folder, for one process. Nothing to install.
//!
//! The engine is an LSM tree (`fjall`). Each week has a keyspace of its own, which is deleted whole when the week is
//! retired. One small keyspace holds streams, lanes, scopes, origins and the notes of [`Draft::note`]; another the
//! last windows of each lane ([`tail`]).
//!
//! How the promises of [`super::ClaimStore`] and [`super::slots::SlotStore`] are kept:
//!
//! - *Insert or nothing, guarded, answered from what is committed*: one mutex is held from the first look to the end
//!   of the commit, and no second process can open the folder.
//! - *Durable*: every commit syncs the journal before it returns. Reserves that come at the same time share one
//!   ([`together`]).
//! - *All or nothing*: every call writes one batch. The only exception is a release of more than 50,000 claims, which
//!   may stop half-way and is then finished by its repetition.
//! - *A crash* at any moment leaves the batches whose sync had returned, perhaps one more, and no part of one.
//! - *A failed write or sync* poisons the engine: every later write fails until the process has opened the folder again,
//!   since nobody knows what the disk holds. The call itself answers [`StoreError::Unknown`].
//! - *Leases* end with the process that opened the folder, at the latest: no other process can hold one, so a start
//!   waits for none, and finds what an earlier run left in doubt free to be swept ([`slot_lanes`]).
//!
//! Not handled: a disk that lies about syncs, and a folder on a file system without working locks.
//!
//! Calls block for about one sync. In a multi-threaded runtime they tell the scheduler so.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use async_trait::async_trait;
use tokio::runtime::{Handle, RuntimeFlavor};

use self::code::Unreadable;
pub use self::draft::{ClaimKey, Draft};
use self::inner::Inner;
use self::together::Queue;
use super::{
    Claim, ClaimStore, ClaimWindow, Free, Guard, OpenLane, Refused, Room, StoreError, StreamState, Take, Taken,
    TryClaim,
};
use crate::protocol::event::{EventId, EventTime, Scope, Week};
use crate::protocol::lane::{LaneId, Position, StoreId, StreamId};
use crate::protocol::verdict::Claimed;

mod body;
mod change;
mod code;
mod draft;
mod expiry;
mod folder;
mod inner;
mod key;
mod lanes;
mod names;
mod release;
mod slot_lanes;
mod slots;
mod tail;
mod takeover;
mod together;

#[cfg(test)]
mod old_folder_tests;
#[cfg(test)]
mod slots_tests;
#[cfg(test)]
mod store_tests;

/// Weeks that may be made by one call: a thousand years.
const WEEKS_PER_CALL_MAX: i32 = 52_000;

pub struct EmbeddedStore {
    // Fields are dropped in this order: the lock goes last.
    inner: Mutex<Inner>,
    /// Reserves that wait for it.
    queue: Queue,
    _lock: folder::Lock,
}

/// Why a folder could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the claim store in {} is in use by another process ({process})", folder.display())]
    InUse { folder: PathBuf, process: String },
    #[error("{} is not a claim store's", folder.display())]
    Foreign { folder: PathBuf },
    #[error("the claim store's folder {} cannot be used", folder.display())]
    Folder { folder: PathBuf, source: std::io::Error },
    #[error("the claim store's engine failed")]
    Engine(#[from] fjall::Error),
    #[error("the claim store cannot be read")]
    Unreadable(#[source] super::Source),
    #[error("the system has no randomness")]
    Randomness(#[source] super::Source),
}

impl EmbeddedStore {
    /// Opens the store in `folder`, and makes both where they are missing. Takes a moment where the last process left
    /// much in its journal (at most 128 MiB of it are read again).
    pub fn open(folder: &Path) -> Result<EmbeddedStore, OpenError> {
        let lock = folder::lock(folder)?;
        let database = folder::open_or_make(folder, inner::fill)?;
        Ok(EmbeddedStore { inner: Mutex::new(Inner::load(database)?), queue: Queue::default(), _lock: lock })
    }

    /// Begins a batch. Every other call waits until it is committed or dropped.
    pub fn draft(&self, first_seen_at: EventTime) -> Result<Draft<'_>, StoreError> {
        Ok(Draft::new(self.lock()?, first_seen_at))
    }

    /// [`ClaimStore::retire_weeks`] for callers without a runtime.
    pub fn retire(&self, first_kept: Week) -> Result<Vec<Week>, StoreError> {
        let retired = self.run(|inner| inner.retire_weeks(first_kept))?;
        // Their files are removed when the handles are dropped, with the store unlocked.
        Ok(retired.into_iter().map(|(week, _space)| week).collect())
    }

    /// What [`Draft::note`] wrote last under this name.
    pub fn note(&self, name: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let record = self.lock()?.small.get(inner::small_key(inner::NOTE, name)).map_err(Trouble::Read)?;
        Ok(record.map(|record| record.to_vec()))
    }

    fn lock(&self) -> Result<MutexGuard<'_, Inner>, Trouble> {
        // A panic may have left memory behind what is on disk.
        self.inner.lock().map_err(|_| Trouble::Panicked)
    }

    fn run<T>(&self, call: impl FnOnce(&mut Inner) -> Result<T, Trouble>) -> Result<T, StoreError> {
        self.run_locked(|mut inner| call(&mut inner))
    }

    fn run_locked<'a, T>(
        &'a self,
        call: impl FnOnce(MutexGuard<'a, Inner>) -> Result<T, Trouble>,
    ) -> Result<T, StoreError> {
        let call = || Ok(call(self.lock()?)?);
        match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
            Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(call),
            _ => call(),
        }
    }
}

#[async_trait]
impl ClaimStore for EmbeddedStore {
    async fn store_id(&self) -> Result<StoreId, StoreError> {
        self.run(|inner| Ok(inner.store_id.clone()))
    }

    async fn take(&self, take: &Take<'_>) -> Result<Taken, StoreError> {
        self.run(|inner| inner.take(take))
    }

    async fn claim(&self, window: &ClaimWindow<'_>) -> Result<Vec<Claimed>, StoreError> {
        window.check()?;
        self.run_locked(|inner| {
            window.guards.iter().try_for_each(|guard| inner.check_guard(*guard))?;
            inner.check_weeks(window.rows.iter().map(|row| row.week))?;
            let mut draft = Draft::new(inner, window.first_seen_at);
            let scope = draft.scope(window.scope);
            let answers = window.rows.iter().map(|row| draft.claim_laned(scope, row)).collect::<Result<_, _>>()?;
            draft.commit_changes()?;
            Ok(answers)
        })
    }

    async fn open_lane(&self, open: &OpenLane<'_>) -> Result<u64, StoreError> {
        self.run(|inner| inner.open_lane(open))
    }

    async fn close_lane(
        &self,
        stream: &StreamId,
        guard: Guard,
        cut: Position,
        _now: EventTime,
    ) -> Result<u64, StoreError> {
        self.run(|inner| inner.close_lane(stream, guard, cut))
    }

    async fn record_drain(&self, stream: &StreamId, guard: Guard, settled: Position) -> Result<(), StoreError> {
        self.run(|inner| inner.set_drained(stream, guard, Some(settled)))
    }

    async fn forget_drain(&self, stream: &StreamId, guard: Guard) -> Result<(), StoreError> {
        self.run(|inner| inner.set_drained(stream, guard, None))
    }

    async fn is_open(&self, lane: LaneId) -> Result<bool, StoreError> {
        self.run(|inner| Ok(inner.is_open(lane)))
    }

    async fn try_claim(&self, rows: &[TryClaim], first_seen_at: EventTime) -> Result<Vec<Claimed>, StoreError> {
        self.run_locked(|inner| {
            inner.check_weeks(rows.iter().map(|row| row.week))?;
            let mut draft = Draft::new(inner, first_seen_at);
            let answers = rows.iter().map(|row| draft.try_claim(row)).collect::<Result<_, _>>()?;
            draft.commit_changes()?;
            Ok(answers)
        })
    }

    async fn find(&self, scope: Option<&Scope>, event_id: &EventId) -> Result<Vec<Claim>, StoreError> {
        self.run(|inner| inner.find(scope, event_id))
    }

    async fn streams(&self) -> Result<Vec<StreamState>, StoreError> {
        self.run(|inner| Ok(inner.stream_states()))
    }

    async fn free(&self, free: &Free, dry_run: bool) -> Result<u64, StoreError> {
        self.run(|inner| inner.free(free, dry_run))
    }

    async fn forget_refused(&self, scope: &Scope, refused: &[Refused]) -> Result<u64, StoreError> {
        self.run(|inner| inner.forget_refused(scope, refused))
    }

    async fn ensure_weeks(&self, first: Week, last: Week) -> Result<(), StoreError> {
        if last > first.plus(WEEKS_PER_CALL_MAX) {
            return Err(StoreError::Rejected("more weeks than any calendar needs".into()));
        }
        // Each by itself, so that claims get in between.
        let mut weeks = (0..).map(|n| first.plus(n)).take_while(|week| *week <= last);
        weeks.try_for_each(|week| self.run(|inner| inner.make_week(week)))
    }

    async fn weeks(&self) -> Result<Vec<Week>, StoreError> {
        self.run(|inner| Ok(inner.weeks.keys().copied().collect()))
    }

    async fn rooms(&self) -> Result<Vec<Room>, StoreError> {
        self.run(|inner| Ok(inner.rooms()))
    }

    async fn retire_weeks(&self, first_kept: Week) -> Result<Vec<Week>, StoreError> {
        self.retire(first_kept)
    }
}

/// What goes wrong inside; outside it is a [`StoreError`].
#[derive(Debug)]
enum Trouble {
    /// Nothing was written.
    Read(fjall::Error),
    /// Perhaps something was.
    Write(fjall::Error),
    Unreadable(Unreadable),
    Panicked,
    NotOwner,
    NoWeek(Week),
}

impl From<Unreadable> for Trouble {
    fn from(unreadable: Unreadable) -> Trouble {
        Trouble::Unreadable(unreadable)
    }
}

impl From<Unreadable> for OpenError {
    fn from(unreadable: Unreadable) -> OpenError {
        OpenError::Unreadable(unreadable.into())
    }
}

impl From<Trouble> for OpenError {
    fn from(trouble: Trouble) -> OpenError {
        match trouble {
            Trouble::Read(error) | Trouble::Write(error) => OpenError::Engine(error),
            other => OpenError::Unreadable(StoreError::from(other).into()),
        }
    }
}

impl From<Trouble> for StoreError {
    fn from(trouble: Trouble) -> StoreError {
        match trouble {
            // An earlier write failed: this one did nothing, and no later one will before the folder is opened again.
            Trouble::Read(error @ fjall::Error::Poisoned) | Trouble::Write(error @ fjall::Error::Poisoned) => {
                StoreError::Rejected(error.into())
            }
            Trouble::Read(error) => StoreError::Unavailable(error.into()),
            Trouble::Write(error) => StoreError::Unknown(error.into()),
            Trouble::Unreadable(unreadable) => StoreError::Rejected(unreadable.into()),
            Trouble::Panicked => StoreError::Rejected("an earlier call panicked".into()),
            Trouble::NotOwner => StoreError::NotOwner,
            Trouble::NoWeek(week) => StoreError::NoWeek(week),
        }
    }
}
