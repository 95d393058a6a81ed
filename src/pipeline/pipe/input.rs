//! Where lines come from: a file, which can be read again from a position, or a stream, which cannot.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::time::{Duration, Instant};

use super::files::Identity;
use super::job::{InputMark, resolved};

/// Read at a time.
const CHUNK_BYTES: usize = 1 << 20;
/// How long the wish to end may go unnoticed while nothing comes.
const LOOK_UP: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub struct Input {
    pub file: File,
    pub mark: InputMark,
    /// Of a file, when it was opened.
    pub length: Option<u64>,
    chunk: Vec<u8>,
}

/// What a read brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Got {
    Bytes,
    /// Nothing within the time.
    Nothing,
    End,
}

impl Input {
    /// None: the standard input.
    pub fn open(path: Option<&Path>) -> io::Result<Input> {
        let (file, mark, length) = match path {
            None => {
                let file = File::from(io::stdin().as_fd().try_clone_to_owned()?);
                (file, InputMark::Stream { name: "standard input".into() }, None)
            }
            Some(path) => {
                let file = File::open(path)?;
                let metadata = file.metadata()?;
                if metadata.is_dir() {
                    return Err(io::Error::from(io::ErrorKind::IsADirectory));
                }
                let name = resolved(path)?.to_string_lossy().into_owned();
                if metadata.is_file() {
                    let identity = Identity::of(&file)?;
                    (file, InputMark::File { path: name, identity }, Some(metadata.len()))
                } else {
                    (file, InputMark::Stream { name }, None)
                }
            }
        };
        Ok(Input { file, mark, length, chunk: Vec::new() })
    }

    pub fn is_file(&self) -> bool {
        matches!(self.mark, InputMark::File { .. })
    }

    /// Appends what is at hand to `bytes`. Waits for up to `patience` (None: as long as it takes) for a first byte, or
    /// until `stop` says so.
    pub fn read(
        &mut self,
        bytes: &mut Vec<u8>,
        patience: Option<Duration>,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> io::Result<Got> {
        if self.is_file() {
            let read = (&self.file).take(CHUNK_BYTES as u64).read_to_end(bytes)?;
            return Ok(if read == 0 { Got::End } else { Got::Bytes });
        }
        if !self.wait(patience, stop)? {
            return Ok(Got::Nothing);
        }
        self.chunk.resize(CHUNK_BYTES, 0);
        loop {
            match (&self.file).read(&mut self.chunk) {
                Ok(0) => return Ok(Got::End),
                Ok(read) => {
                    bytes.extend_from_slice(&self.chunk[..read]);
                    return Ok(Got::Bytes);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A terminal or a socket that somebody else made non-blocking.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Got::Nothing),
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether something can be read, the end included.
    fn wait(&self, patience: Option<Duration>, stop: &(dyn Fn() -> bool + Sync)) -> io::Result<bool> {
        let begin = Instant::now();
        loop {
            let left = patience.map_or(LOOK_UP, |patience| patience.saturating_sub(begin.elapsed()));
            let slice = left.min(LOOK_UP);
            let mut asked = libc::pollfd { fd: self.file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            let timeout = i32::try_from(slice.as_millis()).unwrap_or(i32::MAX);
            // SAFETY: one descriptor of an open file.
            let ready = unsafe { libc::poll(&raw mut asked, 1, timeout) };
            if ready > 0 {
                return Ok(true);
            }
            let error = io::Error::last_os_error();
            if ready < 0 && error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
            if stop() || patience.is_some_and(|patience| begin.elapsed() >= patience) {
                return Ok(false);
            }
        }
    }
}
