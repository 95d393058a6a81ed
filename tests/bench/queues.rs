//! RabbitMQ to RabbitMQ, beside the same copy without claims: the same clients, prefetch and windows.

use std::time::{Duration, Instant};

use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use semel::sink::rabbitmq::{RabbitOptions, RabbitSink, Route, Server};
use semel::sink::{Destination, Outgoing, Sink};
use semel::source::rabbitmq::{RabbitMqSource, RabbitMqSourceOptions};
use semel::source::{Gather, Received, Source};
use tokio::runtime::Runtime;

use crate::measure::{COPY_CONFIRMED, EMBEDDED, POSTGRES, Run, Table, cpu_of, memory_of};
use crate::scenes::{ready_at, tried};
use crate::support::daemon::{Daemon, Settings, run_well};
use crate::support::random::Random;
use crate::support::services::Services;
use crate::support::unique;

/// The daemon's defaults.
const PREFETCH: u16 = 2_000;
const WINDOW: usize = 6_000;
const LINGER: Duration = Duration::from_millis(5);

struct Queues {
    runtime: Runtime,
    channel: Channel,
    _connection: Connection,
    url: String,
}

impl Queues {
    fn open() -> Queues {
        let url = Services::shared().rabbitmq.url;
        let runtime = runtime();
        let (channel, connection) = runtime.block_on(async {
            let connection =
                Connection::connect(&url, ConnectionProperties::default()).await.expect("RabbitMQ answers");
            let channel = connection.create_channel().await.expect("a channel");
            channel.confirm_select(ConfirmSelectOptions::default()).await.expect("confirms");
            (channel, connection)
        });
        Queues { runtime, channel, _connection: connection, url }
    }

    fn make(&self) -> String {
        let name = unique("bench");
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        let declared = self.channel.queue_declare(name.as_str().into(), options, FieldTable::default());
        self.runtime.block_on(declared).expect("a queue");
        name
    }

    fn delete(&self, name: &str) {
        let deleted = self.channel.queue_delete(name.into(), QueueDeleteOptions::default());
        self.runtime.block_on(deleted).expect("deleted");
    }

