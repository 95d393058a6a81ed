//! The demo's folder, which goes with it; where the demo was killed, with the next one.
//!
//! A folder is known as a demo's by the lock in it, which its demo holds as long as it lives. What has no lock, or
//! belongs to another user, is nobody's business here.

use std::fs::{DirBuilder, DirEntry, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::Context;

const NAME: &str = "semel-demo-";
const LOCK: &str = "semel-demo.lock";

/// A folder of its own that goes when this value goes.
pub struct Folder {
    pub path: PathBuf,
    _lock: File,
}

impl Folder {
    /// Makes one among the temporary files, and removes those of demos that were killed.
    pub fn make() -> anyhow::Result<Folder> {
        let beside = std::env::temp_dir();
        let path = beside.join(format!("{NAME}{}-{:08x}", std::process::id(), getrandom::u32()?));
        DirBuilder::new().mode(0o700).create(&path).with_context(|| format!("cannot make {}", path.display()))?;
        let lock = lock(&path).with_context(|| format!("cannot lock {}", path.display()))?;
        let folder = Folder { path, _lock: lock };
        // Another demo may be at it, and the next one tries again.
        let _ = remove_abandoned(&beside, &folder.path);
        Ok(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            eprintln!("semel: {} is left behind: {error}", self.path.display());
        }
    }
}

/// Under its name the lock is held from the first moment: nobody finds it free as long as this process lives.
fn lock(folder: &Path) -> io::Result<File> {
    let unnamed = folder.join("lock.new");
    let lock = File::create(&unnamed)?;
    lock.try_lock()?;
    std::fs::rename(unnamed, folder.join(LOCK))?;
    Ok(lock)
}

fn remove_abandoned(beside: &Path, own: &Path) -> io::Result<()> {
    let user = own.metadata()?.uid();
    let is_demos = |entry: &DirEntry| {
        let is_own = entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == user);
        is_own && entry.file_name().to_string_lossy().starts_with(NAME)
    };
    for entry in std::fs::read_dir(beside)?.filter_map(Result::ok).filter(is_demos) {
        let folder = entry.path();
        let Ok(lock) = File::open(folder.join(LOCK)) else { continue };
        if lock.try_lock().is_ok() {
            remove(&folder)?;
        }
    }
    Ok(())
}

/// The lock goes last: what could not be removed is still known as a demo's.
fn remove(folder: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)?.filter_map(Result::ok).filter(|entry| entry.file_name() != LOCK) {
        match entry.file_type()?.is_dir() {
            true => std::fs::remove_dir_all(entry.path())?,
            false => std::fs::remove_file(entry.path())?,
        }
    }
    std::fs::remove_dir_all(folder)
}
