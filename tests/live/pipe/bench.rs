//! A folder with files, and the command run in it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub struct Bench {
    folder: tempfile::TempDir,
}

/// What a run left behind.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ran {
    fn of(output: Output) -> Ran {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// A number of the summary.
    pub fn count(&self, name: &str) -> u64 {
        let line = self.err.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|line| line.split_whitespace().next());
        let number = number.unwrap_or_else(|| panic!("no `{name}` in {self:?}"));
        number.replace(',', "").parse().expect("a number")
    }

    pub fn assert_done(&self) -> &Ran {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// Refused as usage, with all of these words in one line.
    pub fn assert_refused(&self, words: &[&str]) {
        assert_eq!(self.code, Some(64), "{self:?}");
        assert_eq!(self.err.lines().count(), 1, "{self:?}");
        words.iter().for_each(|word| assert!(self.err.contains(word), "`{word}` is missing in {self:?}"));
    }
}

impl Bench {
    pub fn new() -> Bench {
        Bench { folder: tempfile::tempdir().expect("a folder") }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), bytes).expect("written");
    }

    pub fn read(&self, name: &str) -> String {
        let bytes = std::fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        String::from_utf8(bytes).expect("text")
    }

    pub fn exists(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    pub fn command(&self, args: &[&str]) -> Command {
        semel(self.folder.path(), &[&["pipe"], args].concat())
    }

    pub fn pipe(&self, args: &[&str]) -> Ran {
        Ran::of(self.command(args).stdin(Stdio::null()).output().expect("the binary runs"))
    }

    /// With this on its standard input.
    pub fn pipe_from(&self, input: &[u8], args: &[&str]) -> Ran {
        let mut child = self.piped(args);
        let mut stdin = child.stdin.take().expect("piped");
        std::thread::scope(|scope| {
            // It may end before it has read all.
            scope.spawn(move || drop(std::io::Write::write_all(&mut stdin, input)));
            Ran::of(child.wait_with_output().expect("an end"))
        })
    }

    /// All three streams piped.
    pub fn piped(&self, args: &[&str]) -> Child {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("the binary runs")
    }
}

pub fn end(child: Child) -> Ran {
    Ran::of(child.wait_with_output().expect("an end"))
}

/// The binary, with nothing of this process's own settings.
pub fn semel(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_semel"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SEMEL_")) {
        command.env_remove(name);
    }
    command.args(args).current_dir(folder);
    command
}

pub fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < Duration::from_secs(60), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub fn signal(child: &Child, signal: i32) {
    // SAFETY: a child of this process that was not waited for.
    let sent = unsafe { libc::kill(child.id() as i32, signal) };
    assert_eq!(sent, 0, "the child is there");
}