    /// The same messages each time.
    fn fill(&self, messages: u64, duplicates_percent: u32) -> String {
        let name = self.make();
        let mut random = Random::new(7);
        let body = "x".repeat(512);
        self.runtime.block_on(async {
            let mut sent = Vec::with_capacity(1_000);
            for n in 0..messages {
                let event = if n > 0 && random.percent(duplicates_percent) { random.among(0..n) } else { n };
                let id = format!("{:08x}-0000-7000-8000-{event:012x}", event.wrapping_mul(2_654_435_761) as u32);
                let properties = BasicProperties::default().with_message_id(id.into()).with_delivery_mode(2);
                let (queue, options) = (name.as_str().into(), BasicPublishOptions::default());
                let published = self.channel.basic_publish("".into(), queue, options, body.as_bytes(), properties);
                sent.push(published.await.expect("sent"));
                if sent.len() == 1_000 {
                    for confirm in sent.drain(..) {
                        confirm.await.expect("confirmed");
                    }
                }
            }
            for confirm in sent {
                confirm.await.expect("confirmed");
            }
        });
        name
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime starts")
}

pub fn run(rounds: u64, messages: u64) {
    for duplicates in [0, 30] {
        let title = format!("{messages} messages of 512 bytes from queue to queue, {duplicates} % duplicates");
        let mut table = Table::titled(title.clone());
        // The first round warms the broker up.
        for round in 0..=rounds {
            let mut this = Table::titled(title.clone());
            let to = if round == 0 { &mut this } else { &mut table };
            one_round(to, messages, duplicates);
        }
        println!("{table}");
    }
}

fn one_round(table: &mut Table, messages: u64, duplicates: u32) {
    let queues = Queues::open();
    let compete = |contender: &dyn Fn(&str, &str) -> Run| {
        let (input, output) = (queues.fill(messages, duplicates), queues.make());
        let run = contender(&input, &output);
        queues.delete(&input);
        queues.delete(&output);
        run
    };
    table.add(COPY_CONFIRMED, compete(&|input, output| copy(&queues.url, input, output, messages)));
    let services = Services::shared();
    let database = services.make_database();
    let store = format!("{database}?sslmode=disable");
    let settings = Settings::from([("SEMEL_STORE".to_owned(), store.clone())]);
    run_well(&["migrate"], &settings);
    run_well(&["partitions", "--ensure"], &settings);
    table.add(POSTGRES, compete(&|input, output| daemon(&queues.url, input, output, &store, messages)));
    let folder = tempfile::tempdir().expect("a folder");
    let store = format!("embedded:{}", folder.path().join("claims").display());
    table.add(EMBEDDED, compete(&|input, output| daemon(&queues.url, input, output, &store, messages)));
}

/// In a process of its own, so that its memory and time are its own.
fn copy(url: &str, input: &str, output: &str, messages: u64) -> Run {
    let own = std::env::current_exe().expect("a program");
    let arguments = ["--copy-queue", url, input, output, &messages.to_string()];
    let answer = std::process::Command::new(own).args(arguments).output().expect("the copy starts");
    let text = String::from_utf8_lossy(&answer.stdout);
    let mut numbers = text.split_whitespace().map(|text| text.parse::<u64>().expect("a number"));
    let mut next = || numbers.next().unwrap_or_else(|| panic!("the copy: {}", String::from_utf8_lossy(&answer.stderr)));
    Run {
        messages,
        time: Duration::from_micros(next()),
        cpu: Duration::from_micros(next()),
        memory_kib: next(),
        ..Run::default()
    }
}

/// The copy itself: receive, publish to each confirm, acknowledge.
pub fn copy_here(url: &str, input: &str, output: &str, messages: u64) {
    let uri: lapin::uri::AMQPUri = url.parse().expect("a URL");
    let (host, user) = (format!("{}:{}", uri.authority.host, uri.authority.port), uri.authority.userinfo);
    runtime().block_on(async {
        let mut source = RabbitMqSource::new(RabbitMqSourceOptions {
            hosts: vec![host.clone()],
            tls: false,
            user: Some((user.username.clone(), user.password.clone())),
            vhost: "/".into(),
            queue: input.to_owned(),
            prefetch: PREFETCH,
            client: "copy".into(),
            timeout: Duration::from_secs(10),
        });
        let server = Server::new(vec![host], &user.username, &user.password, "/");
        let mut sink = RabbitSink::new(RabbitOptions::new(server, Route::to_queue(output)));
        sink.check().await.expect("a sink");
        let (begun, cpu) = (Instant::now(), cpu_of(std::process::id()));
        let mut done = 0;
        while done < messages {
            let wait = Duration::from_millis(200);
            let gather = Gather { messages_max: WINDOW, bytes_max: 8 << 20, wait, linger: LINGER };
            let Received::Deliveries(received) = source.receive(gather).await.expect("messages") else { break };
            let tags: Vec<_> = received.iter().map(|delivery| delivery.tag).collect();
            let outgoing = |delivery: semel::source::Delivery| Outgoing {
                destination: Destination::Forward,
                message: delivery.message,
                idempotency_key: None,
            };
            let window: Vec<Outgoing> = received.into_iter().map(outgoing).collect();
            let published = sink.publish(&window).await;
            assert!(published.iter().all(semel::sink::Published::is_stored), "every one is confirmed");
            source.acknowledge(&tags).await.expect("acknowledged");
            done += tags.len() as u64;
        }
        let (time, cpu) = (begun.elapsed(), cpu_of(std::process::id()) - cpu);
        println!("{} {} {}", time.as_micros(), cpu.as_micros(), memory_of(std::process::id()));
    });
}

fn daemon(url: &str, input: &str, output: &str, store: &str, messages: u64) -> Run {
    let folder = tempfile::tempdir().expect("a folder");
    let mut settings: Settings = [
        ("SEMEL_SOURCE", format!("{url}?queue={input}&prefetch={PREFETCH}")),
        ("SEMEL_SINK", format!("{url}?queue={output}")),
        ("SEMEL_STORE", store.to_owned()),
        ("SEMEL_SCOPE", "bench".to_owned()),
        ("SEMEL_EVENT_ID", "header:message_id".to_owned()),
        ("SEMEL_EVENT_TIME", "none".to_owned()),
        // There are none.
        ("SEMEL_DEAD_LETTER", output.to_owned()),
        ("SEMEL_LOG", "warn".to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    settings.extend(std::env::vars().filter(|(name, _)| tried(name)));
    let mut daemon = Daemon::start(folder.path(), "bench", &settings);
    let begun = ready_at(&mut daemon);
    let cpu = cpu_of(daemon.pid());
    let done = |daemon: &Daemon| {
        let duplicates = daemon.metric("im2be_dedup_claims_total", &[r#"outcome="duplicate""#]);
        daemon.metric("semel_forwarded_messages_total", &[]) + duplicates
    };
    while done(&daemon) < messages as f64 {
        assert!(begun.elapsed() < Duration::from_secs(600), "the daemon is stuck:\n{}", daemon.tail());
        std::thread::sleep(Duration::from_millis(50));
    }
    let time = begun.elapsed();
    let phases = ["reserve", "publish"].map(|phase| {
        let spent = daemon.metric("semel_phase_seconds_sum", &[&format!(r#"phase="{phase}""#)]);
        format!("{phase} {spent:.1} s")
    });
    eprintln!("busy: {} of {:.1} s", phases.join(", "), time.as_secs_f64());
    Run {
        messages,
        time,
        cpu: cpu_of(daemon.pid()) - cpu,
        memory_kib: memory_of(daemon.pid()),
        commits: daemon.metric("semel_store_commits_total", &[]) as u64,
        windows: daemon.metric("semel_windows_total", &[]) as u64,
    }
}
