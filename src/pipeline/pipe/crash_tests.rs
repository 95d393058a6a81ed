//! Failures between the steps of a window, and what the next start makes of them.

use std::path::PathBuf;

use super::output::Output;
use super::*;
use crate::clock::FixedClock;
use crate::config::values::Given;
use crate::protocol::event::EventTime;

const LINES_PER_WINDOW: usize = 10;

/// Where a window is broken off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Rejected lines are written, forwarded ones are not.
    BeforeWrite,
    HalfWritten,
    Written,
    /// All is on disk, and the store knows nothing of it.
    Synced,
}

const FAULTS: [Fault; 4] = [Fault::BeforeWrite, Fault::HalfWritten, Fault::Written, Fault::Synced];

/// An output that breaks off in its window number `at`.
struct Faulty {
    inner: Box<dyn Output>,
    window: usize,
    at: usize,
    fault: Fault,
}

fn broken() -> io::Error {
    io::Error::other("a fault on purpose")
}

impl Output for Faulty {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let now = |fault| self.window == self.at && self.fault == fault;
        if now(Fault::BeforeWrite) {
            return Err(broken());
        }
        if now(Fault::HalfWritten) {
            self.inner.write(&bytes[..bytes.len() / 2])?;
            return Err(broken());
        }
        self.inner.write(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        let now = |fault| self.window == self.at && self.fault == fault;
        if now(Fault::Written) {
            return Err(broken());
        }
        self.inner.sync()?;
        if now(Fault::Synced) {
            return Err(broken());
        }
        self.window += 1;
        Ok(())
    }

    fn mark(&self) -> Option<files::Mark> {
        self.inner.mark()
    }
}

struct World {
    folder: tempfile::TempDir,
    config: PipeConfig,
    forwarded: String,
    /// Lines that are rejected, by number.
    rejected: Vec<u64>,
}

impl World {
    /// `lines`: of which every third repeats an id and every eleventh has none.
    fn new(lines: u64) -> World {
        let folder = tempfile::tempdir().expect("a folder");
        let flag = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let store = format!("embedded:{}", folder.path().join("claims").display());
        let flags = vec![
            flag("SEMEL_EVENT_ID", "json:/id"),
            flag("SEMEL_STORE", &store),
            flag("SEMEL_WINDOW_SIZE", &LINES_PER_WINDOW.to_string()),
        ];
        let config = PipeConfig::of(Given { flags, ..Given::default() }).expect("a configuration");
        let (mut sent, mut forwarded, mut rejected) = (String::new(), String::new(), Vec::new());
        for n in 0..lines {
            let id = if n % 3 == 2 { n / 2 } else { n };
            let line = if n % 11 == 10 { format!("{{\"n\":{n}}}\n") } else { format!("{{\"id\":{id},\"n\":{n}}}\n") };
            let first = !forwarded.contains(&format!("{{\"id\":{id},"));
            if n % 11 == 10 {
                rejected.push(n + 1);
            } else if first {
                forwarded.push_str(&line);
            }
            sent.push_str(&line);
        }
        std::fs::write(folder.path().join("in"), sent).expect("written");
        World { folder, config, forwarded, rejected }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// One start, broken off in a window, or run to the end.
    fn start(&self, fault: Option<(usize, Fault)>) -> Result<Summary, PipeError> {
        let (input, output) = (self.path("in"), self.path("out"));
        let order = Order {
            config: &self.config,
            input: Some(&input),
            output: Some(&output),
            clock: Arc::new(FixedClock(EventTime::from_micros(0))),
            stop: &|| false,
        };
        let Some((at, fault)) = fault else { return run(&order, &mut |_| {}) };
        let store = EmbeddedStore::open(&self.config.folder)?;
        let recipe = Recipe::of(&self.config);
        let opened = Input::open(Some(&input)).expect("the input");
        let mut ready = to_file(&order, opened, &store, &recipe, output.clone(), self.path("out.rejected"))?;
        let inner = ready.settler.output;
        ready.settler.output = Box::new(Faulty { inner, window: 0, at, fault });
        ready.run(&order, &mut |_| {})
    }

    fn assert_exact(&self, summary: &Summary, why: &str) {
        let out = std::fs::read_to_string(self.path("out")).expect("the output");
        assert_eq!(out, self.forwarded, "{why}");
        let rejected = std::fs::read_to_string(self.path("out.rejected")).expect("the rejected lines");
        let numbers = rejected.lines().map(|line| {
            let record: serde_json::Value = serde_json::from_str(line).expect("JSON");
            record["line"].as_u64().expect("a number")
        });
        assert_eq!(numbers.collect::<Vec<_>>(), self.rejected, "{why}");
        let counts = summary.in_all.unwrap_or(summary.counts);
        assert_eq!(counts.forwarded, self.forwarded.lines().count() as u64, "{why}");
        assert_eq!(counts.rejected, self.rejected.len() as u64, "{why}");
    }
}

#[test]
fn a_window_that_is_broken_off_is_done_again_whole() {
    for fault in FAULTS {
        for at in [0, 1, 6, 11] {
            let world = World::new(120);
            let why = format!("{fault:?} in window {at}");
            let broken = world.start(Some((at, fault)));
            assert!(matches!(broken, Err(PipeError::Settle(SettleError::Write { .. }))), "{why}: {broken:?}");
            let summary = world.start(None).expect("the rest");
            world.assert_exact(&summary, &why);
        }
    }
}

#[test]
fn one_window_after_each_start_is_enough_to_come_to_the_end() {
    let world = World::new(150);
    let mut starts = 0;
    let summary = loop {
        // Each start settles one window and breaks off in the next, in every way by turns.
        match world.start(Some((1, FAULTS[starts % FAULTS.len()]))) {
            Ok(summary) => break summary,
            Err(PipeError::Settle(SettleError::Write { .. })) => starts += 1,
            Err(other) => panic!("{other:?}"),
        }
        assert!(starts < 50, "it does not get on");
    };
    assert_eq!(starts, 14, "fifteen windows");
    world.assert_exact(&summary, "one window a start");
}

#[test]
fn a_start_that_dies_between_making_the_output_and_recording_it_is_no_obstacle() {
    let world = World::new(30);
    drop(KeptFile::make(&world.path("out")).expect("made"));
    drop(KeptFile::make(&world.path("out.rejected")).expect("made"));
    let summary = world.start(None).expect("everything");
    world.assert_exact(&summary, "two empty files");
}

/// A kill behind the last commit makes a finished job look like one that failed. Rejected lines have no claim that would
/// tell that they had their turn.
#[test]
fn a_kill_between_the_last_commit_and_the_exit_repeats_nothing() {
    let world = World::new(120);
    world.start(None).expect("everything");
    for _ in 0..2 {
        let summary = world.start(None).expect("nothing new");
        assert_eq!((summary.counts.forwarded, summary.counts.rejected, summary.counts.duplicates), (0, 0, 120));
    }
    let rejected = std::fs::read_to_string(world.path("out.rejected")).expect("the rejected lines");
    assert_eq!(rejected.lines().count(), world.rejected.len());
}
