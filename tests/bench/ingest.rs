//! `semel ingest` over HTTP: what windows are worth, what callers beside each other are worth, and what a claim costs in
//! memory. Into NATS, whose confirms are cheap, so that it is the claims that are measured.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::measure::{cpu_of, memory_of};
use crate::support::daemon::{self, Daemon, Settings, run_well};
use crate::support::services::Services;
use crate::support::unique;

pub const TITLE: &str = "semel ingest: 1,000 NDJSON records of 200 bytes a request, into NATS";

const RECORDS: usize = 1_000;
const CALLERS: usize = 64;
/// Of each caller.
const REQUESTS: usize = 50;
/// For the memory of a claim.
const CLAIMS: usize = 1_000_000;

const PATH: &str = "/v1/ingest/acme/orders";

pub fn run(rounds: u64) {
    println!("\n## {TITLE}\n");
    println!("| | window | ms a request, median | commits a request | windows | times faster |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for store in ["embedded", "postgresql"] {
        let mut one_by_one = None;
        for window in [1, 256] {
            let mut bench = Bench::start(store, &[("SEMEL_INGEST_WINDOW", &window.to_string())]);
            bench.post(RECORDS, "warm");
            let before = bench.counts();
            let mut times: Vec<Duration> = (0..rounds).map(|n| bench.post(RECORDS, &format!("r{n}"))).collect();
            let counts = bench.counts();
            times.sort();
            let median = times[times.len() / 2].as_secs_f64() * 1e3;
            let [commits, windows] = [0, 1].map(|n| (counts[n] - before[n]) / rounds as f64);
            let faster = one_by_one.map_or("–".to_owned(), |slow: f64| format!("{:.0}", slow / median));
            one_by_one.get_or_insert(median);
            println!("| {store} | {window} | {median:.1} | {commits:.1} | {windows:.1} | {faster} |");
            bench.phases(rounds + 1);
            bench.daemon.stop();
        }
    }
    println!("\n| {CALLERS} callers, single objects | records/s | CPU µs per record | commits a record |");
    println!("| --- | --- | --- | --- |");
    for store in ["embedded", "postgresql"] {
        for lanes in ["8", "64"] {
            let mut bench = Bench::start(store, &[("SEMEL_INGEST_LANES", lanes)]);
            bench.beside_each_other(2, "warm");
            let (before, cpu) = (bench.counts(), cpu_of(bench.daemon.pid()));
            let took = bench.beside_each_other(REQUESTS, "all");
            let cpu = cpu_of(bench.daemon.pid()) - cpu;
            let records = (CALLERS * REQUESTS) as f64;
            let commits = (bench.counts()[0] - before[0]) / records;
            let (rate, cpu) = (records / took.as_secs_f64(), cpu.as_micros() as f64 / records);
            println!("| {store}, {lanes} lanes | {rate:.0} | {cpu:.0} | {commits:.2} |");
            bench.phases(1);
            bench.daemon.stop();
        }
    }
    println!("\n| memory | MiB before | MiB after {CLAIMS} more claims | bytes a claim |");
    println!("| --- | --- | --- | --- |");
    for store in ["embedded", "postgresql"] {
        let mut bench = Bench::start(store, &[]);
        bench.post(100_000, "warm");
        let before = memory_of(bench.daemon.pid());
        let took = bench.post(CLAIMS, "many");
        let after = memory_of(bench.daemon.pid());
        let each = (after - before) as f64 * 1024.0 / CLAIMS as f64;
        println!("| {store} | {} | {} | {each:.1} |", before / 1024, after / 1024);
        eprintln!("{store}: {:.0} records/s in one request", CLAIMS as f64 / took.as_secs_f64());
        bench.daemon.stop();
    }
}

/// A daemon with a stream and a store of its own.
struct Bench {
    daemon: Daemon,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Bench {
    fn start(store: &str, more: &[(&str, &str)]) -> Bench {
        let services = Services::shared();
        let folder = tempfile::tempdir().expect("a folder");
        let port = daemon::free_port();
        let mut settings = settings(&services, folder.path(), store, port);
        settings.extend(std::env::vars().filter(|(name, _)| crate::scenes::tried(name)));
        settings.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let mut daemon = Daemon::start_as("ingest", folder.path(), "bench", &settings);
        daemon.wait_ready();
        Bench { daemon, port, _folder: folder }
    }

    /// How long one request of so many fresh records took.
    fn post(&mut self, records: usize, prefix: &str) -> Duration {
        let body: String = (0..records).map(|n| record(&format!("{prefix}-{n}")) + "\n").collect();
        let mut caller = Caller::connect(self.port);
        let begun = Instant::now();
        let answer = caller.post("application/x-ndjson", &body);
        let took = begun.elapsed();
        assert_eq!(answer["published"], records, "{}", answer["error"]);
        took
    }

    fn beside_each_other(&mut self, requests: usize, prefix: &str) -> Duration {
        let port = self.port;
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for caller in 0..CALLERS {
                scope.spawn(move || {
                    let mut connected = Caller::connect(port);
                    for n in 0..requests {
                        let answer = connected.post("application/json", &record(&format!("{prefix}-{caller}-{n}")));
                        assert_eq!(answer["published"], 1, "{answer}");
                    }
                });
            }
        });
        begun.elapsed()
    }

    /// Commits of the store, and windows, so far.
    fn counts(&self) -> [f64; 2] {
        ["semel_store_commits_total", "semel_windows_total"].map(|name| self.daemon.metric(name, &[]))
    }

    fn phases(&self, requests: u64) {
        let spent = ["reserve", "publish", "commit"].map(|phase| {
            let label = format!(r#"phase="{phase}""#);
            let ms = self.daemon.metric("semel_phase_seconds_sum", &[&label]) * 1e3 / requests as f64;
            format!("{phase} {ms:.1} ms")
        });
        eprintln!("busy a request: {}", spent.join(", "));
    }
}

