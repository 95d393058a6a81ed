//! RabbitMQ to RabbitMQ by the real binary, with the claims in PostgreSQL: never lost, and twice only where the log or a
//! kill accounts for it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use lapin::message::Delivery;
use lapin::options::{BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use semel::protocol::event::{EventId, Scope};
use semel::protocol::idempotency;
use tokio::runtime::Runtime;

use crate::support::daemon::{Daemon, Settings, run_well};
use crate::support::database::Database;
use crate::support::random::{self, Random};
use crate::support::services::Services;
use crate::support::unique;
use crate::{MINUTE, full};

/// Two queues, a database, and what daemons between them are told.
pub struct Between {
    pub runtime: Runtime,
    pub channel: Channel,
    _connection: Connection,
    url: String,
    pub input: String,
    pub output: String,
    pub scope: String,
    pub database: String,
    pub folder: PathBuf,
    pub settings: Settings,
    pub random: Random,
}

/// A message as it came out: the event's id, which was its `message_id`, and what its `message_id` is now.
type Out = (String, String);

impl Between {
    pub fn new(name: &str) -> Between {
        Between::with(name, &Services::shared(), FieldTable::default())
    }

    /// Over RabbitMQ and PostgreSQL of these services; the queues are declared with these arguments.
    pub fn with(name: &str, services: &Services, arguments: FieldTable) -> Between {
        let seed = random::seed();
        println!("{name}: seed {seed}");
        let url = services.rabbitmq.url.clone();
        assert!(!url.is_empty(), "SEMEL_TEST_RABBITMQ is not set: run tests/run");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime starts");
        let base = unique(name);
        let [input, output, dead] = ["in", "out", "dead"].map(|end| format!("{base}.{end}"));
        let (connection, channel) = runtime.block_on(async {
            let (connection, channel) = connect(&url).await;
            for queue in [&input, &output, &dead] {
                let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
                channel.queue_declare(queue.as_str().into(), options, arguments.clone()).await.expect("a queue");
            }
            (connection, channel)
        });
        let database = services.make_database();
        let folder = services.folder.join("live").join(&base);
        std::fs::create_dir_all(&folder).expect("a folder for logs");
        let scope = format!("{name}-scope");
        let settings = [
            ("SEMEL_SOURCE", format!("{url}?queue={input}&prefetch=500")),
            ("SEMEL_SINK", format!("{url}?queue={output}")),
            ("SEMEL_STORE", format!("{database}?sslmode=disable")),
            ("SEMEL_SCOPE", scope.clone()),
            ("SEMEL_EVENT_ID", "header:message_id".to_owned()),
            ("SEMEL_EVENT_TIME", "none".to_owned()),
            ("SEMEL_DEAD_LETTER", dead),
            // Failures show at the pace of a test.
            ("SEMEL_LEASE", "3s".to_owned()),
            ("SEMEL_PUBLISH_TIMEOUT", "1s".to_owned()),
            ("SEMEL_WINDOW_SIZE", "200".to_owned()),
        ];
        let settings: Settings = settings.map(|(name, value)| (name.to_owned(), value)).into();
        run_well(&["migrate"], &settings);
        let random = Random::new(seed);
        Between {
            runtime,
            channel,
            _connection: connection,
            url,
            input,
            output,
            scope,
            database,
            folder,
            settings,
            random,
        }
    }

    /// The test's own connection, after its broker was away.
    pub fn connect_again(&mut self) {
        (self._connection, self.channel) = self.runtime.block_on(connect(&self.url));
    }

    /// Has the daemons reach a server by another port of this machine.
    pub fn reach(&mut self, setting: &str, port: u16, other: u16) {
        let value = self.settings.get_mut(setting).expect("it is set");
        *value = value.replacen(&format!(":{port}"), &format!(":{other}"), 1);
    }

    pub fn daemon(&self, instance: &str) -> Daemon {
        Daemon::start(&self.folder, instance, &self.settings)
    }

    /// Events by their number; so many in a hundred messages repeat an earlier event.
    pub fn events(&mut self, messages: usize, repeats: u32) -> Vec<String> {
        let mut events: Vec<String> = Vec::with_capacity(messages);
        for n in 0..messages {
            let repeated =
                if n > 0 && self.random.percent(repeats) { Some(self.random.among(0..n as u64)) } else { None };
            events.push(match repeated {
                Some(earlier) => events[earlier as usize].clone(),
                None => format!("event-{n}"),
            });
        }
        events
    }

    pub fn send(&self, events: &[String]) {
        self.send_with(events, &FieldTable::default());
    }

    pub fn send_with(&self, events: &[String], headers: &FieldTable) {
        self.try_send(events, headers).expect("the input takes every message");
    }

    /// The same where the broker was away a moment ago and may not be whole yet: all of them again until it takes them.
    pub fn send_at_last(&mut self, events: &[String]) {
        let begun = Instant::now();
        while let Err(error) = self.try_send(events, &FieldTable::default()) {
            assert!(begun.elapsed() < MINUTE, "the input does not take messages: {error}");
            std::thread::sleep(Duration::from_millis(500));
            self.connect_again();
        }
    }

    fn try_send(&self, events: &[String], headers: &FieldTable) -> Result<(), lapin::Error> {
        self.runtime.block_on(async {
            let mut confirms = Vec::with_capacity(events.len());
            for event in events {
                let properties = BasicProperties::default()
                    .with_message_id(event.as_str().into())
                    .with_headers(headers.clone())
                    .with_delivery_mode(2);
                let body = format!("{{\"of\":\"{event}\"}}");
                let options = BasicPublishOptions::default();
                let sent = self.channel.basic_publish(
                    "".into(),
                    self.input.as_str().into(),
                    options,
                    body.as_bytes(),
                    properties,
                );
                confirms.push(sent.await?);
            }
            for confirm in confirms {
                assert!(confirm.await?.is_ack(), "the input takes every message");
            }
            Ok(())
        })
    }

    /// Messages that wait in a queue and are not out.
    pub fn waiting(&self, queue: &str) -> usize {
        let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let declared = self.channel.queue_declare(queue.into(), options, FieldTable::default());
        self.runtime.block_on(declared).expect("a queue").message_count() as usize
    }

    pub fn wait_forwarded(&self, most: usize) {
        let begun = Instant::now();
        while self.waiting(&self.output) < most {
            let there = self.waiting(&self.output);
            assert!(begun.elapsed() < 10 * MINUTE, "only {there} of {most} came out: see {}", self.folder.display());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Everything that is in a queue, taken from it.
    pub fn take_all(&self, queue: &str) -> Vec<Delivery> {
        let get = || self.channel.basic_get(queue.into(), BasicGetOptions { no_ack: true });
        self.runtime.block_on(async {
            let mut all = Vec::new();
            while let Some(message) = get().await.expect("an answer") {
                all.push(message.delivery);
            }
            all
        })
    }

    /// Everything that came out.
    fn outputs(&self) -> Vec<Out> {
        let all = self.take_all(&self.output);
        all.iter()
            .map(|message| {
                let properties = &message.properties;
                // Another source than a queue has it as a header from the beginning.
                let event = header(message, "semel-message-id").or_else(|| header(message, "message_id"));
                let event = event.unwrap_or_else(|| panic!("no id of its own: {properties:?}"));
                assert_eq!(message.data, format!("{{\"of\":\"{event}\"}}").into_bytes(), "the body is the event's");
                let key = properties.message_id().as_ref().expect("a message_id").to_string();
                (event, key)
            })
            .collect()
    }

    /// Nothing lost; every copy under its event's key. Answers the events that came out more than once.
    pub fn check(&self, events: &[String]) -> BTreeSet<String> {
        let mut copies: BTreeMap<String, u32> = BTreeMap::new();
        let scope = Scope::new(&self.scope).expect("a scope");
        for (event, key) in self.outputs() {
            let right = idempotency::of_event(&scope, &EventId::encode(event.as_bytes()).expect("an id"));
            assert_eq!(key, *right, "{event} goes by another key");
            *copies.entry(event).or_default() += 1;
        }
        let sent: BTreeSet<&String> = events.iter().collect();
        let lost: Vec<_> = sent.iter().filter(|event| !copies.contains_key(**event)).collect();
        assert!(lost.is_empty(), "{} events are lost, the first: {:?}", lost.len(), lost.first());
        assert!(copies.keys().all(|event| sent.contains(event)), "what came out was sent");
        assert_eq!(self.waiting(&self.input), 0, "every message was acknowledged");
        copies.into_iter().filter(|(_, count)| *count > 1).map(|(event, _)| event).collect()
    }

    /// What an instance that was killed had claimed and not settled, as the store knows it.
    pub fn unsettled(&self, instance: &str) -> Vec<String> {
        self.unsettled_of(&format!("slot:{}/{instance}", self.input))
    }

    pub fn unsettled_of(&self, slot: &str) -> Vec<String> {
        // What it had asked of the database may still be carried out.
        std::thread::sleep(Duration::from_millis(200));
        let rows = Database::open(&self.database).query(
            "SELECT e.event_id FROM semel_streams AS s JOIN semel_lanes AS l ON l.lane = s.open_lane
             JOIN processed_kafka_events AS e ON e.lane = l.lane AND e.position >= l.settled
             WHERE s.stream LIKE $1",
            &[&slot],
        );
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Every event that is claimed.
    pub fn claimed(&self) -> Vec<String> {
        let rows = Database::open(&self.database).query("SELECT event_id FROM processed_kafka_events", &[]);
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Events that a log says may come out again.
    pub fn told(&self, events: &[String]) -> BTreeSet<String> {
        let scope = Scope::new(&self.scope).expect("a scope");
        let mut text = String::new();
        for file in std::fs::read_dir(&self.folder).expect("a folder").flatten() {
            if file.path().is_file() {
                text.push_str(&std::fs::read_to_string(file.path()).expect("a log"));
            }
        }
        let lines: Vec<&str> = text.lines().filter(|line| line.contains("may come out again")).collect();
        let is_told = |event: &&String| {
            let key = idempotency::of_event(&scope, &EventId::encode(event.as_bytes()).expect("an id"));
            lines.iter().any(|line| line.contains(&*key))
        };
        events.iter().filter(is_told).cloned().collect()
    }
}

async fn connect(url: &str) -> (Connection, Channel) {
    let connection = Connection::connect(url, ConnectionProperties::default()).await.expect("RabbitMQ answers");
    let channel = connection.create_channel().await.expect("a channel");
    channel.confirm_select(ConfirmSelectOptions::default()).await.expect("confirms");
    (connection, channel)
}

/// A header that is text.
pub fn header(message: &Delivery, name: &str) -> Option<String> {
    match message.properties.headers().as_ref()?.inner().get(name)? {
        AMQPValue::LongString(text) => Some(String::from_utf8(text.as_bytes().to_vec()).expect("text")),
        _ => None,
    }
}

#[test]
fn forwards_each_event_once() {
    let mut between = Between::new("rabbitmq");
    let events = between.events(2_000, 30);
    let distinct: BTreeSet<&String> = events.iter().collect();
    between.send(&events);
    let mut daemon = between.daemon("a");
    daemon.wait_ready();
    between.wait_forwarded(distinct.len());
    let duplicates = (events.len() - distinct.len()) as f64;
    let begun = Instant::now();
    while daemon.metric("im2be_dedup_claims_total", &["outcome=\"duplicate\""]) < duplicates {
        assert!(begun.elapsed() < MINUTE, "duplicates are counted: {:?}", daemon.get("/metrics"));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(daemon.metric("semel_forwarded_messages_total", &[]), distinct.len() as f64);
    let log = daemon.log.clone();
    daemon.stop();
    assert_eq!(between.check(&events), BTreeSet::new(), "no event came out twice");
    println!("{} messages, {} events, none twice", events.len(), distinct.len());
    let log = std::fs::read_to_string(log).expect("a log");
    assert!(log.contains("never lost") && log.contains("left the slot with everything settled"), "{log}");
    // A drain leaves no lease behind: the next run does not wait.
    let begun = Instant::now();
    let mut again = between.daemon("a");
    again.wait_ready();
    println!("ready again after {:?}", begun.elapsed());
    again.stop();
    assert!(!std::fs::read_to_string(between.folder.join("a.log")).expect("a log").contains("waiting for the lease"));
}

#[test]
fn kills_lose_nothing() {
    let (messages, kills) = if full() { (100_000, 30) } else { (10_000, 6) };
    let mut between = Between::new("rabbitmq-kills");
    let events = between.events(messages, 30);
    let parts: Vec<Vec<String>> = events.chunks(events.len() / (kills + 1) + 1).map(<[String]>::to_vec).collect();
    let mut daemons = ["a", "b"].map(|instance| Some(between.daemon(instance)));
    let mut excused: BTreeSet<String> = BTreeSet::new();
    for (n, part) in parts.iter().enumerate() {
        between.send(part);
        if n == kills {
            break;
        }
        let which = n % 2;
        let daemon = daemons[which].as_mut().expect("a daemon");
        daemon.wait_ready();
        std::thread::sleep(Duration::from_millis(between.random.among(0..400)));
        daemons[which].take().expect("a daemon").kill();
        let instance = ["a", "b"][which];
        let left = between.unsettled(instance);
        println!("kill {} of {instance}: {} claims unsettled", n + 1, left.len());
        excused.extend(left);
        daemons[which] = Some(between.daemon(instance));
    }
    let distinct: BTreeSet<&String> = events.iter().collect();
    between.wait_forwarded(distinct.len());
    // What was in flight of the killed comes back when their leases are over.
    let begun = Instant::now();
    while between.waiting(&between.input) > 0 || begun.elapsed() < Duration::from_secs(8) {
        assert!(begun.elapsed() < 2 * MINUTE, "the input is read to its end");
        std::thread::sleep(Duration::from_millis(100));
    }
    daemons.into_iter().flatten().for_each(Daemon::stop);
    let doubled = between.check(&events);
    let told = between.told(&events);
    println!(
        "{} messages, {} events: {} came out twice; {} were unsettled at a kill, {} told of as in doubt",
        events.len(),
        distinct.len(),
        doubled.len(),
        excused.len(),
        told.len()
    );
    let unaccounted: Vec<_> =
        doubled.iter().filter(|event| !excused.contains(*event) && !told.contains(*event)).collect();
    assert!(unaccounted.is_empty(), "twice, and neither a kill nor the log says why: {unaccounted:?}");
}
