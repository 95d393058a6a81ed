//! The body of a request, chunk by chunk: decompressed, within its bounds in bytes and time.
//!
//! What is compressed is decoded in slices so small that even the most compressed one fits in memory many times over.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, Write};
use std::pin::Pin;

use axum::body::{Body, HttpBody};
use axum::http::header::{CONTENT_ENCODING, HeaderMap};
use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use tokio::time::{Instant, timeout_at};
use zstd::stream::raw::{DParameter, Decoder as RawZstd};
use zstd::stream::write::Decoder as ZstdDecoder;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    Identity,
    Gzip,
    Zstd,
}

impl Encoding {
    /// None where it is another one, or several.
    pub fn of(headers: &HeaderMap) -> Option<Encoding> {
        let mut given = headers.get_all(CONTENT_ENCODING).iter();
        let Some(encoding) = given.next() else { return Some(Encoding::Identity) };
        let text = encoding.to_str().ok()?.trim();
        let is = |name: &str| text.eq_ignore_ascii_case(name);
        match given.next() {
            Some(_) => None,
            None if is("identity") => Some(Encoding::Identity),
            None if is("gzip") || is("x-gzip") => Some(Encoding::Gzip),
            None if is("zstd") => Some(Encoding::Zstd),
            None => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyError {
    /// The connection was lost, or what it carried is no HTTP.
    Broken,
    Large,
    Encoding,
    Late,
}

/// Of zstd's window, as its RFC recommends: 8 MiB.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;
/// A gzip stream grows at most about a thousandfold, a frame of zstd to 128 KiB from 4 bytes.
const GZIP_SLICE: usize = 1 << 10;
const ZSTD_SLICE: usize = 32;

pub struct Chunks {
    body: Body,
    decoder: Decoder,
    bytes_max: u64,
    /// On the wire.
    received: u64,
    decoded: u64,
    /// Received and not decoded yet.
    waiting: VecDeque<Bytes>,
    ended: bool,
    deadline: Instant,
}

enum Decoder {
    Identity,
    Gzip(Box<MultiGzDecoder<Vec<u8>>>),
    Zstd(Box<ZstdDecoder<'static, Vec<u8>>>),
}

impl Chunks {
    /// `bytes_max` holds before and after decompression.
    pub fn new(body: Body, encoding: Encoding, bytes_max: u64, deadline: Instant) -> Result<Chunks, BodyError> {
        if body.size_hint().lower() > bytes_max {
            return Err(BodyError::Large);
        }
        let decoder = Decoder::new(encoding).map_err(|_| BodyError::Encoding)?;
        let waiting = VecDeque::new();
        Ok(Chunks { body, decoder, bytes_max, received: 0, decoded: 0, waiting, ended: false, deadline })
    }

    /// The next decoded bytes, never empty; None at the end of the body.
    ///
    /// Cancel safety: nothing is lost.
    pub async fn next(&mut self) -> Result<Option<Bytes>, BodyError> {
        loop {
            if let Some(decoded) = self.decode().map_err(|_| BodyError::Encoding)? {
                self.decoded += decoded.len() as u64;
                return if self.decoded > self.bytes_max { Err(BodyError::Large) } else { Ok(Some(decoded)) };
            }
            if self.ended {
                return Ok(None);
            }
            let frame = poll_fn(|context| Pin::new(&mut self.body).poll_frame(context));
            match timeout_at(self.deadline, frame).await {
                Err(_) => return Err(BodyError::Late),
                Ok(Some(Err(_))) => return Err(BodyError::Broken),
                Ok(Some(Ok(frame))) => {
                    let Ok(data) = frame.into_data() else { continue };
                    self.received += data.len() as u64;
                    if self.received > self.bytes_max {
                        return Err(BodyError::Large);
                    }
                    self.waiting.push_back(data);
                }
                Ok(None) => self.ended = true,
            }
        }
    }

    fn decode(&mut self) -> io::Result<Option<Bytes>> {
        while let Some(mut chunk) = self.waiting.pop_front() {
            let slice = chunk.split_to(chunk.len().min(self.decoder.slice()));
            if !chunk.is_empty() {
                self.waiting.push_front(chunk);
            }
            let decoded = self.decoder.push(slice)?;
            if !decoded.is_empty() {
                return Ok(Some(decoded));
            }
        }
        if !self.ended {
            return Ok(None);
        }
        let rest = std::mem::replace(&mut self.decoder, Decoder::Identity).finish()?;
        Ok((!rest.is_empty()).then(|| rest.into()))
    }
}

impl Decoder {
    fn new(encoding: Encoding) -> io::Result<Decoder> {
        Ok(match encoding {
            Encoding::Identity => Decoder::Identity,
            Encoding::Gzip => Decoder::Gzip(Box::new(MultiGzDecoder::new(Vec::new()))),
            Encoding::Zstd => {
                let mut raw = RawZstd::new()?;
                raw.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG_MAX))?;
                Decoder::Zstd(Box::new(ZstdDecoder::with_decoder(Vec::new(), raw)))
            }
        })
    }

    /// Most bytes to be pushed at once.
    fn slice(&self) -> usize {
        match self {
            Decoder::Identity => usize::MAX,
            Decoder::Gzip(_) => GZIP_SLICE,
            Decoder::Zstd(_) => ZSTD_SLICE,
        }
    }

    fn push(&mut self, slice: Bytes) -> io::Result<Bytes> {
        let decoded = match self {
            Decoder::Identity => return Ok(slice),
            Decoder::Gzip(decoder) => {
                decoder.write_all(&slice)?;
                decoder.flush()?;
                decoder.get_mut()
            }
            Decoder::Zstd(decoder) => {
                decoder.write_all(&slice)?;
                decoder.flush()?;
                decoder.get_mut()
            }
        };
        Ok(std::mem::take(decoded).into())
    }

    /// An error where the stream is not whole.
    fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Decoder::Identity => Ok(Vec::new()),
            Decoder::Gzip(decoder) => decoder.finish(),
            Decoder::Zstd(decoder) => decoder.finish(),
        }
    }
}

#[cfg(test)]
#[path = "body_tests.rs"]
mod tests;
