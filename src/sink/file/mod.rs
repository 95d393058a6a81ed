//! Messages as lines, appended to files of their own.
//!
//! **Confirmed means synced.** A call writes the lines of each file at once and syncs it. What fails is cut off again,
//! back to the length before, and was surely not stored; where even that fails it is in doubt.
//!
//! **A line is whole or it is not there.** A crash may leave the beginning of a line that nobody was told of. Whoever
//! opens the file next puts it aside, into `FILE.torn`, so that no line goes on from it; nothing is thrown away, since
//! the file may have had another owner.
//!
//! **One writer.** The file is locked as long as it is open. It may be moved away at any time (log rotation): the next
//! call makes a new one.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::Mutex;

use super::{Destination, Doubt, Outgoing, Published, Sink, SinkError};

mod line;

pub use line::Format;

/// Of the end of a file that is searched at a time for its last line.
const BLOCK: u64 = 64 * 1024;

#[derive(Debug, Clone)]
pub struct FileOptions {
    pub path: PathBuf,
    /// Of everything but dead letters, which are always records.
    pub format: Format,
    pub dead_letter: Option<PathBuf>,
    pub duplicates: Option<PathBuf>,
}

/// Its clones write to the same open files, one after the other.
#[derive(Debug, Clone)]
pub struct FileSink {
    options: Arc<FileOptions>,
    open: Arc<Mutex<Open>>,
}

type Open = [Option<Kept>; 3];

const DESTINATIONS: [Destination; 3] = [Destination::Forward, Destination::DeadLetter, Destination::Duplicates];

fn index(destination: Destination) -> usize {
    match destination {
        Destination::Forward => 0,
        Destination::DeadLetter => 1,
        Destination::Duplicates => 2,
    }
}

impl FileSink {
    pub fn new(options: FileOptions) -> FileSink {
        FileSink { options: Arc::new(options), open: Arc::default() }
    }

    fn path(&self, destination: Destination) -> Option<&Path> {
        match destination {
            Destination::Forward => Some(&self.options.path),
            Destination::DeadLetter => self.options.dead_letter.as_deref(),
            Destination::Duplicates => self.options.duplicates.as_deref(),
        }
    }

    fn format(&self, destination: Destination) -> Format {
        if destination == Destination::DeadLetter { Format::Record } else { self.options.format }
    }

    /// Opens what is not open, or was moved away. False where nobody named that file.
    fn open(&self, open: &mut Open, destination: Destination) -> Result<bool, Error> {
        let Some(path) = self.path(destination) else { return Ok(false) };
        let kept = &mut open[index(destination)];
        if !kept.as_ref().is_some_and(|kept| kept.is_at(path)) {
            *kept = None;
            *kept = Some(Kept::open(path)?);
        }
        Ok(true)
    }

    fn unset(destination: Destination) -> String {
        format!("no file is set for {destination:?}")
    }

    /// How many of the messages, from the first, have a file and a line, and what becomes of the one behind them.
    fn ready(&self, open: &mut Open, messages: &[Outgoing]) -> (usize, Published) {
        for destination in DESTINATIONS {
            let Some(first) = messages.iter().position(|outgoing| outgoing.destination == destination) else {
                continue;
            };
            match self.open(open, destination) {
                Ok(true) => {}
                Ok(false) => return (first, Published::Refused(FileSink::unset(destination))),
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "a file cannot be written to");
                    return (first, Published::NotSent);
                }
            }
        }
        let unfit = messages.iter().enumerate().find_map(|(n, outgoing)| Some((n, self.unfit(outgoing)?)));
        match unfit {
            Some((n, why)) => (n, Published::Refused(why)),
            None => (messages.len(), Published::NotSent),
        }
    }

    fn lines(&self, destination: Destination, messages: &[Outgoing]) -> Result<Vec<u8>, serde_json::Error> {
        let mut lines = Vec::new();
        let own = messages.iter().filter(|outgoing| outgoing.destination == destination);
        own.into_iter().try_for_each(|outgoing| self.format(destination).write(outgoing, &mut lines))?;
        Ok(lines)
    }
}

#[async_trait]
impl Sink for FileSink {
    async fn publish(&mut self, messages: &[Outgoing]) -> Vec<Published> {
        let mut open = self.open.lock().await;
        let (ready, behind) = self.ready(&mut open, messages);
        let (sent, rest) = messages.split_at(ready);
        let mut answers = vec![Published::Confirmed; ready];
        for destination in DESTINATIONS {
            let failed = match self.lines(destination, sent) {
                Err(error) => Some(Published::Refused(error.to_string())),
                Ok(lines) if lines.is_empty() => None,
                Ok(lines) => {
                    let Some(kept) = open[index(destination)].take() else { continue };
                    match tokio::task::spawn_blocking(move || kept.append(&lines)).await {
                        Ok((kept, failed)) => {
                            open[index(destination)] = kept;
                            failed
                        }
                        Err(panicked) => Some(Published::InDoubt(Doubt::silent(panicked.to_string()))),
                    }
                }
            };
            if let Some(failed) = failed {
                let own = sent.iter().zip(&mut answers).filter(|(outgoing, _)| outgoing.destination == destination);
                own.for_each(|(_, answer)| *answer = failed.clone());
            }
        }
        answers.extend(rest.iter().enumerate().map(|(n, _)| if n == 0 { behind.clone() } else { Published::NotSent }));
        answers
    }

