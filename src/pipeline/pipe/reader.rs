//! Reads, splits and keys lines into windows, on a thread of its own, while the window before is settled.

use std::io;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};

use super::input::{Got, Input};
use super::keyer::{Fate, Keyer};
use super::lines::{LINE_BYTES_MAX, Piece, Place, Splitter, TooLong};

/// How long a window of a slow stream waits for more.
const LINGER: Duration = Duration::from_millis(5);

/// Lines that are settled together.
#[derive(Debug)]
pub struct Window {
    /// The lines' bytes, and perhaps the beginning of the next.
    pub bytes: Vec<u8>,
    pub lines: Vec<Line>,
    /// The lines that ask for a claim, by key and then as they come.
    pub asking: Vec<u32>,
    pub begins: Place,
    pub ends: Place,
    /// Where it ends inside a line that is too long.
    pub too_long: Option<TooLong>,
    pub then: Then,
}

#[derive(Debug)]
pub struct Line {
    pub start: u32,
    /// Behind its last byte, its end included.
    pub end: u32,
    pub terminator: u8,
    pub piece: Option<Piece>,
    pub fate: Fate,
}

/// What follows a window.
#[derive(Debug)]
pub enum Then {
    More,
    /// The input's end.
    End,
    /// A line on which the job is to stop, by policy. It is not among the window's.
    Stop(super::keyer::Cause),
    /// The wish to end.
    Interrupted,
}

impl Line {
    /// Whether another line begins behind it.
    pub fn ends_line(&self) -> bool {
        self.piece.is_none_or(|piece| piece.last)
    }
}

impl Window {
    pub fn rejects_any(&self) -> bool {
        self.lines.iter().any(|line| matches!(line.fate, Fate::Reject(_)))
    }

    /// Length in the input.
    pub fn length(&self) -> usize {
        (self.ends.position - self.begins.position) as usize
    }
}

/// Sizes of a window.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub lines_max: usize,
    pub bytes_max: usize,
}

pub struct Reader<'a> {
    input: Input,
    keyer: &'a Keyer,
    limits: Limits,
    stop: &'a (dyn Fn() -> bool + Sync),
    place: Place,
    too_long: Option<TooLong>,
    /// Bytes that were read behind the last window.
    rest: Vec<u8>,
    ended: bool,
}

impl<'a> Reader<'a> {
    /// `input` stands at `place`.
    pub fn new(
        input: Input,
        place: Place,
        too_long: Option<TooLong>,
        keyer: &'a Keyer,
        limits: Limits,
        stop: &'a (dyn Fn() -> bool + Sync),
    ) -> Reader<'a> {
        Reader { input, keyer, limits, stop, place, too_long, rest: Vec::new(), ended: false }
    }

    /// Hands on windows until the one after which nothing follows, or until nobody takes them. `used`: buffers to be
    /// used again.
    pub fn run(mut self, windows: &Sender<io::Result<Window>>, used: &Receiver<Vec<u8>>) {
        loop {
            let window = self.window(used.try_recv().unwrap_or_default());
            let last = !matches!(window, Ok(Window { then: Then::More, .. }));
            if windows.send(window).is_err() || last {
                return;
            }
        }
    }

    fn window(&mut self, mut bytes: Vec<u8>) -> io::Result<Window> {
        bytes.clear();
        bytes.append(&mut self.rest);
        let begins = self.place;
        let now = self.keyer.now();
        let mut splitter = Splitter::new(self.too_long, LINE_BYTES_MAX);
        let (mut lines, mut line_number) = (Vec::new(), begins.line);
        let mut then = Then::More;
        'full: loop {
            let mut before = splitter.clone();
            while let Some(span) = splitter.next(&bytes, begins.position, self.ended) {
                let fate = match span.piece {
                    Some(_) => self.keyer.fate_of_too_long(),
                    None => self.keyer.fate(span.content(&bytes), now),
                };
                if let Fate::Stop(cause) = fate {
                    splitter = before;
                    then = Then::Stop(cause);
                    break 'full;
                }
                let (Ok(start), Ok(end)) = (u32::try_from(span.start), u32::try_from(span.end)) else {
                    return Err(io::Error::other("a window of more than 4 GiB"));
                };
                lines.push(Line { start, end, terminator: span.terminator as u8, piece: span.piece, fate });
                line_number += u64::from(span.ends_line());
                if lines.len() >= self.limits.lines_max || span.end >= self.limits.bytes_max {
                    break 'full;
                }
                before = splitter.clone();
            }
            if self.ended {
                then = Then::End;
                break;
            }
            // Everything that was taken out of a stream is split by now.
            if (self.stop)() {
                then = Then::Interrupted;
                break;
            }
            let patience = if lines.is_empty() { None } else { Some(LINGER) };
            match self.input.read(&mut bytes, patience, self.stop)? {
                Got::Bytes => {}
                Got::End => self.ended = true,
                Got::Nothing if lines.is_empty() => {}
                Got::Nothing => break,
            }
        }
        let (split, too_long) = splitter.state();
        self.rest = bytes.split_off(split);
        self.too_long = too_long;
        self.place = Place { position: begins.position + split as u64, line: line_number };
        let asking = asking(&lines);
        Ok(Window { bytes, lines, asking, begins, ends: self.place, too_long, then })
    }
}

/// Neighbours in the store's order are neighbours in memory and on disk, and repeats of a key stand side by side.
fn asking(lines: &[Line]) -> Vec<u32> {
    let key = |n: u32| match &lines[n as usize].fate {
        Fate::Claim(key) => Some(key),
        _ => None,
    };
    let mut asking: Vec<u32> = (0..lines.len() as u32).filter(|&n| key(n).is_some()).collect();
    asking.sort_unstable_by(|&a, &b| key(a).cmp(&key(b)).then(a.cmp(&b)));
    asking
}
