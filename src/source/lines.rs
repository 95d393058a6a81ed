//! Lines (NDJSON) from the standard input or a file, as deliveries.
//!
//! Nobody can be asked to send a line again: what is not acknowledged is kept here and comes back while the process
//! lives, and is gone with it. So nothing is lost while the process lives, and after a crash the sender repeats, from
//! wherever it likes: what was claimed is dropped. (`semel pipe` knows more of files and repeats by itself.)
//!
//! A thread of its own reads, since a read of the standard input cannot be called off; it ends with the process, or when
//! nobody takes its lines any more. It reads at most a chunk beyond what was taken. Blank lines are nothing. A line of
//! more than [`LINE_BYTES_MAX`] ends the source with an error that says where: it is no message, and its pieces are none.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::PathBuf;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::split::{LINE_BYTES_MAX, Splitter};
use super::{Delivery, Gather, Received, Seen, Source, SourceError, Tag};
use crate::message::Message;

/// Read at a time.
const CHUNK_BYTES: usize = 256 << 10;
/// There is one connection for ever: the process.
const CONNECTION: u64 = 1;

#[derive(Debug, Clone)]
pub struct LinesOptions {
    /// None: the standard input.
    pub path: Option<PathBuf>,
    /// Most lines that are out at a time.
    pub prefetch: usize,
}

pub struct LinesSource {
    options: LinesOptions,
    name: String,
    /// None before the first receive.
    lines: Option<mpsc::Receiver<io::Result<Vec<Bytes>>>>,
    /// Read or handed back, not handed out.
    ready: VecDeque<Message>,
    out: BTreeMap<u64, Message>,
    number: u64,
    ended: bool,
}

impl LinesSource {
    pub fn new(options: LinesOptions) -> LinesSource {
        let name = options.path.as_ref().map_or("stdin".into(), |path| path.display().to_string());
        let (ready, out) = (VecDeque::new(), BTreeMap::new());
        LinesSource { options, name, lines: None, ready, out, number: 0, ended: false }
    }

    /// Another chunk of lines; false where none came in time or none will.
    async fn more(&mut self, until: Instant) -> Result<bool, SourceError> {
        if self.ended {
            return Ok(false);
        }
        let lines = match &mut self.lines {
            Some(lines) => lines,
            None => self.lines.insert(read(&self.options).map_err(|error| refused(&self.name, error))?),
        };
        match timeout_at(until, lines.recv()).await {
            Err(_) => Ok(false),
            Ok(Some(Ok(lines))) => {
                let message = |line| Message { value: Some(line), ..Message::default() };
                self.ready.extend(lines.into_iter().map(message));
                Ok(true)
            }
            Ok(Some(Err(error))) => Err(refused(&self.name, error)),
            Ok(None) => {
                self.ended = true;
                Ok(false)
            }
        }
    }

    fn hand_back_all(&mut self) {
        for (_, message) in std::mem::take(&mut self.out).into_iter().rev() {
            self.ready.push_front(message);
        }
    }
}

fn refused(name: &str, error: io::Error) -> SourceError {
    SourceError::Refused(format!("{name}: {error}").into())
}

#[async_trait]
impl Source for LinesSource {
    fn name(&self) -> &str {
        &self.name
    }

    async fn receive(&mut self, gather: Gather) -> Result<Received, SourceError> {
        let first_until = Instant::now() + gather.wait;
        let room = gather.messages_max.min(self.options.prefetch.saturating_sub(self.out.len()));
        let mut bytes: usize = self.ready.iter().map(Message::size).sum();
        while self.ready.len() < room && bytes < gather.bytes_max {
            let until = if self.ready.is_empty() { first_until } else { Instant::now() + gather.linger };
            if !self.more(until).await? {
                break;
            }
            bytes = self.ready.iter().map(Message::size).sum();
        }
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while let Some(message) = self.ready.front().filter(|_| taken.len() < room) {
            bytes += message.size();
            if !taken.is_empty() && bytes > gather.bytes_max {
                break;
            }
            let Some(message) = self.ready.pop_front() else { break };
            self.number += 1;
            self.out.insert(self.number, message.clone());
            taken.push(Delivery { tag: Tag { connection: CONNECTION, number: self.number }, message });
        }
        // What is out may be handed back.
        let over = self.ended && taken.is_empty() && self.out.is_empty() && self.ready.is_empty();
        Ok(if over { Received::End } else { Received::Deliveries(taken) })
    }

    async fn acknowledge(&mut self, tags: &[Tag]) -> Result<(), SourceError> {
        tags.iter().for_each(|tag| drop(self.out.remove(&tag.number)));
        Ok(())
    }

    async fn hand_back(&mut self, tags: &[Tag]) -> Result<(), SourceError> {
        let back = tags.iter().filter_map(|tag| self.out.remove(&tag.number));
        self.ready.extend(back);
        Ok(())
    }

    async fn pause(&mut self) -> Result<(), SourceError> {
        self.hand_back_all();
        Ok(())
    }

    async fn check(&self) -> Result<Seen, SourceError> {
        let path = self.options.path.as_deref();
        path.map_or(Ok(()), |path| File::open(path).map(drop)).map_err(|error| refused(&self.name, error))?;
        Ok(Seen { found: "it is read to its end by one process".to_owned(), warnings: Vec::new() })
    }
}

/// Begins to read; a file that cannot be opened is told at once.
fn read(options: &LinesOptions) -> io::Result<mpsc::Receiver<io::Result<Vec<Bytes>>>> {
    let input = match &options.path {
        None => File::from(io::stdin().as_fd().try_clone_to_owned()?),
        Some(path) => File::open(path)?,
    };
    let (sender, lines) = mpsc::channel(1);
    std::thread::Builder::new().name("lines".into()).spawn(move || {
        let ended = split(input, &mut |lines| sender.blocking_send(Ok(lines)).is_ok());
        if let Err(error) = ended {
            drop(sender.blocking_send(Err(error)));
        }
    })?;
    Ok(lines)
}

/// Passes lines on, chunk by chunk, until `pass` wants no more.
fn split(mut input: impl Read, pass: &mut dyn FnMut(Vec<Bytes>) -> bool) -> io::Result<()> {
    let (mut bytes, mut origin, mut number) = (Vec::new(), 0_u64, 1_u64);
    let mut splitter = Splitter::new(None, LINE_BYTES_MAX);
    loop {
        let begin = bytes.len();
        bytes.resize(begin + CHUNK_BYTES, 0);
        let read = match input.read(&mut bytes[begin..]) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                bytes.truncate(begin);
                continue;
            }
            Err(error) => return Err(error),
        };
        bytes.truncate(begin + read);
        let (mut lines, mut is_too_long) = (Vec::new(), false);
        while let Some(span) = splitter.next(&bytes, origin, read == 0) {
            is_too_long = span.piece.is_some();
            if is_too_long {
                break;
            }
            let line = span.content(&bytes);
            if !line.trim_ascii().is_empty() {
                lines.push(Bytes::copy_from_slice(line));
            }
            number += 1;
        }
        let (done, _) = splitter.state();
        bytes.drain(..done);
        origin += done as u64;
        splitter = Splitter::new(None, LINE_BYTES_MAX);
        if !lines.is_empty() && !pass(lines) || read == 0 && !is_too_long {
            return Ok(());
        }
        if is_too_long {
            let limit = LINE_BYTES_MAX >> 20;
            return Err(io::Error::other(format!("line {number} is longer than {limit} MiB")));
        }
    }
}

#[cfg(test)]
#[path = "lines_tests.rs"]
mod tests;
