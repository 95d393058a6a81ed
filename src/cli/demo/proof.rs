//! The demo's proof: reads what was sent and what was forwarded, and counts.
//!
//! It shares no code with the store or the pipeline, on purpose: not even the way an id is found.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::io::{self, BufRead};

/// What was found. All but the first three are faults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Finding {
    pub sent: u64,
    pub distinct: u64,
    pub forwarded: u64,
    /// Events of which no copy came through.
    pub lost: u64,
    /// Lines beyond the first of their event.
    pub doubled: u64,
    /// Lines that are not the first copy of their event, byte for byte.
    pub altered: u64,
    /// Lines of an event whose first copy was sent before that of the line in front.
    pub out_of_order: u64,
    /// Lines of no event that was sent.
    pub unknown: u64,
}

impl Finding {
    pub fn is_exact(&self) -> bool {
        self.lost + self.doubled + self.altered + self.out_of_order + self.unknown == 0
            && self.forwarded == self.distinct
            && self.sent > 0
    }
}

struct First {
    /// Place among the first copies.
    place: u64,
    line: u64,
    forwarded: u64,
}

pub fn compare(mut sent: impl BufRead, mut forwarded: impl BufRead) -> io::Result<Finding> {
    let mut finding = Finding::default();
    let mut firsts: HashMap<Box<[u8]>, First> = HashMap::new();
    let mut line = Vec::new();
    while read_line(&mut sent, &mut line)? {
        finding.sent += 1;
        let place = firsts.len() as u64;
        firsts.entry(id(&line)?.into()).or_insert_with(|| First { place, line: hash(&line), forwarded: 0 });
    }
    finding.distinct = firsts.len() as u64;
    let mut last = 0;
    while read_line(&mut forwarded, &mut line)? {
        finding.forwarded += 1;
        let Some(first) = id(&line).ok().and_then(|id| firsts.get_mut(id)) else {
            finding.unknown += 1;
            continue;
        };
        first.forwarded += 1;
        finding.doubled += u64::from(first.forwarded > 1);
        finding.altered += u64::from(first.line != hash(&line));
        finding.out_of_order += u64::from(first.place < last);
        last = first.place;
    }
    finding.lost = firsts.values().filter(|first| first.forwarded == 0).count() as u64;
    Ok(finding)
}

fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    Ok(input.read_until(b'\n', line)? > 0)
}

/// What stands between the quotes behind `{"id":`.
fn id(line: &[u8]) -> io::Result<&[u8]> {
    let behind = line.strip_prefix(br#"{"id":""#);
    let length = behind.and_then(|behind| behind.iter().position(|&byte| byte == b'"'));
    match (behind, length) {
        (Some(behind), Some(length)) if line.ends_with(b"}\n") => Ok(&behind[..length]),
        _ => Err(io::Error::other("a line that the demo did not write")),
    }
}

fn hash(line: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    line.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(id: &str, attempt: u32) -> String {
        format!("{{\"id\":\"{id}\",\"attempt\":{attempt}}}\n")
    }

    /// A fault is found as what it is.
    #[test]
    fn every_fault_is_found() {
        let sent = [line("a", 1), line("b", 1), line("a", 2), line("c", 1), line("b", 2)].concat();
        let right = [line("a", 1), line("b", 1), line("c", 1)].concat();
        let exact = Finding { sent: 5, distinct: 3, forwarded: 3, ..Finding::default() };
        let cases = [
            ("exact", right.clone(), exact),
            ("nothing", String::new(), Finding { forwarded: 0, lost: 3, ..exact }),
            ("lost", [line("a", 1), line("c", 1)].concat(), Finding { forwarded: 2, lost: 1, ..exact }),
            (
                "doubled, in the very same bytes",
                [line("a", 1), line("b", 1), line("b", 1), line("c", 1)].concat(),
                Finding { forwarded: 4, doubled: 1, ..exact },
            ),
            (
                "lost and doubled, which a count alone would not show",
                [line("a", 1), line("a", 1), line("c", 1)].concat(),
                Finding { lost: 1, doubled: 1, ..exact },
            ),
            (
                "a later copy instead of the first",
                [line("a", 2), line("b", 1), line("c", 1)].concat(),
                Finding { altered: 1, ..exact },
            ),
            ("out of order", [line("b", 1), line("a", 1), line("c", 1)].concat(), Finding { out_of_order: 1, ..exact }),
            ("made up", right.clone() + &line("x", 1), Finding { forwarded: 4, unknown: 1, ..exact }),
            ("torn at the end", right[..right.len() - 3].into(), Finding { lost: 1, unknown: 1, ..exact }),
        ];
        for (why, forwarded, finding) in cases {
            let found = compare(sent.as_bytes(), forwarded.as_bytes()).expect("readable");
            assert_eq!(found, finding, "{why}");
            assert_eq!(found.is_exact(), why == "exact", "{why}");
        }
        let nothing = compare(&b""[..], &b""[..]).expect("readable");
        assert!(!nothing.is_exact(), "an empty run proves nothing");
    }
}
