//! Where forwarded lines go: a file that is extended from its recorded length, or a stream.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;

use super::files::{KeptFile, Mark};

/// What a window's lines are written to.
pub trait Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// When it returns, what was written will stay, as far as that can be had.
    fn sync(&mut self) -> io::Result<()>;

    /// Where it stands now. None for a stream.
    fn mark(&self) -> Option<Mark>;
}

impl Output for KeptFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        KeptFile::write(self, bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        KeptFile::sync(self)
    }

    fn mark(&self) -> Option<Mark> {
        Some(KeptFile::mark(self))
    }
}

/// The standard output, a pipe, a device.
#[derive(Debug)]
pub struct Stream {
    file: File,
    /// Redirected into a file, which can be synced but not taken up again.
    is_file: bool,
}

impl Stream {
    pub fn standard_output() -> io::Result<Stream> {
        Stream::of(File::from(io::stdout().as_fd().try_clone_to_owned()?))
    }

    pub fn open(path: &Path) -> io::Result<Stream> {
        Stream::of(OpenOptions::new().write(true).open(path)?)
    }

    fn of(file: File) -> io::Result<Stream> {
        let is_file = file.metadata()?.is_file();
        Ok(Stream { file, is_file })
    }

    pub fn file(&self) -> &File {
        &self.file
    }
}

impl Output for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.is_file { self.file.sync_data() } else { Ok(()) }
    }

    fn mark(&self) -> Option<Mark> {
        None
    }
}
