//! Cuts bodies into records.

use bytes::{Buf, Bytes};
use serde_json::value::RawValue;

/// The records of an array, as they stand in it; None where the document is one object. Checked for JSON's grammar as a
/// whole. Err: what is wrong with it.
pub fn document(text: &[u8]) -> Result<Option<Vec<&RawValue>>, &'static str> {
    const NOT_JSON: &str = "the body is not JSON";
    if text.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
        return serde_json::from_slice(text).map(Some).map_err(|_| NOT_JSON);
    }
    let whole = serde_json::from_slice::<&RawValue>(text).map_err(|_| NOT_JSON)?;
    if whole.get().starts_with('{') { Ok(None) } else { Err("the body is neither an object nor an array") }
}

/// A line that is longer than a record may be. What it holds is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overlong;

pub type Line = Result<Vec<u8>, Overlong>;

/// NDJSON, chunk by chunk. Blank lines are no records.
pub struct Lines {
    line_max: usize,
    /// What stands before the next end of a line, as far as it is kept.
    begun: Vec<u8>,
    overlong: bool,
    chunk: Bytes,
}

impl Lines {
    pub fn new(line_max: usize) -> Lines {
        Lines { line_max, begun: Vec::new(), overlong: false, chunk: Bytes::new() }
    }

    /// All lines of the chunk before must have been taken.
    pub fn push(&mut self, chunk: Bytes) {
        debug_assert!(self.chunk.is_empty(), "taken");
        self.chunk = chunk;
    }

    /// The next whole line; at the end of the body, which ends the last line too, that one. None: there is no more in
    /// this chunk.
    pub fn next(&mut self, is_end: bool) -> Option<Line> {
        while !self.chunk.is_empty() {
            let end = memchr::memchr(b'\n', &self.chunk);
            self.keep(end.unwrap_or(self.chunk.len()));
            self.chunk.advance(usize::from(end.is_some()));
            if end.is_some()
                && let Some(line) = self.take()
            {
                return Some(line);
            }
        }
        if is_end { self.take() } else { None }
    }

    fn keep(&mut self, bytes: usize) {
        if self.overlong || self.begun.len() + bytes > self.line_max {
            self.overlong = true;
            self.begun = Vec::new();
        } else {
            self.begun.extend_from_slice(&self.chunk[..bytes]);
        }
        self.chunk.advance(bytes);
    }

    fn take(&mut self) -> Option<Line> {
        let line = std::mem::take(&mut self.begun);
        if std::mem::take(&mut self.overlong) {
            return Some(Err(Overlong));
        }
        (!line.iter().all(u8::is_ascii_whitespace)).then_some(Ok(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(chunks: &[&str], line_max: usize) -> Vec<String> {
        let mut lines = Lines::new(line_max);
        let mut found = Vec::new();
        let shown = |line: Line| line.map_or("(overlong)".to_owned(), |line| String::from_utf8(line).expect("text"));
        for chunk in chunks {
            lines.push(Bytes::copy_from_slice(chunk.as_bytes()));
            found.extend(std::iter::from_fn(|| lines.next(false)).map(shown));
        }
        found.extend(std::iter::from_fn(|| lines.next(true)).map(shown));
        found
    }

    #[test]
    fn lines_are_the_same_however_they_come() {
        let text = "{\"a\":1}\n\n  \n{\"b\":22222222222}\r\n\n{\"c\":3}";
        let right = ["{\"a\":1}", "(overlong)", "{\"c\":3}"];
        for size in 1..=text.len() {
            let cuts = (0..text.len()).step_by(size);
            let chunks: Vec<&str> = cuts.map(|at| &text[at..text.len().min(at + size)]).collect();
            assert_eq!(cut(&chunks, 10), right, "in chunks of {size}");
        }
        assert_eq!(cut(&[], 10), [""; 0]);
        assert_eq!(cut(&["1234567890\n", "12345678901"], 10), ["1234567890", "(overlong)"]);
    }

    #[test]
    fn documents() {
        let count = |text: &str| document(text.as_bytes()).map(|array| array.map(|records| records.len()));
        let not_json = Err("the body is not JSON");
        let cases = [
            (" {\"a\":[1]} ", Ok(None), "one object"),
            ("[{\"a\":1}, 5,\n[]]", Ok(Some(3)), "an array, whatever is in it"),
            ("[]", Ok(Some(0)), "an empty one"),
            ("[{\"a\":1},{\"a\":]", not_json, "a syntax error behind a sound record"),
            ("[{\"a\":1}", not_json, "it ends early"),
            ("{} {}", not_json, "two documents"),
            ("", not_json, "nothing"),
            ("5", Err("the body is neither an object nor an array"), "a number"),
            ("x", not_json, "a word"),
        ];
        for (text, right, why) in cases {
            assert_eq!(count(text), right, "{why}");
        }
    }
}
