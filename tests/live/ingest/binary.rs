//! The binary itself, over an embedded store, and NATS or Kafka.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::kit::{Form, ids, record, records};
use super::subjects::Stream;
use crate::support::broker::Broker;
use crate::support::daemon::{self, Daemon, Settings};
use crate::support::services::Services;
use crate::support::unique;

const KEYS: &str = r#"[{"name": "shop", "key": "k-shop", "tenants": ["acme"], "tables": ["*"]}]"#;

/// Status, headers and body.
pub fn post(port: u16, path: &str, content_type: &str, key: &str, body: &str) -> (u16, String, Value) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: semel\r\nConnection: close\r\nAuthorization: Bearer {key}\r\n\
         Content-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("sent");
    stream.write_all(body.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, head.to_ascii_lowercase(), serde_json::from_str(body).unwrap_or(Value::Null))
}

pub fn settings(folder: &Path, sink: &str, listen: u16, more: &[(&str, &str)]) -> Settings {
    let keys = folder.join("keys.json");
    if !keys.exists() {
        std::fs::write(&keys, KEYS).expect("a file");
    }
    let mut settings: Settings = [
        ("SEMEL_SCOPE", "s".to_owned()),
        ("SEMEL_SINK", sink.to_owned()),
        ("SEMEL_STORE", format!("embedded:{}", folder.join("claims").display())),
        ("SEMEL_INGEST_KEYS", keys.display().to_string()),
        ("SEMEL_INGEST_LISTEN", format!("127.0.0.1:{listen}")),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    settings.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    settings
}

pub fn make_stream(duplicate_window: Duration) -> Stream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    runtime.block_on(Stream::make(&Services::shared(), duplicate_window))
}

/// Records by HTTP come through once, also across a restart; keys are read again, tables without dedupe are not held.
#[test]
fn records_by_http() {
    let folder = tempfile::tempdir().expect("a folder");
    let stream = make_stream(Duration::from_secs(120));
    let listen = daemon::free_port();
    let settings = settings(folder.path(), &stream.url(), listen, &[("SEMEL_INGEST_UNDEDUPED", "acme/logs")]);
    let mut daemon = Daemon::start_as("ingest", folder.path(), "one", &settings);
    daemon.wait_ready();
    let lines = Form::Lines.body(&records("h", 600));
    let post = |path: &str, key: &str, body: &str| post(listen, path, "application/x-ndjson", key, body);
    let (status, _, body) = post("/v1/ingest/acme/orders", "k-shop", &lines);
    assert_eq!((status, &body["published"]), (200, &600.into()), "{body}");
    let (status, head, _) = post("/v1/ingest/acme/orders", "k-other", &lines);
    assert!(status == 401 && head.contains("www-authenticate: bearer"), "{head}");
    assert_eq!(post("/v1/ingest/other/orders", "k-shop", &lines).0, 403);
    let twice = Form::Lines.body(&[record("l"), record("l")]);
    assert_eq!(post("/v1/ingest/acme/logs", "k-shop", &twice).2["published"], 2);
    assert_eq!(daemon.metric("semel_forwarded_unclaimed_total", &["cause=\"dedupe_off\""]), 2.0, "counted");
    std::fs::write(folder.path().join("keys.json"), KEYS.replace("k-shop", "k-new")).expect("a file");
    let begun = Instant::now();
    while post("/v1/ingest/acme/orders", "k-new", "").0 != 200 {
        assert!(begun.elapsed() < Duration::from_secs(10), "the keys are read again");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(post("/v1/ingest/acme/orders", "k-shop", "").0, 401);
    let counted = daemon.metric("semel_ingest_requests_total", &["status=\"401\""]);
    assert!(counted >= 2.0, "{counted}");
    daemon.stop();

    let mut daemon = Daemon::start_as("ingest", folder.path(), "one", &settings);
    let begun = Instant::now();
    daemon.wait_ready();
    assert!(begun.elapsed() < Duration::from_secs(20), "a drain leaves no lease to wait for");
    let (_, _, body) = post("/v1/ingest/acme/orders", "k-new", &lines);
    assert_eq!(body["duplicate"], 600, "{body}");
    daemon.stop();
    let right = [ids("h", 0..600), vec!["l".to_owned(); 2]].concat();
    assert_eq!(stream.ids_now(), right);
}

/// All lanes write to one file; a check looks at it and writes nothing.
#[test]
fn into_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("out.ndjson");
    let listen = daemon::free_port();
    let settings = settings(folder.path(), &format!("file:{}", path.display()), listen, &[]);
    let check = || daemon::run(&["ingest", "--check"], &settings);
    let told = |output: std::process::Output| String::from_utf8(output.stdout).expect("text");
    let text = told(check());
    assert!(text.contains("never lost; twice only after a crash between write and commit"), "{text}");
    let mut daemon = Daemon::start_as("ingest", folder.path(), "one", &settings);
    daemon.wait_ready();
    let senders: Vec<_> = (0..4)
        .map(|sender| {
            let body = Form::Lines.body(&records(&format!("f{}-", sender % 2), 300));
            std::thread::spawn(move || {
                post(listen, "/v1/ingest/acme/orders", "application/x-ndjson", "k-shop", &body).0
            })
        })
        .collect();
    let statuses: Vec<u16> = senders.into_iter().map(|sender| sender.join().expect("no panic")).collect();
    // Who meets the other's claims in flight is told to come again.
    assert!(statuses.iter().all(|status| [200, 503].contains(status)) && statuses.contains(&200), "{statuses:?}");
    daemon.stop();
    let text = std::fs::read_to_string(&path).expect("an output");
    let lines: std::collections::BTreeSet<&str> = text.lines().collect();
    assert_eq!(lines.len(), text.lines().count(), "each once");
    assert!(lines.len() >= 300 && lines.iter().all(|line| serde_json::from_str::<Value>(line).is_ok()));
    let (output, before) = (check(), text.len());
    assert!(output.status.success(), "{}", told(output));
    assert_eq!(std::fs::metadata(&path).expect("an output").len() as usize, before);
}

