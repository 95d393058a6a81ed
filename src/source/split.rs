//! Where lines begin and end.
//!
//! A line ends with `\n`, or with the input. A `\r` before that belongs to the end and not to the line: the same event
//! in a file of either kind is the same event. A line longer than [`LINE_BYTES_MAX`] is handed on in pieces of that
//! size, so that memory is bounded and nothing disappears.

use serde::{Deserialize, Serialize};

/// Longest line that is looked at as one.
pub const LINE_BYTES_MAX: usize = 16 << 20;

/// A place in the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// In bytes, from 0.
    pub position: u64,
    /// Number of the line that begins here, or goes on here; from 1.
    pub line: u64,
}

impl Place {
    pub const START: Place = Place { position: 0, line: 1 };
}

/// The inside of a line that is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TooLong {
    /// Where the line begins.
    pub begins: u64,
    /// How many pieces of it were handed on.
    pub pieces: u32,
}

/// A line, or a piece of one, in the bytes that were split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub start: usize,
    /// Behind its last byte, its end included.
    pub end: usize,
    /// Length of its end: 0 to 2 bytes.
    pub terminator: usize,
    pub piece: Option<Piece>,
}

/// Which piece of a line that is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    pub of: TooLong,
    pub last: bool,
}

impl Span {
    pub fn content<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.start..self.end - self.terminator]
    }

    /// Whether another line begins behind it.
    pub fn ends_line(&self) -> bool {
        self.piece.is_none_or(|piece| piece.last)
    }
}

/// Splits bytes that arrive bit by bit.
#[derive(Debug, Clone)]
pub struct Splitter {
    /// Up to here the bytes were split.
    at: usize,
    /// Up to here no end of a line was found.
    searched: usize,
    too_long: Option<TooLong>,
    line_bytes_max: usize,
}

impl Splitter {
    pub fn new(too_long: Option<TooLong>, line_bytes_max: usize) -> Splitter {
        Splitter { at: 0, searched: 0, too_long, line_bytes_max }
    }

    /// Up to where bytes were split, and whether that is inside a line that is too long.
    pub fn state(&self) -> (usize, Option<TooLong>) {
        (self.at, self.too_long)
    }

    /// The next line in `bytes`, whose first byte lies at `origin` in the input. None: more bytes are needed.
    pub fn next(&mut self, bytes: &[u8], origin: u64, input_ended: bool) -> Option<Span> {
        let found = memchr::memchr(b'\n', &bytes[self.searched..]).map(|n| self.searched + n);
        let (start, rest) = (self.at, bytes.len() - self.at);
        let in_bound = |end: usize| end - start <= self.line_bytes_max;
        let (end, complete) = match found {
            Some(newline) if in_bound(newline + 1) => (newline + 1, true),
            None if input_ended && rest > 0 && in_bound(bytes.len()) => (bytes.len(), true),
            Some(_) => (start + self.line_bytes_max, false),
            None if rest > self.line_bytes_max => (start + self.line_bytes_max, false),
            None => {
                self.searched = bytes.len();
                return None;
            }
        };
        let piece = match (self.too_long, complete) {
            (None, true) => None,
            (inside, last) => {
                let of = inside.unwrap_or(TooLong { begins: origin + start as u64, pieces: 0 });
                self.too_long = (!last).then_some(TooLong { pieces: of.pieces + 1, ..of });
                Some(Piece { of, last })
            }
        };
        self.at = end;
        self.searched = end;
        let terminator = match &bytes[start..end] {
            _ if !complete => 0,
            [.., b'\r', b'\n'] => 2,
            [.., b'\n'] => 1,
            _ => 0,
        };
        Some(Span { start, end, terminator, piece })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Splits `input` as it arrives in chunks: each line's content and terminator, pieces marked.
    fn split(input: &[u8], chunk: usize, longest: usize) -> Vec<(String, usize, Option<(u32, bool)>)> {
        let (mut splitter, mut lines, mut arrived) = (Splitter::new(None, longest), Vec::new(), 0);
        loop {
            arrived = input.len().min(arrived + chunk);
            let bytes = &input[..arrived];
            while let Some(span) = splitter.next(bytes, 0, arrived == input.len()) {
                let text = String::from_utf8_lossy(span.content(bytes)).into_owned();
                lines.push((text, span.terminator, span.piece.map(|piece| (piece.of.pieces, piece.last))));
            }
            if arrived == input.len() {
                assert_eq!(splitter.state(), (input.len(), None), "everything was handed on");
                return lines;
            }
        }
    }

    #[test]
    fn lines_are_the_same_however_they_arrive() {
        let whole = |text: &str, terminator| (text.to_owned(), terminator, None);
        let piece = |text: &str, terminator, n, last| (text.to_owned(), terminator, Some((n, last)));
        let cases: [(&str, &[u8], Vec<(String, usize, Option<(u32, bool)>)>); 10] = [
            ("nothing", b"", vec![]),
            ("two lines", b"ab\ncd\n", vec![whole("ab", 1), whole("cd", 1)]),
            ("no end at the end of the input", b"ab\ncd", vec![whole("ab", 1), whole("cd", 0)]),
            ("\\r\\n", b"ab\r\ncd\r\n", vec![whole("ab", 2), whole("cd", 2)]),
            ("a lone \\r is content", b"a\rb\nc\r", vec![whole("a\rb", 1), whole("c\r", 0)]),
            ("empty lines", b"\n\r\na\n\n", vec![whole("", 1), whole("", 2), whole("a", 1), whole("", 1)]),
            ("just within the bound, end included", b"1234567\n", vec![whole("1234567", 1)]),
            (
                "one byte too long",
                b"12345678\na\n",
                vec![piece("12345678", 0, 0, false), piece("", 1, 1, true), whole("a", 1)],
            ),
            (
                "much too long",
                b"12345678abcdefghij\r\nb\n",
                vec![
                    piece("12345678", 0, 0, false),
                    piece("abcdefgh", 0, 1, false),
                    piece("ij", 2, 2, true),
                    whole("b", 1),
                ],
            ),
            (
                "too long and without an end",
                b"a\n12345678ab",
                vec![whole("a", 1), piece("12345678", 0, 0, false), piece("ab", 0, 1, true)],
            ),
        ];
        for (why, input, right) in cases {
            for chunk in [1, 2, 3, 7, 100] {
                assert_eq!(split(input, chunk, 8), right, "{why}, in chunks of {chunk}");
            }
        }
    }

    #[test]
    fn a_line_that_is_too_long_to_its_very_end_is_closed() {
        // The bound is met exactly where the input ends: no more bytes, but an end that must be told.
        let lines = split(b"1234567812345678", 5, 8);
        assert_eq!(lines.iter().map(|line| line.0.as_str()).collect::<Vec<_>>(), ["12345678", "12345678"]);
        assert_eq!(lines.last().and_then(|line| line.2), Some((1, true)));
    }
}
