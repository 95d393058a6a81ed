//! Files that stand in a job's record: which file it is, how long it was, and what its last bytes were.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Bytes before a position that must be the same when the position is used again.
const REMEMBERED_BYTES: usize = 4096;

/// What a file is, whatever its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub device: u64,
    pub inode: u64,
}

impl Identity {
    pub fn of(file: &File) -> io::Result<Identity> {
        let metadata = file.metadata()?;
        Ok(Identity { device: metadata.dev(), inode: metadata.ino() })
    }
}

/// The last bytes before a position.
#[derive(Debug, Clone, Default)]
pub struct Before(Vec<u8>);

impl Before {
    /// Those before `position` in a file.
    pub fn read(file: &File, position: u64) -> io::Result<Before> {
        let length = position.min(REMEMBERED_BYTES as u64);
        let mut bytes = vec![0; length as usize];
        file.read_exact_at(&mut bytes, position - length)?;
        Ok(Before(bytes))
    }

    pub fn push(&mut self, bytes: &[u8]) {
        let new = &bytes[bytes.len().saturating_sub(REMEMBERED_BYTES)..];
        let old = self.0.len().min(REMEMBERED_BYTES - new.len());
        self.0.drain(..self.0.len() - old);
        self.0.extend_from_slice(new);
    }

    pub fn digest(&self) -> String {
        hex::encode(&Sha256::digest(&self.0)[..16])
    }
}

/// A file as it stood when the record was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    pub path: String,
    pub identity: Identity,
    pub length: u64,
    /// Digest of the last bytes before `length`.
    pub before: String,
}

impl Mark {
    pub fn is_of(&self, path: &Path) -> bool {
        self.path == path.to_string_lossy()
    }
}

/// How to be rid of an unfinished job. Its claims stay, so that only another store knows nothing of them.
pub(super) const GIVE_UP: &str = "name another output, which gets what was not claimed yet, or everything if another \
                                  --store is named as well";

/// What can be done about a file that is not as it was left.
fn way_out(finished: bool, restore: &str) -> String {
    match finished {
        true => "move it away, and a new one is begun with what is new; or name another output".to_owned(),
        false => format!("{restore} to go on; to give the job up, {GIVE_UP}"),
    }
}

const PUT_BACK: &str = "move the former file back (a copy of it is another file)";
const RESTORE: &str = "write the former bytes into it again (a copy in its place is another file)";

/// Why a file is not written to.
#[derive(Debug, thiserror::Error)]
pub enum NotOurs {
    #[error(
        "{} exists, and this store has no record of having written it; nothing is overwritten: move it away, name another \
         file, or with --store the store that wrote it", path.display()
    )]
    Unknown { path: PathBuf },
    #[error("{} is not the file that was written before: it was replaced; {}", path.display(), way_out(*finished, PUT_BACK))]
    Replaced { path: PathBuf, finished: bool },
    #[error(
        "{} has {found} bytes, fewer than the {recorded} that were written; {}", path.display(), way_out(*finished, RESTORE)
    )]
    Short { path: PathBuf, finished: bool, found: u64, recorded: u64 },
    #[error(
        "{} has {found} bytes, more than the {recorded} that were written: somebody else added to it; cut it back to \
         {recorded} bytes, or {}", path.display(), way_out(true, "")
    )]
    Grown { path: PathBuf, found: u64, recorded: u64 },
    #[error(
        "{} was changed within the {recorded} bytes that were written; {}", path.display(), way_out(*finished, RESTORE)
    )]
    Changed { path: PathBuf, finished: bool, recorded: u64 },
    #[error(
        "{} is gone, but the job that writes it is not finished ({recorded} bytes were written); {}", path.display(),
        way_out(false, PUT_BACK)
    )]
    Gone { path: PathBuf, recorded: u64 },
    #[error("{} is being written by another process; wait for its end, or name another file", path.display())]
    InUse { path: PathBuf },
    #[error("{} cannot be opened", path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// A file that only this process extends, from the length in its record.
#[derive(Debug)]
pub struct KeptFile {
    path: PathBuf,
    file: File,
    identity: Identity,
    length: u64,
    before: Before,
    /// What was beyond the recorded length and was cut off.
    pub cut: u64,
}

