//! Kafka's frames: requests by their key, answers matched to them by the correlation id.
//!
//! Two answers tell the client where to connect: Metadata and FindCoordinator. The upstream port in them is replaced
//! by the proxy's. Both hosts are 127.0.0.1, so that nothing changes its length.

use std::collections::HashMap;
use std::io;
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use super::wire::{In, Out, pump, read_exactly};
use super::{Armed, Moment, Shared, Sight};

/// The requests that tests look out for, by their key in the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i16)]
pub enum Api {
    Produce = 0,
    Fetch = 1,
    JoinGroup = 11,
    Heartbeat = 12,
    InitProducerId = 22,
    AddOffsetsToTxn = 25,
    EndTxn = 26,
    TxnOffsetCommit = 28,
}

const METADATA: i16 = 3;
const FIND_COORDINATOR: i16 = 10;

struct Asked {
    api: i16,
    version: i16,
    armed: Option<Armed>,
}

pub fn serve(up: (TcpStream, TcpStream), down: (TcpStream, TcpStream), shared: &Arc<Shared>) {
    let asked: Arc<Mutex<HashMap<i32, Asked>>> = Arc::default();
    let answered = Arc::clone(&asked);
    let (seeing, placing) = (Arc::clone(shared), Arc::clone(shared));
    pump(up, shared, move |from, out| request(from, out, &seeing, &asked));
    pump(down, shared, move |from, out| answer(from, out, &placing, &answered));
}

fn request(from: &mut In, out: &mut Out, shared: &Shared, asked: &Mutex<HashMap<i32, Asked>>) -> io::Result<()> {
    let frame = read_frame(from)?;
    let mut reader = Reader { frame: &frame, at: 4 };
    let (api, version, correlation) = (reader.i16()?, reader.i16()?, reader.i32()?);
    let mut armed = shared.seen(|sight| matches!(sight, Sight::Kafka(wanted) if wanted as i16 == api));
    let moment = armed.as_ref().map(|armed| armed.moment);
    if moment == Some(Moment::Before) {
        out.fire(armed.take())?;
    }
    let during = if moment == Some(Moment::During) { armed.take() } else { None };
    asked.lock().expect("no panic while locked").insert(correlation, Asked { api, version, armed });
    out.write(&frame);
    out.fire(during)
}

fn answer(from: &mut In, out: &mut Out, shared: &Shared, asked: &Mutex<HashMap<i32, Asked>>) -> io::Result<()> {
    let mut frame = read_frame(from)?;
    let correlation = Reader { frame: &frame, at: 4 }.i32()?;
    let known = asked.lock().expect("no panic while locked").remove(&correlation);
    if let Some(Asked { api, version, armed }) = known {
        out.fire(armed)?;
        for at in ports(api, version, &frame).unwrap_or_else(|error| panic!("request {api} version {version}: {error}"))
        {
            let port = &mut frame[at..at + 4];
            if *port == i32::from(shared.upstream).to_be_bytes() {
                port.copy_from_slice(&i32::from(shared.port).to_be_bytes());
            }
        }
    }
    out.write(&frame);
    Ok(())
}

fn read_frame(from: &mut In) -> io::Result<Vec<u8>> {
    let mut frame = read_exactly(from, 4)?;
    let length = u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]]) as usize;
    frame.extend(read_exactly(from, length)?);
    Ok(frame)
}

/// Where in an answer ports stand that the client will connect to.
fn ports(api: i16, version: i16, frame: &[u8]) -> io::Result<Vec<usize>> {
    let mut reader = Reader { frame, at: 8 };
    match api {
        METADATA => {
            let flexible = version >= 9;
            reader.skip_if(flexible, Reader::tags)?;
            reader.skip_if(version >= 3, |reader| reader.i32().map(drop))?; // throttle time
            let brokers = reader.length(flexible, true)?.unwrap_or(0);
            (0..brokers)
                .map(|_| {
                    reader.i32()?;
                    reader.string(flexible)?;
                    let at = reader.at;
                    reader.i32()?;
                    reader.skip_if(version >= 1, |reader| reader.string(flexible))?; // rack
                    reader.skip_if(flexible, Reader::tags)?;
                    Ok(at)
                })
                .collect()
        }
        FIND_COORDINATOR => {
            let flexible = version >= 3;
            reader.skip_if(flexible, Reader::tags)?;
            reader.skip_if(version >= 1, |reader| reader.i32().map(drop))?; // throttle time
            if version < 4 {
                reader.i16()?;
                reader.skip_if(version >= 1, |reader| reader.string(flexible))?; // error's text
                reader.i32()?;
                reader.string(flexible)?;
                return Ok(vec![reader.at]);
            }
            let coordinators = reader.length(flexible, true)?.unwrap_or(0);
            (0..coordinators)
                .map(|_| {
                    reader.string(flexible)?; // key
                    reader.i32()?;
                    reader.string(flexible)?;
                    let at = reader.at;
                    reader.i32()?;
                    reader.i16()?;
                    reader.string(flexible)?;
                    reader.tags()?;
                    Ok(at)
                })
                .collect()
        }
        _ => Ok(vec![]),
    }
}

struct Reader<'a> {
    frame: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let bytes = self.frame.get(self.at..self.at + N).ok_or(io::ErrorKind::UnexpectedEof)?;
        self.at += N;
        Ok(bytes.try_into().expect("N bytes"))
    }

    fn i16(&mut self) -> io::Result<i16> {
        Ok(i16::from_be_bytes(self.take()?))
    }

    fn i32(&mut self) -> io::Result<i32> {
        Ok(i32::from_be_bytes(self.take()?))
    }

    fn varint(&mut self) -> io::Result<usize> {
        let mut value = 0;
        for shift in (0..35).step_by(7) {
            let [byte] = self.take()?;
            value |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(io::ErrorKind::InvalidData.into())
    }

    /// Length of an array (four bytes where it is not compact) or a string (two bytes); None is null.
    fn length(&mut self, flexible: bool, array: bool) -> io::Result<Option<usize>> {
        let length = match (flexible, array) {
            (true, _) => return Ok(self.varint()?.checked_sub(1)),
            (false, true) => self.i32()?,
            (false, false) => i32::from(self.i16()?),
        };
        Ok(usize::try_from(length).ok())
    }

    fn string(&mut self, flexible: bool) -> io::Result<()> {
        self.at += self.length(flexible, false)?.unwrap_or(0);
        Ok(())
    }

    fn tags(&mut self) -> io::Result<()> {
        for _ in 0..self.varint()? {
            self.varint()?;
            self.at += self.varint()?;
        }
        Ok(())
    }

    fn skip_if(&mut self, there: bool, skip: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        if there { skip(self) } else { Ok(()) }
    }
}
