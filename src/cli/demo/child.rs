//! The demo's job: `semel pipe` in a process of its own, which is killed on its way.

use std::fs::File;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Between two looks at the output.
const LOOK: Duration = Duration::from_millis(1);

/// The demo's files.
pub struct Files {
    pub folder: PathBuf,
    /// Lines per window: small enough that kills fall into many of them.
    pub window: u64,
}

impl Files {
    pub fn sent(&self) -> PathBuf {
        self.folder.join("sent.ndjson")
    }

    pub fn forwarded(&self) -> PathBuf {
        self.folder.join("forwarded.ndjson")
    }

    pub fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    pub fn forwarded_length(&self) -> u64 {
        std::fs::metadata(self.forwarded()).map_or(0, |metadata| metadata.len())
    }
}

/// How a start of the job ended.
pub enum Ended {
    Finished,
    /// While it was at work, with so many bytes in the output.
    Killed(u64),
    /// Somebody asked the demo to end.
    Interrupted,
    Failed(ExitStatus),
}

/// A child that does not outlive this value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Gone already in the usual case.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the job. `kill`: at which length of the output, and how long after that was seen.
pub fn start(files: &Files, kill: Option<(u64, Duration)>, stop: impl Fn() -> bool) -> io::Result<Ended> {
    let length_before = files.forwarded_length();
    let mut at_work = false;
    let mut child = Running(command(files)?.spawn()?);
    loop {
        if let Some(status) = child.0.try_wait()? {
            return Ok(if status.success() { Ended::Finished } else { Ended::Failed(status) });
        }
        if stop() {
            return Ok(Ended::Interrupted);
        }
        // It has cut the output back, or written to it: it is past its preparations.
        let now = files.forwarded_length();
        at_work |= now != length_before;
        if let Some((length, pause)) = kill
            && at_work
            && now >= length
        {
            sleep(pause);
            child.0.kill()?;
            let status = child.0.wait()?;
            // Only a child that the signal found alive died of it.
            let killed = status.signal() == Some(libc::SIGKILL);
            return Ok(match killed {
                true => Ended::Killed(files.forwarded_length()),
                false if status.success() => Ended::Finished,
                false => Ended::Failed(status),
            });
        }
        std::thread::sleep(LOOK);
    }
}

/// Short times, which a sleep would stretch.
fn sleep(time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn command(files: &Files) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    // What is set for other jobs is not for this one.
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("SEMEL_") || name.starts_with("IM2BE_")) {
            command.env_remove(name);
        }
    }
    let store = format!("embedded:{}", files.folder.join("claims").display());
    let window = files.window.to_string();
    command.args(["pipe", "--event-id", "json:/id", "--store", &store, "--window-size", &window]);
    command.args([files.sent(), files.forwarded()]);
    let log = File::options().append(true).create(true).open(files.log())?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    let parent = std::process::id();
    // SAFETY: only calls that are allowed between fork and exec.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(io::Error::last_os_error());
            }
            // The parent may have died before that.
            if libc::getppid() as u32 == parent { Ok(()) } else { Err(io::Error::other("the parent is gone")) }
        });
    }
    Ok(command)
}

/// The last lines that the job wrote.
pub fn last_words(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().take(5).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}
