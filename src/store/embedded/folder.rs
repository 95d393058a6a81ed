//! The folder of an embedded store: its lock, its making, its keyspaces.
//!
//! ```text
//! semel.lock   held by the process that has the store open; says its number
//! semel.db/    the storage engine's own folder, made whole under another name and then renamed
//! ```
//!
//! A crash while the folder is made leaves no `semel.db`, and the next start makes it again.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fjall::compaction::Leveled;
use fjall::config::{BlockSizePolicy, CompressionPolicy, PartitioningPolicy};
use fjall::{AbstractTree, Database, Keyspace, KeyspaceCreateOptions};

use super::OpenError;

const LOCK: &str = "semel.lock";
const DATABASE: &str = "semel.db";
const HALF_MADE: &str = "semel.db.new";
/// Stands in every folder of the storage engine.
const ENGINE_MARKER: &str = "version";

/// Shared by all keyspaces: blocks, filters and indices of what is on disk.
const CACHE_BYTES: u64 = 16 << 20;
/// Threads that write memory tables out and merge tables.
const WORKERS: usize = 1;
/// What a start may have to read again, roughly.
const JOURNALS_BYTES_MAX: u64 = 128 << 20;
/// A keyspace's memory table before it is written out.
const IN_MEMORY_BYTES: u64 = 6 << 20;
/// Memory tables that may wait for that; the engine halts writes at four.
const SEALED_MAX: usize = 3;
/// Tables on disk that are merged, so many at a time, into those of the next level, which are so large.
const MERGED_TOGETHER: u8 = 8;
const TABLE_BYTES: u64 = 32 << 20;

/// The right to the folder; given up when dropped.
#[derive(Debug)]
pub(super) struct Lock {
    _held: File,
}

pub(super) fn lock(folder: &Path) -> Result<Lock, OpenError> {
    let io = |source| OpenError::Folder { folder: folder.into(), source };
    std::fs::create_dir_all(folder).map_err(io)?;
    let path = folder.join(LOCK);
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(io)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut process = String::new();
            file.read_to_string(&mut process).map_err(io)?;
            return Err(OpenError::InUse { folder: folder.into(), process: process.trim().into() });
        }
        Err(TryLockError::Error(source)) => return Err(io(source)),
    }
    // Only to tell the next one who holds it.
    file.set_len(0).map_err(io)?;
    file.rewind().map_err(io)?;
    writeln!(file, "{}", std::process::id()).map_err(io)?;
    Ok(Lock { _held: file })
}

/// Opens the database, and makes it where there is none: `fill` then writes what every store begins with.
pub(super) fn open_or_make(
    folder: &Path,
    fill: impl FnOnce(&Database) -> Result<(), OpenError>,
) -> Result<Database, OpenError> {
    let io = |source| OpenError::Folder { folder: folder.into(), source };
    let whole = folder.join(DATABASE);
    if !whole.try_exists().map_err(io)? {
        let half_made = folder.join(HALF_MADE);
        remove_if_there(&half_made).map_err(io)?;
        let database = open(&half_made)?;
        fill(&database)?;
        database.persist(fjall::PersistMode::SyncAll)?;
        drop(database);
        std::fs::rename(&half_made, &whole).map_err(io)?;
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(io)?;
    }
    if !whole.join(ENGINE_MARKER).try_exists().map_err(io)? {
        return Err(OpenError::Foreign { folder: whole });
    }
    open(&whole)
}

fn open(path: &Path) -> Result<Database, OpenError> {
    let builder = Database::builder(path);
    Ok(builder.cache_size(CACHE_BYTES).worker_threads(WORKERS).max_journaling_size(JOURNALS_BYTES_MAX).open()?)
}

fn remove_if_there(path: &PathBuf) -> io::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A week: keys in random order, asked for mostly where they are not.
///
/// Filters and indices are in parts: a whole one may be larger than what the cache takes in, and would then be read
/// from disk at every question.
pub(super) fn week_options() -> KeyspaceCreateOptions {
    let in_parts = PartitioningPolicy::new([false, true]);
    let merging = Leveled::default().with_l0_threshold(MERGED_TOGETHER).with_table_target_size(TABLE_BYTES);
    KeyspaceCreateOptions::default()
        .max_memtable_size(u64::MAX)
        .data_block_size_policy(BlockSizePolicy::all(4 << 10))
        .data_block_compression_policy(CompressionPolicy::disabled())
        .compaction_strategy(Arc::new(merging))
        .filter_block_partitioning_policy(in_parts.clone())
        .index_block_partitioning_policy(in_parts)
}

/// Few keys, written again and again.
pub(super) fn small_options() -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default().max_memtable_size(u64::MAX)
}

/// Moves a keyspace's memory table on its way to the disk where it has grown large.
///
/// The engine would do this too, but it sends its worker a message at every commit until the worker has found time.
/// With one worker (a second one spins while the first merges) a full queue of them can block the worker on itself.
pub(super) fn rotate_if_large(space: &Keyspace) -> fjall::Result<()> {
    let size = space.tree.active_memtable().size();
    let waits = space.sealed_memtable_count() >= SEALED_MAX;
    // Beyond twice the size one more is sealed, and the engine halts writes until the worker has caught up.
    if size > IN_MEMORY_BYTES && !waits || size > 2 * IN_MEMORY_BYTES {
        space.rotate_memtable()?;
    }
    Ok(())
}
