//! From standard input into a file by the real binary: never lost, whole lines, twice only after a crash.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::MINUTE;
use crate::support::daemon::{BINARY, free_port, run_well};
use crate::support::random::{self, Random};
use crate::support::services::Services;

const WINDOW: usize = 200;

/// A folder with lines to read, the claims and what is written.
struct Lines {
    folder: tempfile::TempDir,
    format: &'static str,
    store: String,
    random: Random,
}

impl Lines {
    fn new(format: &'static str) -> Lines {
        let seed = random::seed();
        println!("seed {seed}");
        let folder = tempfile::tempdir().expect("a folder");
        let store = format!("embedded:{}", folder.path().join("claims").display());
        Lines { folder, format, store, random: Random::new(seed) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Three in ten repeat an earlier one. Answers how many are distinct.
    fn write(&mut self, lines: usize) -> usize {
        let mut distinct = 0;
        let mut text = String::new();
        for n in 0..lines {
            let repeats = n > 0 && self.random.percent(30);
            let id = if repeats { self.random.among(0..distinct as u64) as usize } else { distinct };
            distinct += usize::from(id == distinct);
            text.push_str(&format!("{{\"id\":\"event-{id}\"}}\n"));
        }
        std::fs::write(self.path("in"), text).expect("written");
        distinct
    }

    /// `before`: what a shell does first.
    fn start(&self, before: &str) -> Child {
        let log = File::options().create(true).append(true).open(self.path("log")).expect("a log");
        let settings = [
            ("SEMEL_SOURCE", "stdin:".to_owned()),
            ("SEMEL_SINK", format!("file:{}?format={}", self.path("out").display(), self.format)),
            ("SEMEL_DEAD_LETTER", self.path("dead").display().to_string()),
            ("SEMEL_STORE", self.store.clone()),
            ("SEMEL_SCOPE", "files".to_owned()),
            ("SEMEL_PIPELINE", "lines".to_owned()),
            ("SEMEL_INSTANCE", "one".to_owned()),
            ("SEMEL_EVENT_ID", "json:/id".to_owned()),
            ("SEMEL_EVENT_TIME", "none".to_owned()),
            ("SEMEL_WINDOW_SIZE", WINDOW.to_string()),
            ("SEMEL_HTTP", format!("127.0.0.1:{}", free_port())),
        ];
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("{before} exec \"$0\" run")).arg(BINARY);
        command.env_clear().envs(settings);
        command.stdin(File::open(self.path("in")).expect("lines"));
        command.stdout(log.try_clone().expect("a second handle")).stderr(log);
        command.spawn().expect("a shell starts")
    }

    fn run(&self) {
        let status = wait(&mut self.start(""), MINUTE);
        assert!(status.success(), "{status}: {}", self.log());
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).expect("a log")
    }

    /// How often each event came out.
    fn copies(&self) -> BTreeMap<String, usize> {
        let text = std::fs::read_to_string(self.path("out")).expect("an output");
        assert!(text.ends_with('\n'), "every line is whole");
        let mut copies = BTreeMap::new();
        for line in text.lines() {
            let mut value: serde_json::Value = serde_json::from_str(line).expect("JSON");
            if self.format == "record" {
                assert_eq!(value["id"].as_str().map(str::len), Some(32), "under its key");
                value = serde_json::from_str(value["value"].as_str().expect("text")).expect("JSON");
            }
            *copies.entry(value["id"].as_str().expect("an id").to_owned()).or_default() += 1;
        }
        copies
    }
}

fn wait(child: &mut Child, within: Duration) -> std::process::ExitStatus {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            return status;
        }
        if begun.elapsed() > within {
            drop(child.kill());
            drop(child.wait());
            panic!("it did not end within {within:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn kill(mut child: Child) {
    child.kill().expect("a child");
    child.wait().expect("a child");
}

fn length(path: &Path) -> u64 {
    path.metadata().map_or(0, |metadata| metadata.len())
}

#[test]
fn the_same_lines_again_yield_nothing() {
    let mut lines = Lines::new("value");
    let distinct = lines.write(3_000);
    lines.run();
    let copies = lines.copies();
    assert_eq!((copies.len(), copies.values().max()), (distinct, Some(&1)));
    let before = length(&lines.path("out"));
    lines.run();
    assert_eq!(length(&lines.path("out")), before);
    assert!(lines.log().contains("never lost; twice only after a crash"), "{}", lines.log());
}

#[test]
fn kills_lose_nothing_and_tear_no_line() {
    const KILLS: usize = 6;
    let mut lines = Lines::new("record");
    let distinct = lines.write(60_000);
    for kills in 0..KILLS {
        let child = lines.start("");
        // On its way: something more came out.
        let (before, begun) = (length(&lines.path("out")), Instant::now());
        while length(&lines.path("out")) == before && begun.elapsed() < MINUTE {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(lines.random.among(0..80)));
        kill(child);
        println!("kill {}: {} bytes", kills + 1, length(&lines.path("out")));
    }
    lines.run();
    let copies = lines.copies();
    let twice = copies.values().filter(|copies| **copies > 1).count();
    println!("{distinct} events, {twice} twice");
    assert_eq!(copies.len(), distinct);
    assert!(twice <= KILLS * WINDOW && copies.values().all(|copies| *copies <= 1 + KILLS), "{twice} came out twice");
}

/// A full disk, by the size that a file may have: what was refused is cut off again, so that nothing comes twice.
#[test]
fn a_full_disk_is_waited_for() {
    let mut lines = Lines::new("value");
    // Its files would be limited too.
    lines.store = format!("{}?sslmode=disable", Services::shared().make_database());
    run_well(&["migrate"], &[("SEMEL_STORE".to_owned(), lines.store.clone())].into());
    let distinct = lines.write(10_000);
    let child = lines.start("trap '' XFSZ; ulimit -f 100;");
    let begun = Instant::now();
    while !lines.log().contains("File too large") {
        assert!(begun.elapsed() < MINUTE, "{}", lines.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    let text = std::fs::read_to_string(lines.path("out")).expect("an output");
    assert!(text.ends_with('\n'), "what does not fit is cut off again");
    kill(child);
    lines.run();
    let copies = lines.copies();
    assert_eq!((copies.len(), copies.values().max()), (distinct, Some(&1)));
}