/// Each limit, set low, is felt.
#[test]
fn limits_of_the_binary() {
    let folder = tempfile::tempdir().expect("a folder");
    let stream = make_stream(Duration::from_secs(120));
    let listen = daemon::free_port();
    let more = [
        ("SEMEL_INGEST_LANES", "2"),
        ("SEMEL_INGEST_WINDOW", "10"),
        ("SEMEL_INGEST_RECORD_BYTES", "1KiB"),
        ("SEMEL_INGEST_DOCUMENT_BYTES", "2KiB"),
        ("SEMEL_INGEST_STREAM_BYTES", "8KiB"),
        ("SEMEL_INGEST_TIMEOUT", "1s"),
        ("SEMEL_INGEST_CONNECTIONS", "2"),
    ];
    let settings = settings(folder.path(), &stream.url(), listen, &more);
    let mut daemon = Daemon::start_as("ingest", folder.path(), "one", &settings);
    daemon.wait_ready();
    let orders = "/v1/ingest/acme/orders";
    let lines = |body: &str| post(listen, orders, "application/x-ndjson", "k-shop", body);
    let document = |body: &str| post(listen, orders, "application/json", "k-shop", body);
    let opened = daemon.log_text().matches("opened a lane").count();
    assert_eq!(opened, 2, "lanes");
    assert_eq!(lines(&Form::Lines.body(&records("w", 100))).0, 200);
    let windows = daemon.metric("semel_windows_total", &["end=\"committed\""]);
    assert_eq!(windows, 10.0, "windows of 10");
    let long = |bytes: usize| format!("{{\"id\":\"long{bytes}\",\"text\":\"{}\"}}", "x".repeat(bytes));
    assert_eq!(lines(&long(1_100)).2["rejected"], 1);
    assert_eq!(lines(&long(900)).2["published"], 1);
    assert_eq!((document(&long(1_900)).0, document(&long(2_100)).0), (200, 413));
    assert_eq!(lines(&Form::Lines.body(&records("s", 400))).0, 413);

    let slow = || {
        let mut slow = TcpStream::connect(("127.0.0.1", listen)).expect("it listens");
        let head = format!(
            "POST {orders} HTTP/1.1\r\nHost: s\r\nX-Api-Key: k-shop\r\nContent-Type: application/x-ndjson\r\n\
             Content-Length: 10\r\n\r\n"
        );
        slow.write_all(head.as_bytes()).expect("sent");
        slow
    };
    // Until the connections before have ended.
    std::thread::sleep(Duration::from_millis(500));
    let mut both = [slow(), slow()];
    let mut third = TcpStream::connect(("127.0.0.1", listen)).expect("the system takes it");
    let mut nothing = Vec::new();
    // It may be hung up on with an error, or without a word.
    let _ = third.read_to_end(&mut nothing);
    assert_eq!(nothing.len(), 0, "a third connection is hung up on");
    for one in &mut both {
        let mut answer = [0; 12];
        one.read_exact(&mut answer).expect("an answer");
        assert_eq!(&answer, b"HTTP/1.1 408");
    }
    drop(both);
    daemon.stop();
}

