//! What was done, in numbers and in words.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Lines, empty ones included.
    pub read: u64,
    /// First seen, and claimed.
    pub forwarded: u64,
    pub duplicates: u64,
    pub rejected: u64,
    /// Forwarded without a claim, where a policy says so.
    pub unclaimed: u64,
    /// Empty lines, which hold no event.
    pub empty: u64,
}

impl Counts {
    pub fn add(&mut self, other: &Counts) {
        self.read += other.read;
        self.forwarded += other.forwarded;
        self.duplicates += other.duplicates;
        self.rejected += other.rejected;
        self.unclaimed += other.unclaimed;
        self.empty += other.empty;
    }
}

/// What one run did.
#[derive(Debug)]
pub struct Summary {
    pub input: String,
    pub output: String,
    pub rejects: String,
    pub counts: Counts,
    pub bytes: u64,
    pub took: Duration,
    /// Since the input's beginning, where this run went on with an earlier one.
    pub in_all: Option<Counts>,
    /// Asked to end before the input did.
    pub interrupted: bool,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { read, forwarded, duplicates, rejected, unclaimed, empty } = self.counts;
        let seconds = self.took.as_secs_f64().max(1e-9);
        let rate = (read as f64 / seconds) as u64;
        let ended = if self.interrupted { " (interrupted: the same command goes on from here)" } else { "" };
        writeln!(f, "{} -> {}{ended}", self.input, self.output)?;
        let megabytes = self.bytes as f64 / 1e6;
        writeln!(
            f,
            "read        {:>13}  {megabytes:.1} MB in {seconds:.2} s, {} lines/s",
            grouped(read),
            grouped(rate)
        )?;
        writeln!(f, "forwarded   {:>13}", grouped(forwarded))?;
        writeln!(f, "duplicates  {:>13}", grouped(duplicates))?;
        let to = if rejected > 0 { format!("  to {}", self.rejects) } else { String::new() };
        writeln!(f, "rejected    {:>13}{to}", grouped(rejected))?;
        if unclaimed > 0 {
            writeln!(f, "unclaimed   {:>13}  forwarded without an id, as asked", grouped(unclaimed))?;
        }
        if empty > 0 {
            writeln!(f, "empty       {:>13}  lines skipped", grouped(empty))?;
        }
        if let Some(all) = &self.in_all {
            let (read, forwarded) = (grouped(all.read), grouped(all.forwarded));
            let (duplicates, rejected) = (grouped(all.duplicates), grouped(all.rejected));
            writeln!(
                f,
                "in all      {read:>13}  read, {forwarded} forwarded, {duplicates} duplicates, {rejected} rejected"
            )?;
        }
        Ok(())
    }
}

/// Digits in groups of three.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3 + 1);
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::grouped;

    #[test]
    fn numbers_are_readable() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (123_456, "123,456"), (1_234_567, "1,234,567")]
        {
            assert_eq!(grouped(number), text);
        }
    }
}