impl KeptFile {
    /// Makes the file, where there is none or an empty one.
    pub fn make(path: &Path) -> Result<KeptFile, NotOurs> {
        let io = |source| NotOurs::Io { path: path.into(), source };
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(io)?;
        let kept = KeptFile::locked(path, file)?;
        if kept.file.metadata().map_err(io)?.len() > 0 {
            return Err(NotOurs::Unknown { path: path.into() });
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(io)?;
        Ok(kept)
    }

    /// Opens the file of a record. `finished`: the record is that of a job that came to its end. None: it is gone, and
    /// may be.
    pub fn reopen(path: &Path, mark: &Mark, finished: bool) -> Result<Option<KeptFile>, NotOurs> {
        let io = |source| NotOurs::Io { path: path.into(), source };
        let recorded = mark.length;
        let file = match OpenOptions::new().read(true).write(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && finished => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(NotOurs::Gone { path: path.into(), recorded });
            }
            file => file.map_err(io)?,
        };
        let mut kept = KeptFile::locked(path, file)?;
        let found = kept.file.metadata().map_err(io)?.len();
        if kept.identity != mark.identity {
            return Err(NotOurs::Replaced { path: path.into(), finished });
        }
        if found < recorded {
            return Err(NotOurs::Short { path: path.into(), finished, found, recorded });
        }
        kept.before = Before::read(&kept.file, recorded).map_err(io)?;
        if kept.before.digest() != mark.before {
            return Err(NotOurs::Changed { path: path.into(), finished, recorded });
        }
        if found > recorded {
            if finished {
                return Err(NotOurs::Grown { path: path.into(), found, recorded });
            }
            kept.file.set_len(recorded).and_then(|()| kept.file.sync_all()).map_err(io)?;
            kept.cut = found - recorded;
        }
        kept.length = recorded;
        kept.file.seek(SeekFrom::Start(recorded)).map_err(io)?;
        Ok(Some(kept))
    }

    fn locked(path: &Path, file: File) -> Result<KeptFile, NotOurs> {
        let io = |source| NotOurs::Io { path: path.into(), source };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(NotOurs::InUse { path: path.into() }),
            Err(TryLockError::Error(source)) => return Err(io(source)),
        }
        let identity = Identity::of(&file).map_err(io)?;
        Ok(KeptFile { path: path.into(), file, identity, length: 0, before: Before::default(), cut: 0 })
    }

    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.length += bytes.len() as u64;
        self.before.push(bytes);
        Ok(())
    }

    pub fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    pub fn mark(&self) -> Mark {
        Mark {
            path: self.path.to_string_lossy().into_owned(),
            identity: self.identity,
            length: self.length,
            before: self.before.digest(),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_bytes_are_remembered() {
        let bytes: Vec<u8> = (0..20_000_u32).map(|n| (n % 251) as u8).collect();
        for step in [1, 100, 4095, 4096, 4097, 10_000] {
            let mut before = Before::default();
            bytes.chunks(step).for_each(|chunk| before.push(chunk));
            assert_eq!(before.0, bytes[bytes.len() - 4096..], "in steps of {step}");
        }
    }

    /// What is done to a file of 6 recorded bytes, and what becomes of reopening it.
    #[test]
    fn a_file_is_taken_again_only_as_it_was_left() {
        type Deed = fn(&Path);
        let nothing: Deed = |_| {};
        let longer: Deed = |path| std::fs::write(path, "abcdefxyz").expect("written");
        let shorter: Deed = |path| std::fs::write(path, "abc").expect("written");
        let other: Deed = |path| std::fs::write(path, "abcdEf").expect("written");
        let copied: Deed = |path| {
            let copy = path.with_extension("copy");
            std::fs::copy(path, &copy).and_then(|_| std::fs::rename(&copy, path)).expect("replaced");
        };
        let gone: Deed = |path| std::fs::remove_file(path).expect("removed");
        let cases: [(&str, Deed, &str, &str); 6] = [
            ("untouched", nothing, "6", "6"),
            ("longer: the rest of a window that was not committed, or somebody else's", longer, "6", "Grown"),
            ("shorter", shorter, "Short", "Short"),
            ("another content", other, "Changed", "Changed"),
            ("a copy under the same name", copied, "Replaced", "Replaced"),
            ("gone", gone, "Gone", "none"),
        ];
        for (why, deed, unfinished, finished) in cases {
            for (finished, right) in [(false, unfinished), (true, finished)] {
                let folder = tempfile::tempdir().expect("a folder");
                let path = folder.path().join("out");
                let mut kept = KeptFile::make(&path).expect("made");
                kept.write(b"abcdef").expect("written");
                let mark = kept.mark();
                drop(kept);
                deed(&path);
                let found = match KeptFile::reopen(&path, &mark, finished) {
                    Ok(Some(kept)) => {
                        assert_eq!(std::fs::read(&path).expect("read"), b"abcdef", "{why}");
                        kept.mark().length.to_string()
                    }
                    Ok(None) => "none".into(),
                    Err(NotOurs::Io { .. }) => "Io".into(),
                    Err(refused) => format!("{refused:?}").split(' ').next().unwrap_or_default().to_owned(),
                };
                assert_eq!(found, right, "{why}, finished: {finished}");
            }
        }
    }

    #[test]
    fn a_new_file_never_takes_the_place_of_another() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("out");
        std::fs::write(&path, "precious").expect("written");
        assert!(matches!(KeptFile::make(&path), Err(NotOurs::Unknown { .. })));
        assert_eq!(std::fs::read(&path).expect("read"), b"precious");
        std::fs::write(&path, "").expect("written");
        let kept = KeptFile::make(&path).expect("an empty file has nothing to lose");
        assert!(matches!(KeptFile::make(&path), Err(NotOurs::InUse { .. })), "one writer at a time");
        drop(kept);
    }
}
