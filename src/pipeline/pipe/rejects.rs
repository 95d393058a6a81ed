//! Lines that could not be claimed, one JSON object a line: nothing that was read disappears.
//!
//! ```json
//! {"cause":"missing-id","detail":"the message has no event id","input":"/data/in.ndjson","line":17,"position":5012,"text":"{}"}
//! ```
//!
//! `text` is the line without its end; where that is not UTF-8 it is `base64` instead. A line that is too long comes in
//! pieces, numbered from 0 by `piece`; the last one has `"last":true`.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Serialize;

use super::files::{KeptFile, Mark, NotOurs};
use super::keyer::Cause;
use super::lines::Piece;

#[derive(Debug, Serialize)]
struct Record<'a> {
    cause: &'static str,
    detail: String,
    input: &'a str,
    line: u64,
    /// Of the line's first byte.
    position: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    piece: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

/// A line that is rejected, and where it stood.
#[derive(Debug)]
pub struct Rejected<'a> {
    pub cause: &'a Cause,
    pub input: &'a str,
    pub line: u64,
    pub position: u64,
    pub piece: Option<Piece>,
    pub content: &'a [u8],
}

impl Rejected<'_> {
    pub fn write(&self, out: &mut Vec<u8>) {
        let text = std::str::from_utf8(self.content).ok();
        let record = Record {
            cause: self.cause.word(),
            detail: self.cause.to_string(),
            input: self.input,
            line: self.line,
            position: self.position,
            piece: self.piece.map(|piece| piece.of.pieces),
            last: self.piece.map(|piece| piece.last),
            text,
            base64: text.is_none().then(|| BASE64_STANDARD.encode(self.content)),
        };
        serde_json::to_writer(&mut *out, &record).expect("plain values are written to memory");
        out.push(b'\n');
    }
}

/// Where rejected lines go.
#[derive(Debug)]
pub enum Rejects {
    /// Beside an output file: of exactly the recorded length. Made when the first line is rejected.
    Kept { path: PathBuf, file: Option<KeptFile> },
    /// Beside a stream: appended to whatever is there.
    Appended { path: PathBuf, file: Option<File> },
}

impl Rejects {
    /// `mark`: of the job's record.
    pub fn kept(path: PathBuf, mark: Option<&Mark>, finished: bool) -> Result<Rejects, NotOurs> {
        let file = match mark {
            Some(mark) if mark.is_of(&path) => KeptFile::reopen(&path, mark, finished)?,
            _ => None,
        };
        if file.is_none() && std::fs::metadata(&path).is_ok_and(|metadata| metadata.len() > 0) {
            return Err(NotOurs::Unknown { path });
        }
        Ok(Rejects::Kept { path, file })
    }

    pub fn appended(path: PathBuf) -> Rejects {
        Rejects::Appended { path, file: None }
    }

    pub fn path(&self) -> &Path {
        match self {
            Rejects::Kept { path, .. } | Rejects::Appended { path, .. } => path,
        }
    }

    /// Makes the file if it is not there yet. `true`: it is to be recorded before anything is written to it.
    pub fn make(&mut self) -> Result<bool, NotOurs> {
        match self {
            Rejects::Kept { path, file: file @ None } => {
                *file = Some(KeptFile::make(path)?);
                Ok(true)
            }
            Rejects::Appended { path, file: file @ None } => {
                let opened = OpenOptions::new().append(true).create(true).open(&*path);
                *file = Some(opened.map_err(|source| NotOurs::Io { path: path.clone(), source })?);
                Ok(false)
            }
            _ => Ok(false),
        }
    }

    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Rejects::Kept { file: Some(file), .. } => file.write(bytes),
            Rejects::Appended { file: Some(file), .. } => file.write_all(bytes),
            _ => Err(io::Error::other("the file for rejected lines was not made")),
        }
    }

    pub fn sync(&mut self) -> io::Result<()> {
        match self {
            Rejects::Kept { file: Some(file), .. } => file.sync(),
            Rejects::Appended { file: Some(file), .. } => file.sync_data(),
            _ => Ok(()),
        }
    }

    pub fn mark(&self) -> Option<Mark> {
        match self {
            Rejects::Kept { file, .. } => file.as_ref().map(KeptFile::mark),
            Rejects::Appended { .. } => None,
        }
    }
}
