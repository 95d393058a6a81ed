//! What is measured, and how it is shown.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::scenes::Scene;

/// One run of one contender.
#[derive(Debug, Clone, Copy, Default)]
pub struct Run {
    pub messages: u64,
    pub time: Duration,
    /// Of the contender's process alone.
    pub cpu: Duration,
    pub memory_kib: u64,
    /// Commits of the store, and windows; 0 where there are none.
    pub commits: u64,
    pub windows: u64,
}

impl Run {
    pub fn rate(&self) -> f64 {
        self.messages as f64 / self.time.as_secs_f64()
    }
}

/// User and system time of a process so far.
pub fn cpu_of(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let (_, after) = stat.rsplit_once(')').unwrap_or_default();
    let ticks: u64 = after.split_whitespace().skip(11).take(2).filter_map(|text| text.parse::<u64>().ok()).sum();
    // Linux counts in hundredths of a second wherever it runs today.
    Duration::from_millis(ticks * 10)
}

/// What all processors together had nothing to do for, so far.
pub fn idle_of_machine() -> Duration {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks = stat.split_whitespace().nth(4).and_then(|idle| idle.parse().ok()).unwrap_or(0);
    Duration::from_millis(10 * ticks)
}

/// Most memory that a process had, in KiB.
pub fn memory_of(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|text| text.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

/// Contenders in the order of their first run, each with its runs.
pub struct Table {
    title: String,
    order: Vec<&'static str>,
    runs: BTreeMap<&'static str, Vec<Run>>,
}

pub const COPY: &str = "copy, 5,000 a transaction";
pub const COPY_CONFIRMED: &str = "copy, each confirmed";
pub const INSERTS: &str = "raw inserts of 1,000";
pub const POSTGRES: &str = "semel, postgresql";
pub const EMBEDDED: &str = "semel, embedded";

impl Table {
    pub fn new(scene: &Scene) -> Table {
        Table::titled(scene.title.clone())
    }

    pub fn titled(title: String) -> Table {
        Table { title, order: Vec::new(), runs: BTreeMap::new() }
    }

    pub fn add(&mut self, name: &'static str, run: Run) {
        eprintln!("{}: {name}: {:.0}/s", self.title, run.rate());
        if !self.order.contains(&name) {
            self.order.push(name);
        }
        self.runs.entry(name).or_default().push(run);
    }

    /// Against the slowest of `ceilings` in the same round, the median of all rounds: what slows the machine down for a
    /// while slows the round down.
    fn ratio(&self, name: &str, ceilings: &[&str]) -> Option<f64> {
        let runs = self.runs.get(name)?;
        let ratio = |(n, run): (usize, &Run)| {
            let slowest = ceilings.iter().filter_map(|ceiling| self.runs.get(ceiling)?.get(n)).map(Run::rate);
            run.rate() / slowest.fold(f64::INFINITY, f64::min)
        };
        let mut ratios: Vec<f64> = runs.iter().enumerate().map(ratio).collect();
        ratios.sort_by(f64::total_cmp);
        ratios.get(ratios.len() / 2).copied()
    }

    /// The run with the median rate.
    fn median(&self, name: &str) -> Option<Run> {
        let mut runs = self.runs.get(name)?.clone();
        runs.sort_by(|a, b| a.rate().total_cmp(&b.rate()));
        runs.get(runs.len() / 2).copied()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n## {}\n", self.title)?;
        writeln!(
            f,
            "| | messages/s, median | CPU µs per message | memory MiB | commits per window | of the slower ceiling, median of the rounds |"
        )?;
        writeln!(f, "| --- | --- | --- | --- | --- | --- |")?;
        for name in &self.order {
            let Some(run) = self.median(name) else { continue };
            let cpu = run.cpu.as_micros() as f64 / run.messages as f64;
            let memory = run.memory_kib / 1024;
            let commits = if run.windows == 0 {
                "–".to_owned()
            } else {
                format!("{:.2}", run.commits as f64 / run.windows as f64)
            };
            let of = match *name {
                POSTGRES => self.ratio(name, &[COPY, INSERTS, COPY_CONFIRMED]).map(|ratio| format!("{ratio:.2}")),
                EMBEDDED => self.ratio(name, &[COPY, COPY_CONFIRMED]).map(|ratio| format!("{ratio:.2} of the copy")),
                _ => None,
            };
            let of = of.unwrap_or_else(|| "–".to_owned());
            writeln!(f, "| {name} | {:.0} | {cpu:.1} | {memory} | {commits} | {of} |", run.rate())?;
        }
        Ok(())
    }
}