fn settings(services: &Services, folder: &Path, store: &str, port: u16) -> Settings {
    let keys = folder.join("keys.json");
    std::fs::write(&keys, r#"[{"name": "bench", "key": "bench", "tenants": ["*"], "tables": ["*"]}]"#).expect("a file");
    let store = match store {
        "embedded" => format!("embedded:{}", folder.join("claims").display()),
        _ => {
            let url = format!("{}?sslmode=disable", services.make_database());
            run_well(&["migrate"], &[("SEMEL_STORE".to_owned(), url.clone())].into());
            url
        }
    };
    [
        ("SEMEL_SCOPE", "bench".to_owned()),
        ("SEMEL_SINK", format!("{}?subject={}", services.nats, make_stream(&services.nats))),
        ("SEMEL_STORE", store),
        ("SEMEL_INGEST_KEYS", keys.display().to_string()),
        ("SEMEL_INGEST_LISTEN", format!("127.0.0.1:{port}")),
        ("SEMEL_LOG", "warn".to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// Answers its subject.
fn make_stream(url: &str) -> String {
    let name = unique("bench");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    runtime.block_on(async {
        let url = url::Url::parse(url).expect("a URL");
        let host = format!("{}:{}", url.host_str().expect("a host"), url.port().expect("a port"));
        let [user, password] = [url.username(), url.password().unwrap_or_default()].map(str::to_owned);
        let options = async_nats::ConnectOptions::with_user_and_password(user, password);
        let context = async_nats::jetstream::new(options.connect(host).await.expect("a connection"));
        let config = async_nats::jetstream::stream::Config {
            name: name.clone(),
            subjects: vec![name.clone()],
            duplicate_window: Duration::from_secs(120),
            ..Default::default()
        };
        context.create_stream(config).await.expect("a stream");
    });
    name
}

fn record(id: &str) -> String {
    let mut record = format!(r#"{{"id":"{id}","amount":17,"note":""#);
    record.extend(std::iter::repeat_n('x', 198_usize.saturating_sub(record.len())));
    record + "\"}"
}

/// A connection that is kept.
struct Caller(TcpStream);

impl Caller {
    fn connect(port: u16) -> Caller {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        stream.set_nodelay(true).expect("an option");
        Caller(stream)
    }

    fn post(&mut self, content_type: &str, body: &str) -> Value {
        let head = format!(
            "POST {PATH} HTTP/1.1\r\nHost: semel\r\nX-Api-Key: bench\r\nContent-Type: {content_type}\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        self.0.write_all(&[head.as_bytes(), body.as_bytes()].concat()).expect("sent");
        let mut read = Vec::new();
        let mut piece = vec![0; 64 << 10];
        loop {
            let count = self.0.read(&mut piece).expect("an answer");
            assert!(count > 0, "it hung up: {}", String::from_utf8_lossy(&read));
            read.extend_from_slice(&piece[..count]);
            if let Some(answer) = whole(&read) {
                return answer;
            }
        }
    }
}

/// None: more is to come.
fn whole(read: &[u8]) -> Option<Value> {
    let end = read.windows(4).position(|four| four == b"\r\n\r\n")?;
    let (head, body) = (String::from_utf8_lossy(&read[..end]).to_ascii_lowercase(), &read[end + 4..]);
    let Some(length) = head.split("content-length: ").nth(1) else {
        // In pieces, of which the last one is empty; only the counts are looked at.
        if !body.ends_with(b"0\r\n\r\n") {
            return None;
        }
        let text = String::from_utf8_lossy(body);
        let counts = text.split_once('{')?.1.split_once(",\"results\"")?.0.to_owned();
        return serde_json::from_str(&format!("{{{counts}}}")).ok();
    };
    let length: usize = length.split_whitespace().next()?.parse().ok()?;
    (body.len() >= length).then(|| serde_json::from_slice(&body[..length]).expect("JSON"))
}
