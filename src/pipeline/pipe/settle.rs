//! The steps that settle one window, in the order that makes them safe.
//!
//! | step | a crash right behind it leaves |
//! | --- | --- |
//! | 1 judge: ask the store for each id, in memory | nothing |
//! | 2 write rejected and forwarded lines | lines beyond the recorded lengths, cut off at the next start |
//! | 3 sync both files | the same |
//! | 4 one batch: claims, lengths, position | everything |
//!
//! So a claim is durable exactly when its line is, and a line is read again exactly when neither is. Beside a stream
//! there is no length to record: step 4 has the claims alone, and a crash between 2 and 4 repeats the window's lines.
//!
//! A file for rejected lines is made when the first one comes, and recorded with length 0 before it is written to:
//! otherwise a crash would leave a file with content that nobody has a record of.

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::files::{Before, NotOurs};
use super::job::Job;
use super::keyer::Fate;
use super::output::Output;
use super::reader::{Then, Window};
use super::rejects::{Rejected, Rejects};
use super::report::{Causes, Counts};
use crate::clock::SharedClock;
use crate::protocol::event::Week;
use crate::store::StoreError;
use crate::store::embedded::{Draft, EmbeddedStore};

#[derive(Debug, thiserror::Error)]
pub enum SettleError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Rejects(#[from] NotOurs),
    #[error("cannot write to {}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// Everything that a window goes through behind the reader.
pub struct Settler<'a> {
    pub store: &'a EmbeddedStore,
    pub clock: SharedClock,
    /// The input's name.
    pub input: Arc<str>,
    pub output: Box<dyn Output>,
    /// The output's name, for errors.
    pub output_path: PathBuf,
    pub rejects: Rejects,
    /// None beside a stream.
    pub job: Option<(Vec<u8>, Job)>,
    /// The input's last bytes before the job's place.
    pub before: Before,
    pub causes: Causes,
    pub scratch: Scratch,
}

/// What is used again for each window.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Weeks that are known to have room.
    weeks: HashSet<Week>,
    forwarded: Vec<u8>,
    rejected: Vec<u8>,
}

impl Settler<'_> {
    /// Settles a window. After an error nothing more may be settled: only a new start knows what is on disk.
    pub fn settle(&mut self, window: &Window) -> Result<Counts, SettleError> {
        if window.rejects_any() && self.rejects.make()? {
            self.record_rejects()?;
        }
        let mut draft = self.store.draft(self.clock.now())?;
        let counts = self.judge(window, &mut draft)?;
        self.write()?;
        self.before.push(&window.bytes);
        if let Some((name, job)) = &mut self.job {
            job.counts.add(&counts);
            job.place = window.ends;
            job.too_long = window.too_long;
            job.before = self.before.digest();
            job.output = self.output.mark().unwrap_or_else(|| job.output.clone());
            job.rejects = self.rejects.mark();
            job.finished = matches!(window.then, Then::End);
            draft.note(name, &job.write());
        }
        draft.commit()?;
        Ok(counts)
    }

    fn record_rejects(&mut self) -> Result<(), SettleError> {
        let Some((name, job)) = &mut self.job else { return Ok(()) };
        job.rejects = self.rejects.mark();
        let mut draft = self.store.draft(self.clock.now())?;
        draft.note(name, &job.write());
        Ok(draft.commit()?)
    }

    /// Which lines are the first of their event.
    fn claim(&mut self, window: &Window, draft: &mut Draft<'_>) -> Result<Vec<bool>, SettleError> {
        let origin = draft.unlaned_origin(&self.input);
        let mut first = vec![false; window.lines.len()];
        let mut asked = None;
        for &n in &window.asking {
            let line = &window.lines[n as usize];
            let Fate::Claim(key) = &line.fate else { continue };
            // Of several lines with one key the first one asks.
            if asked == Some(key) {
                continue;
            }
            asked = Some(key);
            if self.scratch.weeks.insert(key.week()) {
                draft.make_week(key.week())?;
            }
            let position = window.begins.position + u64::from(line.start);
            first[n as usize] = draft.claim_unlaned(origin, key, position as i64)?;
        }
        Ok(first)
    }

    /// Claims what can be claimed, and collects what is to be written.
    fn judge(&mut self, window: &Window, draft: &mut Draft<'_>) -> Result<Counts, SettleError> {
        self.scratch.forwarded.clear();
        self.scratch.rejected.clear();
        let first = self.claim(window, draft)?;
        let mut counts = Counts::default();
        let read_before = self.job.as_ref().map_or(0, |(_, job)| job.read_before);
        let mut line_number = window.begins.line;
        for (n, line) in window.lines.iter().enumerate() {
            let position = window.begins.position + u64::from(line.start);
            let whole = &window.bytes[line.start as usize..line.end as usize];
            counts.read += u64::from(line.ends_line());
            if let Fate::Reject(cause) = &line.fate
                && line.ends_line()
            {
                self.causes.add(cause);
            }
            let forward = match &line.fate {
                Fate::Claim(_) if first[n] => {
                    counts.forwarded += 1;
                    true
                }
                Fate::Claim(_) => {
                    counts.duplicates += 1;
                    false
                }
                Fate::Forward | Fate::Reject(_) if position < read_before => {
                    counts.duplicates += u64::from(line.ends_line());
                    false
                }
                Fate::Forward => {
                    counts.unclaimed += 1;
                    true
                }
                Fate::Empty => {
                    counts.empty += 1;
                    false
                }
                Fate::Reject(cause) => {
                    counts.rejected += u64::from(line.ends_line());
                    let begins = line.piece.map_or(position, |piece| piece.of.begins);
                    let content = &whole[..whole.len() - usize::from(line.terminator)];
                    let (input, piece) = (&*self.input, line.piece);
                    Rejected { cause, input, line: line_number, position: begins, piece, content }
                        .write(&mut self.scratch.rejected);
                    false
                }
                // The reader ends a window before such a line.
                Fate::Stop(_) => false,
            };
            if forward {
                self.scratch.forwarded.extend_from_slice(whole);
                if line.terminator == 0 {
                    // The input's last line: the next feed must not go on in it.
                    self.scratch.forwarded.push(b'\n');
                }
            }
            line_number += u64::from(line.ends_line());
        }
        Ok(counts)
    }

    fn write(&mut self) -> Result<(), SettleError> {
        if !self.scratch.rejected.is_empty() {
            let rejects = &mut self.rejects;
            let written = rejects.write(&self.scratch.rejected).and_then(|()| rejects.sync());
            written.map_err(|source| SettleError::Write { path: self.rejects.path().into(), source })?;
        }
        if !self.scratch.forwarded.is_empty() {
            let written = self.output.write(&self.scratch.forwarded).and_then(|()| self.output.sync());
            written.map_err(|source| SettleError::Write { path: self.output_path.clone(), source })?;
        }
        Ok(())
    }
}
