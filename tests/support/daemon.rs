//! The real binary as a child process.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use super::broker::wait_until;

pub const BINARY: &str = env!("CARGO_BIN_EXE_semel");

/// Environment variables, all of them: nothing of the test's own `SEMEL_*` reaches the child.
pub type Settings = BTreeMap<String, String>;

/// A running instance. Killed when it is dropped, and by the kernel when the thread that started it ends.
pub struct Daemon {
    child: Child,
    http: u16,
    pub log: PathBuf,
    pub instance: String,
}

/// Ends or halts a process from another thread. Valid while it is a daemon's and its [`Daemon`] lives, or a service's
/// that nobody else ends.
#[derive(Debug, Clone, Copy)]
pub struct Handle(pub(super) i32);

impl Handle {
    pub fn signal(self, signal: i32) {
        // SAFETY: kill has no memory effects; a daemon is not reaped before its Daemon is dropped, so that the number is
        // not given to another process.
        unsafe { libc::kill(self.0, signal) };
    }

    /// Whether a stop has reached all its threads.
    pub fn stands_still(self) -> bool {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.0)).expect("it is there");
        tasks.flatten().all(|task| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            // pid (name) state …: the name may hold anything.
            stat.rsplit_once(") ").is_none_or(|(_, behind)| behind.starts_with('T'))
        })
    }

    pub fn kill(self) {
        self.signal(libc::SIGKILL);
    }
}

impl Daemon {
    /// Starts `semel run`. What it prints is appended to `<folder>/<instance>.log`.
    pub fn start(folder: &Path, instance: &str, settings: &Settings) -> Daemon {
        Daemon::start_as("run", folder, instance, settings)
    }

    /// Another command that stays.
    pub fn start_as(command: &str, folder: &Path, instance: &str, settings: &Settings) -> Daemon {
        Daemon::spawn(command, folder, instance, settings, Stdio::null())
    }

    /// `semel run` with this as its standard input.
    pub fn start_fed(folder: &Path, instance: &str, settings: &Settings, input: File) -> Daemon {
        Daemon::spawn("run", folder, instance, settings, input.into())
    }

    fn spawn(subcommand: &str, folder: &Path, instance: &str, settings: &Settings, input: Stdio) -> Daemon {
        let http = free_port();
        let log = folder.join(format!("{instance}.log"));
        let file = File::options().create(true).append(true).open(&log).expect("a log file");
        let mut command = clean_command(settings);
        command
            .arg(subcommand)
            .env("SEMEL_INSTANCE", instance)
            .env("SEMEL_HTTP", settings.get("SEMEL_HTTP").cloned().unwrap_or(format!("127.0.0.1:{http}")))
            .stdin(input)
            .stdout(file.try_clone().expect("a second handle"))
            .stderr(file);
        let child = command.spawn().expect("the binary starts");
        Daemon { child, http, log, instance: instance.to_owned() }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The ports on which it listens.
    pub fn listens_on(&self) -> Vec<u16> {
        let own: Vec<String> = std::fs::read_dir(format!("/proc/{}/fd", self.pid()))
            .expect("a process that runs")
            .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok()?.into_os_string().into_string().ok())
            .filter_map(|target| Some(target.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
            .collect();
        let sockets = std::fs::read_to_string("/proc/net/tcp").expect("a list of sockets");
        let lines = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        // State 0A: it listens.
        lines
            .filter(|parts| parts.len() > 9 && parts[3] == "0A" && own.iter().any(|inode| inode == parts[9]))
            .filter_map(|parts| u16::from_str_radix(parts[1].split_once(':')?.1, 16).ok())
            .collect()
    }

    pub fn handle(&self) -> Handle {
        Handle(self.child.id() as i32)
    }

    /// Waits until it says that it is ready.
    pub fn wait_ready(&mut self) {
        let begun = Instant::now();
        while self.get("/readyz").is_none_or(|(status, _)| status != 200) {
            if let Some(status) = self.child.try_wait().expect("a child") {
                panic!("{} ended before it was ready ({status}):\n{}", self.instance, self.tail());
            }
            let told = self.get("/readyz");
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "{} is not ready: {told:?}\n{}",
                self.instance,
                self.tail()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Status and body; None where nobody answers.
    pub fn get(&self, path: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.http)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: semel\r\nConnection: close\r\n\r\n").ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok()?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    }

    /// The sum of a metric over those of its series that have all these labels in their text.
    pub fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let Some((200, body)) = self.get("/metrics") else { return 0.0 };
        let series = body.lines().filter(|line| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with(['{', ' '])) && labels.iter().all(|label| line.contains(label))
        });
        series.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    pub fn kill(mut self) {
        self.handle().kill();
        drop(self.child.wait());
    }

    /// Halts it, as a long pause of the machine does.
    pub fn halt(&self) {
        self.handle().signal(libc::SIGSTOP);
    }

    pub fn go_on(&self) {
        self.handle().signal(libc::SIGCONT);
    }

    /// SIGTERM, and its end, which must be clean.
    pub fn stop(mut self) {
        self.handle().signal(libc::SIGTERM);
        let status = self.wait_end(Duration::from_secs(60));
        assert!(status.success(), "{} ended with {status}:\n{}", self.instance, self.tail());
    }

    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child")
    }

    /// Waits for it to end by itself.
    pub fn wait_end(&mut self, within: Duration) -> ExitStatus {
        let mut status = None;
        wait_until(&format!("{} ends", self.instance), within, || {
            status = self.child.try_wait().expect("a child");
            status.is_some()
        });
        let status = status.expect("it ended");
        assert_ne!(status.signal(), Some(libc::SIGSEGV), "{}", self.tail());
        status
    }

    pub fn log_text(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The end of its log.
    pub fn tail(&self) -> String {
        let text = self.log_text();
        let lines: Vec<&str> = text.lines().collect();
        format!("{}:\n{}", self.log.display(), lines[lines.len().saturating_sub(30)..].join("\n"))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.tail());
        }
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Runs a command of the binary to its end.
pub fn run(arguments: &[&str], settings: &Settings) -> Output {
    clean_command(settings).args(arguments).stdin(Stdio::null()).output().expect("the binary starts")
}

/// Like [`run`], which must succeed; answers what it prints.
pub fn run_well(arguments: &[&str], settings: &Settings) -> String {
    let output = run(arguments, settings);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "semel {arguments:?}: {}\n{out}\n{err}", output.status);
    out.into_owned()
}

fn clean_command(settings: &Settings) -> Command {
    let mut command = Command::new(BINARY);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("SEMEL_") {
            command.env_remove(name);
        }
    }
    command.envs(settings);
    // SAFETY: prctl is async-signal-safe and touches nothing of the parent's.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    command
}

/// A port that nobody listens on now, below those that outgoing connections get.
pub fn free_port() -> u16 {
    use std::sync::atomic::{AtomicU16, Ordering};
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = (std::process::id() % 10_000) as u16;
    loop {
        let port = 20_000 + (first + NEXT.fetch_add(1, Ordering::SeqCst)) % 12_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
