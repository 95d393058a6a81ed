//! What was done, in numbers and in words.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::keyer::Cause;
use crate::config::setting::Setting;

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

/// Why lines were rejected, and how many for each cause. Lines that were rejected when the same input was read before
/// count here too, though they are not written again.
#[derive(Debug, Default)]
pub struct Causes(Vec<(&'static str, Option<&'static Setting>, u64)>);

impl Causes {
    pub fn add(&mut self, cause: &Cause) {
        let (word, setting) = (cause.word(), cause.setting());
        let name = |setting: Option<&Setting>| setting.map(|setting| setting.name);
        match self.0.iter().position(|(known, of, _)| *known == word && name(*of) == name(setting)) {
            Some(at) => self.0[at].2 += 1,
            None => self.0.push((word, setting, 1)),
        }
    }

    fn total(&self) -> u64 {
        self.0.iter().map(|(_, _, count)| count).sum()
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
    /// Of this run.
    pub causes: Causes,
    /// Asked to end before the input did.
    pub interrupted: bool,
}

impl Summary {
    /// There were lines and every one was rejected: what to look at. More likely than such an input is a setting that
    /// does not fit it.
    pub fn all_rejected(&self) -> Option<String> {
        let Counts { forwarded, duplicates, rejected, unclaimed, .. } = self.in_all.unwrap_or(self.counts);
        // Those of the last time stand among the duplicates.
        let again = self.causes.total() - self.counts.rejected;
        let lines = rejected + again;
        if lines == 0 || forwarded + unclaimed > 0 || duplicates > again {
            return None;
        }
        let lines = grouped(lines);
        let most = self.causes.0.iter().max_by_key(|(_, _, count)| count);
        let most = most.map_or_else(String::new, |(word, setting, count)| {
            let look = setting.map_or_else(String::new, |setting| format!(": look at --{}", setting.flag()));
            format!(", {} of {lines} as {word}{look}", grouped(*count))
        });
        Some(format!("every line was rejected{most}. each stands with its cause in {}", self.rejects))
    }
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
