//! PostgreSQL's frames, gathered to round trips: what the client sends up to a Sync (or one simple query), and what the
//! server answers up to ReadyForQuery. An autocommit statement is committed between the two; one in a transaction is
//! committed by the round trip of its COMMIT, and that is the one to be acted on.
//!
//! A round trip that is watched is kept back on its way: its requests until the Sync, its answers until ReadyForQuery.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use super::wire::{In, Out, pump, read_exactly};
use super::{Armed, Moment, Shared, Sight};

const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;
const CANCEL_REQUEST: u32 = 80_877_102;

/// What both directions of a connection know.
#[derive(Default)]
struct Dialogue {
    /// Answers of one byte that are due to requests for encryption.
    bytes_due: usize,
    /// Round trips whose ReadyForQuery is due.
    trips: VecDeque<Option<Armed>>,
}

/// The client's side: where its start-up is, the texts of its named statements, the round trip so far.
#[derive(Default)]
struct Client {
    started: bool,
    texts: HashMap<Vec<u8>, String>,
    gathered: Vec<u8>,
    bound: Vec<String>,
    in_transaction: bool,
    /// A watch whose statement was seen in an open transaction: its moment is the COMMIT's.
    due: Option<Armed>,
}

pub fn serve(up: (TcpStream, TcpStream), down: (TcpStream, TcpStream), shared: &Arc<Shared>) {
    let dialogue: Arc<Mutex<Dialogue>> = Arc::default();
    let answered = Arc::clone(&dialogue);
    let seeing = Arc::clone(shared);
    let (mut client, mut held) = (Client::default(), Vec::new());
    pump(up, shared, move |from, out| client.request(from, out, &seeing, &dialogue));
    pump(down, shared, move |from, out| answer(from, out, &answered, &mut held));
}

impl Client {
    fn request(&mut self, from: &mut In, out: &mut Out, shared: &Shared, dialogue: &Mutex<Dialogue>) -> io::Result<()> {
        if !self.started {
            return self.start(from, out, dialogue);
        }
        let frame = read_typed(from)?;
        let kind = frame[0];
        match kind {
            b'P' => self.parse(&frame[5..]),
            b'B' => self.bind(&frame[5..]),
            b'Q' => self.bound.extend(text_at(&frame[5..]).map(|(text, _)| text)),
            _ => {}
        }
        self.gathered.extend(frame);
        match kind {
            b'S' | b'Q' => self.round_trip(out, shared, dialogue),
            b'P' | b'B' | b'D' | b'E' | b'C' => Ok(()),
            _ => {
                out.write(&std::mem::take(&mut self.gathered));
                Ok(())
            }
        }
    }

    fn start(&mut self, from: &mut In, out: &mut Out, dialogue: &Mutex<Dialogue>) -> io::Result<()> {
        let mut frame = read_exactly(from, 8)?;
        let length = u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]]) as usize;
        let code = u32::from_be_bytes([frame[4], frame[5], frame[6], frame[7]]);
        frame.extend(read_exactly(from, length.saturating_sub(8))?);
        let mut dialogue = dialogue.lock().expect("no panic while locked");
        match code {
            SSL_REQUEST | GSS_REQUEST => dialogue.bytes_due += 1,
            CANCEL_REQUEST => {}
            _ => {
                self.started = true;
                dialogue.trips.push_back(None);
            }
        }
        out.write(&frame);
        Ok(())
    }

    fn parse(&mut self, body: &[u8]) {
        if let Some((name, rest)) = text_at(body)
            && let Some((text, _)) = text_at(rest)
        {
            self.texts.insert(name.into_bytes(), text);
        }
    }

    fn bind(&mut self, body: &[u8]) {
        if let Some((_, rest)) = text_at(body)
            && let Some((statement, _)) = text_at(rest)
        {
            self.bound.extend(self.texts.get(statement.as_bytes()).cloned());
        }
    }

    fn round_trip(&mut self, out: &mut Out, shared: &Shared, dialogue: &Mutex<Dialogue>) -> io::Result<()> {
        let (frames, bound) = (std::mem::take(&mut self.gathered), std::mem::take(&mut self.bound));
        let mut armed = None;
        if !bound.is_empty() {
            armed = shared.seen(|sight| matches!(sight, Sight::Sql(like) if bound.iter().any(|text| like(text))));
        }
        let moment = armed.as_ref().map(|armed| armed.moment);
        if moment == Some(Moment::Before) {
            out.fire(armed.take())?;
        }
        for text in &bound {
            match text.split([' ', ';']).next() {
                Some("BEGIN" | "START") => self.in_transaction = true,
                Some("COMMIT" | "ROLLBACK") => self.in_transaction = false,
                _ => {}
            }
        }
        armed = self.due.take().or(armed);
        if self.in_transaction {
            self.due = armed.take();
        }
        let moment = armed.as_ref().map(|armed| armed.moment);
        let during = if moment == Some(Moment::During) { armed.take() } else { None };
        dialogue.lock().expect("no panic while locked").trips.push_back(armed);
        out.write(&frames);
        out.fire(during)
    }
}

fn answer(from: &mut In, out: &mut Out, dialogue: &Mutex<Dialogue>, held: &mut Vec<u8>) -> io::Result<()> {
    let first = read_exactly(from, 1)?;
    {
        let mut dialogue = dialogue.lock().expect("no panic while locked");
        if dialogue.bytes_due > 0 {
            dialogue.bytes_due -= 1;
            assert_eq!(first, b"N", "the proxy reads plain text only: sslmode=disable");
            out.write(&first);
            return Ok(());
        }
    }
    let frame = read_rest(from, first[0])?;
    let mut trips = dialogue.lock().expect("no panic while locked");
    let watched = matches!(trips.trips.front(), Some(Some(_)));
    if frame[0] != b'Z' {
        drop(trips);
        if watched {
            held.extend(frame);
        } else {
            out.write(&frame);
        }
        return Ok(());
    }
    let armed = trips.trips.pop_front().flatten();
    drop(trips);
    held.extend(frame);
    out.fire(armed)?;
    out.write(&std::mem::take(held));
    Ok(())
}

fn read_typed(from: &mut In) -> io::Result<Vec<u8>> {
    let kind = read_exactly(from, 1)?[0];
    read_rest(from, kind)
}

fn read_rest(from: &mut In, kind: u8) -> io::Result<Vec<u8>> {
    let length = read_exactly(from, 4)?;
    let mut frame = vec![kind];
    frame.extend_from_slice(&length);
    let length = u32::from_be_bytes([length[0], length[1], length[2], length[3]]) as usize;
    frame.extend(read_exactly(from, length.saturating_sub(4))?);
    Ok(frame)
}

/// A text that ends with a zero byte, and what follows it.
fn text_at(bytes: &[u8]) -> Option<(String, &[u8])> {
    let end = bytes.iter().position(|&byte| byte == 0)?;
    Some((String::from_utf8_lossy(&bytes[..end]).into_owned(), &bytes[end + 1..]))
}