/// Schemas and retention that cannot be used end the start; a schema that can is felt.
#[test]
fn tables_settings() {
    let folder = tempfile::tempdir().expect("a folder");
    let stream = make_stream(Duration::from_secs(120));
    let schema = folder.path().join("orders.json");
    let setting = format!("acme/orders={}", schema.display());
    let refused = |more: &[(&str, &str)], right: &str| {
        let settings = settings(folder.path(), &stream.url(), daemon::free_port(), more);
        let mut daemon = Daemon::start_as("ingest", folder.path(), "one", &settings);
        assert_eq!(daemon.wait_end(Duration::from_secs(30)).code(), Some(64), "{more:?}");
        assert!(daemon.log_text().contains(right), "{more:?}: {}", daemon.log_text());
    };
    refused(&[("SEMEL_INGEST_SCHEMAS", &setting)], "orders.json: it cannot be read");
    std::fs::write(&schema, r#"{"$ref": "http://127.0.0.1:9/schema.json"}"#).expect("a file");
    refused(&[("SEMEL_INGEST_SCHEMAS", &setting)], "nothing is fetched");
    refused(&[("SEMEL_INGEST_RETENTION", "acme=7d")], "`acme` is not TENANT/TABLE");
    std::fs::write(&schema, r#"{"required": ["amount"]}"#).expect("a file");
    let listen = daemon::free_port();
    let more = [("SEMEL_INGEST_SCHEMAS", setting.as_str()), ("SEMEL_INGEST_RETENTION", "acme/orders=1s")];
    let settings = settings(folder.path(), &stream.url(), listen, &more);
    let mut daemon = Daemon::start_as("ingest", folder.path(), "one", &settings);
    daemon.wait_ready();
    let post = |body: &str| post(listen, "/v1/ingest/acme/orders", "application/json", "k-shop", body).2;
    assert_eq!(post("{\"id\":1}")["results"][0]["detail"], "\"amount\" is a required property");
    let whole = "{\"id\":1,\"amount\":1}";
    assert_eq!(post(whole)["published"], 1);
    let begun = Instant::now();
    while post(whole)["published"] != 1 {
        assert!(begun.elapsed() < Duration::from_secs(30), "its claim is forgotten");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(daemon.metric("semel_ingest_expired_claims_total", &[]) >= 1.0);
    daemon.stop();
}

/// 2 × lease + 1 s has to fit into the stream's duplicate window, with a lease that is not the default.
#[test]
fn a_lease_that_outlasts_the_duplicate_window_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let stream = make_stream(Duration::from_secs(20));
    for (lease, fits) in [("10s", false), ("9500ms", true)] {
        let more = [("SEMEL_LEASE", lease), ("SEMEL_PUBLISH_TIMEOUT", "2s")];
        let settings = settings(folder.path(), &stream.url(), daemon::free_port(), &more);
        let mut daemon = Daemon::start_as("ingest", folder.path(), "one", &settings);
        if fits {
            daemon.wait_ready();
            daemon.stop();
        } else {
            assert_eq!(daemon.wait_end(Duration::from_secs(30)).code(), Some(64));
            let text = daemon.log_text();
            assert!(text.contains("20s") && text.contains("21s") && text.contains("lease of 10s"), "{text}");
        }
    }
}

/// Killed in the middle again and again, with callers that retry: every event is there once.
#[test]
fn kills() {
    let stream = make_stream(Duration::from_secs(120));
    let more = [("SEMEL_LEASE", "2s"), ("SEMEL_PUBLISH_TIMEOUT", "1s")];
    come_through_kills(&stream.url(), &more, || stream.ids_now());
}

/// The same into Kafka, as a read_committed reader sees it, and by a daemon that says what it promises.
#[test]
fn kills_into_kafka() {
    let broker = Broker(Services::shared().kafka);
    let topic = unique("ingest-kills");
    broker.make_topic(&topic, 3, &[]);
    let more = [("SEMEL_LEASE", "3s"), ("SEMEL_TRANSACTION_TIMEOUT", "2s")];
    let log = come_through_kills(&format!("kafka://{}/{topic}", broker.0), &more, || {
        let records = broker.read(&topic).into_iter().flat_map(|log| log.records);
        records.map(|record| super::kit::id_of(&record.value.unwrap_or_default())).collect()
    });
    assert!(log.contains("exactly once, as seen by a read_committed reader"), "{log}");
}

/// Answers what the daemon has logged.
fn come_through_kills(sink: &str, more: &[(&str, &str)], read: impl Fn() -> Vec<String>) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let listen = daemon::free_port();
    let more = [more, &[("SEMEL_INGEST_WINDOW", "64")]].concat();
    let settings = settings(folder.path(), sink, listen, &more);
    let (kills, batch) = if crate::full() { (30, 2_000) } else { (4, 2_000) };
    for kill in 0..kills {
        let mut daemon = Daemon::start_as("ingest", folder.path(), "one", &settings);
        daemon.wait_ready();
        let handle = daemon.handle();
        let lines = Form::Lines.body(&records(&format!("k{kill}-"), batch));
        let sender = std::thread::spawn(move || {
            // On a busy machine it may be killed before this.
            let Ok(mut stream) = TcpStream::connect(("127.0.0.1", listen)) else { return };
            let head = format!(
                "POST /v1/ingest/acme/orders HTTP/1.1\r\nHost: s\r\nX-Api-Key: k-shop\r\n\
                 Content-Type: application/x-ndjson\r\nContent-Length: {}\r\n\r\n",
                lines.len()
            );
            // It may be killed at any time.
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(lines.as_bytes()));
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
        });
        std::thread::sleep(Duration::from_millis(10 + 17 * kill % 120));
        handle.kill();
        sender.join().expect("no panic");
        drop(daemon);
    }
    let mut daemon = Daemon::start_as("ingest", folder.path(), "one", &settings);
    daemon.wait_ready();
    for kill in 0..kills {
        let lines = Form::Lines.body(&records(&format!("k{kill}-"), batch));
        let begun = Instant::now();
        loop {
            let (status, _, body) = post(listen, "/v1/ingest/acme/orders", "application/x-ndjson", "k-shop", &lines);
            if status == 200 {
                break;
            }
            assert!(status == 503 && begun.elapsed() < Duration::from_secs(30), "{status} {body}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
    let log = daemon.log_text();
    daemon.stop();
    let mut came = read();
    came.sort();
    let mut right: Vec<String> = (0..kills).flat_map(|kill| ids(&format!("k{kill}-"), 0..batch)).collect();
    right.sort();
    assert!(came == right, "{} came of {}", came.len(), right.len());
    log
}