    fn unfit(&self, outgoing: &Outgoing) -> Option<String> {
        match self.path(outgoing.destination) {
            None => Some(FileSink::unset(outgoing.destination)),
            Some(_) => self.format(outgoing.destination).unfit(outgoing),
        }
    }

    async fn check(&mut self) -> Result<(), SinkError> {
        let mut open = self.open.lock().await;
        for destination in DESTINATIONS {
            match self.open(&mut open, destination) {
                Ok(_) => {}
                Err(Error::Locked(path)) => return Err(SinkError::Lost(Box::new(Error::Locked(path)))),
                Err(error) => return Err(SinkError::Refused(Box::new(error))),
            }
        }
        Ok(())
    }
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("{0}: another process writes to it: give each instance a file of its own")]
    Locked(PathBuf),
    #[error("{0}: it is not a regular file")]
    Irregular(PathBuf),
    #[error("{0}")]
    Io(PathBuf, #[source] io::Error),
}

/// A file that is open, locked, and ends with a whole line.
#[derive(Debug)]
struct Kept {
    path: PathBuf,
    file: File,
}

impl Kept {
    fn open(path: &Path) -> Result<Kept, Error> {
        let failed = |error| Error::Io(path.to_owned(), error);
        let is_new = !path.exists();
        let file = OpenOptions::new().read(true).append(true).create(true).open(path).map_err(failed)?;
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(Error::Irregular(path.to_owned()));
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => return Err(Error::Locked(path.to_owned())),
            Err(std::fs::TryLockError::Error(error)) => return Err(failed(error)),
        }
        let mut kept = Kept { path: path.to_owned(), file };
        kept.put_aside_what_is_torn().map_err(failed)?;
        if is_new {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)?;
        }
        Ok(kept)
    }

    fn is_at(&self, path: &Path) -> bool {
        let which = |found: io::Result<std::fs::Metadata>| found.ok().map(|found| (found.dev(), found.ino()));
        path.exists() && which(self.file.metadata()) == which(path.metadata())
    }

    fn put_aside_what_is_torn(&mut self) -> io::Result<()> {
        let length = self.file.metadata()?.len();
        let whole = self.whole_lines(length)?;
        if whole == length {
            return Ok(());
        }
        let mut torn = Vec::new();
        self.file.seek(SeekFrom::Start(whole))?;
        self.file.read_to_end(&mut torn)?;
        let mut aside = self.path.clone().into_os_string();
        aside.push(".torn");
        let mut file = OpenOptions::new().append(true).create(true).open(&aside)?;
        torn.push(b'\n');
        file.write_all(&torn)?;
        file.sync_all()?;
        self.file.set_len(whole)?;
        let (path, aside) = (self.path.display(), Path::new(&aside).display());
        tracing::warn!("{path} ended within a line, after {whole} bytes: what a crash left there is in {aside} now");
        Ok(())
    }

    /// The length up to the last line break, in bytes.
    fn whole_lines(&mut self, length: u64) -> io::Result<u64> {
        let mut end = length;
        while end > 0 {
            let begin = end.saturating_sub(BLOCK);
            let mut block = Vec::new();
            self.file.seek(SeekFrom::Start(begin))?;
            (&self.file).take(end - begin).read_to_end(&mut block)?;
            if let Some(at) = block.iter().rposition(|byte| *byte == b'\n') {
                return Ok(begin + at as u64 + 1);
            }
            end = begin;
        }
        Ok(0)
    }

    /// All of them or none, synced. The file is gone where it is not known to end with a whole line.
    fn append(mut self, lines: &[u8]) -> (Option<Kept>, Option<Published>) {
        let length = match self.file.metadata() {
            Ok(metadata) => metadata.len(),
            Err(error) => return (None, Some(Published::Refused(self.told(error)))),
        };
        let written = self.file.write_all(lines).and_then(|()| self.file.sync_data());
        let Err(error) = written else { return (Some(self), None) };
        let why = self.told(error);
        match self.file.set_len(length).and_then(|()| self.file.sync_all()) {
            Ok(()) => (Some(self), Some(Published::Refused(why))),
            Err(error) => {
                let why = format!("{why}; and it cannot be cut back to {length} bytes: {error}");
                (None, Some(Published::InDoubt(Doubt::silent(why))))
            }
        }
    }

    fn told(&self, error: io::Error) -> String {
        format!("{}: {error}", self.path.display())
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
