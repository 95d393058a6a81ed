//! A topic, a queue or a stream, and the judgement of what came out of it: the checker's, with the queue in the place of the
//! output topic.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use semel::protocol::event::{EventId, Scope};
use semel::protocol::idempotency;
use tokio::runtime::Runtime;

use crate::MINUTE;
use crate::sink::Stored;
use crate::sink::nats::Streams;
use crate::sink::rabbitmq::Management;
use crate::support::broker::wait_until;
use crate::support::checker::{Finding, Log, Record, Report, judge};
use crate::support::daemon::Daemon;
use crate::support::database::Database;
use crate::support::generator::{COPY, EVENT_ID, Header, Message};
use crate::support::services::Services;
use crate::support::world::World;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum To {
    RabbitMq,
    Nats,
}

enum Queues {
    RabbitMq(Management),
    Nats(Streams),
}

pub struct Plain {
    pub world: World,
    runtime: Runtime,
    queues: Queues,
    pub output: String,
    pub dead: String,
    /// Taken out so far.
    came: Vec<Stored>,
    /// Claims that were not settled when an instance was killed.
    pub unsettled_at_kills: BTreeSet<EventId>,
}

impl Plain {
    pub fn new(name: &str, partitions: i32, to: To) -> Plain {
        Plain::on(Services::shared(), name, partitions, to)
    }

    pub fn on(services: Services, name: &str, partitions: i32, to: To) -> Plain {
        let mut world = World::on(services, name, partitions);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime starts");
        let [output, dead] = ["out", "dead"].map(|end| world.group.replace(['.', '-'], "_") + "_" + end);
        let services = &world.services;
        let (queues, url) = match to {
            To::RabbitMq => {
                let management = Management::new(&services.rabbitmq.management);
                for queue in [&output, &dead] {
                    runtime.block_on(management.declare(queue, serde_json::json!({})));
                }
                (Queues::RabbitMq(management), format!("{}?queue={output}", services.rabbitmq.url))
            }
            To::Nats => {
                let streams = runtime.block_on(Streams::connect(&services.nats));
                for stream in [&output, &dead] {
                    runtime.block_on(streams.create(stream, serde_json::json!({})));
                }
                (Queues::Nats(streams), format!("{}?subject={output}", services.nats))
            }
        };
        world.settings.remove("SEMEL_TRANSACTION_TIMEOUT");
        for (name, value) in [
            ("SEMEL_SINK", url.as_str()),
            ("SEMEL_DEAD_LETTER", &dead),
            ("SEMEL_LEASE", "5s"),
            ("SEMEL_PUBLISH_TIMEOUT", "3s"),
            ("SEMEL_WINDOW_SIZE", "300"),
        ] {
            world.set(name, value);
        }
        Plain { world, runtime, queues, output, dead, came: vec![], unsettled_at_kills: BTreeSet::new() }
    }

    /// Everything that is there now; it is gone then.
    pub fn take(&self, queue: &str) -> Vec<Stored> {
        match &self.queues {
            Queues::RabbitMq(management) => self.runtime.block_on(management.take(queue)),
            Queues::Nats(streams) => self.runtime.block_on(streams.take(queue)),
        }
    }

    /// Waits until the group stands at the end of the input.
    pub fn wait_done(&self, within: Duration) {
        let ends: Vec<_> = self.world.ends().into_iter().map(Some).collect();
        let begun = Instant::now();
        loop {
            let stands: Vec<_> = self.world.offsets(false, false).into_iter().map(|found| Some(found?.0)).collect();
            if stands == ends {
                return;
            }
            let (name, logs) = (&self.world.name, self.world.folder.display());
            assert!(begun.elapsed() < within, "{name}: the group stands at {stands:?} of {ends:?}; logs in {logs}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Claims of the group's open lanes at or above their settled positions.
    pub fn unsettled(&self) -> BTreeSet<(EventId, i64)> {
        let streams = format!("partition:%/{}/%", self.world.group);
        let rows = Database::open(&self.world.database).query(
            "SELECT e.event_id, e.position FROM semel_streams AS s JOIN semel_lanes AS l ON l.lane = s.open_lane
             JOIN processed_kafka_events AS e ON e.lane = l.lane AND e.position >= l.settled
             WHERE s.stream LIKE $1",
            &[&streams],
        );
        rows.iter().map(|row| (EventId::from_stored(row.get::<_, String>(0)), row.get(1))).collect()
    }

    /// Kills an instance, and notes what it left unsettled: what still is a moment later. Whoever else works meanwhile
    /// settles its own; the killed one's lease is not over yet. Answers how many claims.
    pub fn kill(&mut self, daemon: Daemon) -> usize {
        daemon.kill();
        std::thread::sleep(Duration::from_millis(150));
        let first = self.unsettled();
        std::thread::sleep(Duration::from_millis(700));
        let left: BTreeSet<_> = self.unsettled().intersection(&first).cloned().collect();
        let count = left.len();
        self.unsettled_at_kills.extend(left.into_iter().map(|(event, _)| event));
        count
    }

    /// The record that came out, as the checker knows it: the original, where it is that one.
    fn record(&self, stored: &Stored, offset: i64, sent: &BTreeMap<u64, &Message>) -> Record {
        let copy = stored.headers.get(COPY).and_then(|values| values.first()?.clone());
        let original = copy.and_then(|copy| sent.get(&String::from_utf8(copy).ok()?.parse().ok()?));
        let flat = |headers: &BTreeMap<String, Vec<Option<Vec<u8>>>>| -> Vec<Header> {
            let each =
                headers.iter().flat_map(|(name, values)| values.iter().map(|value| (name.clone(), value.clone())));
            each.collect()
        };
        if let Some(original) = original {
            let mut headers: BTreeMap<String, Vec<Option<Vec<u8>>>> = BTreeMap::new();
            original
                .headers
                .iter()
                .for_each(|(name, value)| headers.entry(name.clone()).or_default().push(value.clone()));
            // What the sink's protocol has no room for goes in headers of Semel's own, which the sinks' tests know.
            let own = |name: &&String| !name.starts_with("semel-");
            let rest: BTreeMap<_, _> = stored
                .headers
                .iter()
                .filter(|(name, _)| own(name))
                .map(|(name, values)| (name.clone(), values.clone()))
                .collect();
            let time = stored.timestamp_millis.is_some_and(|time| time / 1000 == original.timestamp / 1000);
            if (&stored.key, &stored.value, &rest) == (&original.key, &original.value, &headers) && time {
                let Message { key, value, headers, timestamp, .. } = (*original).clone();
                return Record { offset, key, value, headers, timestamp: Some(timestamp) };
            }
        }
        let (key, value, headers) = (stored.key.clone(), stored.value.clone(), flat(&stored.headers));
        Record { offset, key, value, headers, timestamp: stored.timestamp_millis }
    }

    /// The checker's judgement. The settled group is not there, and nothing is in Kafka's output.
    pub fn judge(&mut self, sent: Vec<Message>) -> Report {
        let taken = self.take(&self.output);
        self.came.extend(taken);
        let by_copy: BTreeMap<u64, &Message> = sent.iter().map(|message| (message.copy, message)).collect();
        let scope = Scope::new(&self.world.scope).expect("a scope");
        let mut records = Vec::new();
        for (n, stored) in self.came.iter().enumerate() {
            let record = self.record(stored, n as i64, &by_copy);
            let event = record.event().expect("what is forwarded has an id");
            assert_eq!(stored.id.as_deref(), Some(&*idempotency::of_event(&scope, &event)), "its key");
            records.push(record);
        }
        let log = |records: Vec<Record>| {
            let end = records.len() as i64;
            vec![Log { topic: "queue".to_owned(), records, end, stable_end: end, ..Log::default() }]
        };
        let mut evidence = self.world.evidence(sent.clone());
        // A claim that is settled in the store has its offset as its position alone.
        for claim in &mut evidence.claims {
            assert_eq!(claim.offset, None);
            claim.offset = claim.position;
        }
        evidence.output = log(records);
        let dead = self.take(&self.dead);
        for stored in &dead {
            let text = |name: &str| String::from_utf8(stored.headers[name][0].clone().expect("a value")).expect("text");
            let of_input = format!("{}/", self.world.input);
            assert!(text("semel-origin").starts_with(&of_input) && !text("semel-cause").is_empty(), "{stored:?}");
        }
        evidence.dead = log(dead.iter().map(|stored| self.record(stored, 0, &by_copy)).collect());
        let mut report = judge(&evidence);
        report.findings.retain(|finding| !matches!(finding, Finding::NoOffset { settled: true, .. }));
        report
    }

    /// Waits for the end of the work. Nothing is lost, and each event that came out twice was unsettled at a kill, or a log
    /// tells of it. Answers those.
    pub fn check(&mut self, sent: Vec<Message>, within: Duration) -> BTreeSet<EventId> {
        self.check_all_but(|_| false, sent, within)
    }

    /// The same where messages were in doubt: what is published again may come behind what follows it.
    pub fn check_in_any_order(&mut self, sent: Vec<Message>, within: Duration) {
        self.check_all_but(|finding| matches!(finding, Finding::Reordered { .. }), sent, within);
    }

    /// The same where an operator passed over messages after a kill. What was published and not settled then is released
    /// with what was not: it may stand without a claim, or come out once more as another of its copies.
    pub fn check_but_for_skipped(&mut self, sent: Vec<Message>, within: Duration) {
        let kills = self.unsettled_at_kills.clone();
        let events: BTreeMap<u64, EventId> =
            sent.iter().filter_map(|message| Some((message.copy, event_of(message)?))).collect();
        let excused = |finding: &Finding| match finding {
            Finding::ClaimWithoutOutput { event } | Finding::OutputWithoutClaim { event } => kills.contains(event),
            Finding::Reordered { copy, .. } => events.get(copy).is_some_and(|event| kills.contains(event)),
            _ => false,
        };
        self.check_all_but(excused, sent, within);
    }

    fn check_all_but(
        &mut self,
        excused: impl Fn(&Finding) -> bool,
        sent: Vec<Message>,
        within: Duration,
    ) -> BTreeSet<EventId> {
        self.wait_done(within);
        let mut report = self.judge(sent);
        report.findings.retain(|finding| !excused(finding));
        let (mut doubled, told) = (BTreeSet::new(), self.told());
        let scope = Scope::new(&self.world.scope).expect("a scope");
        let kills = &self.unsettled_at_kills;
        report.findings.retain(|finding| {
            let Finding::Doubled { event, .. } = finding else { return true };
            doubled.insert(event.clone());
            !kills.contains(event) && !told.contains(&*idempotency::of_event(&scope, event))
        });
        let (name, seed) = (&self.world.name, self.world.seed);
        println!(
            "{name}: seed {seed}, {report}; {} came out twice, {} were unsettled at a kill, {} are told of as in doubt",
            doubled.len(),
            kills.len(),
            told.len()
        );
        assert!(report.findings.is_empty(), "{name}: seed {seed}, {report}");
        assert_eq!(self.unsettled(), BTreeSet::new(), "everything is settled");
        doubled
    }

    /// Keys of messages that a log says may come out again.
    fn told(&self) -> BTreeSet<String> {
        let mut told = BTreeSet::new();
        for file in std::fs::read_dir(&self.world.folder).expect("a folder").flatten() {
            let text = std::fs::read_to_string(file.path()).expect("a log");
            for line in text.lines().filter(|line| line.contains("may come out again")) {
                let keys = line.split(|char: char| !char.is_ascii_hexdigit());
                told.extend(keys.filter(|word| word.len() == 32).map(str::to_owned));
            }
        }
        told
    }

    /// Everything that the instances logged.
    pub fn logs(&self) -> String {
        let files = std::fs::read_dir(&self.world.folder).expect("a folder").flatten();
        files.map(|file| std::fs::read_to_string(file.path()).expect("a log")).collect()
    }

    /// Waits until so many messages of one outcome are counted.
    pub fn wait_forwarded(&self, daemon: &Daemon, at_least: f64) {
        wait_until(&format!("{at_least} are forwarded: {}", daemon.tail()), MINUTE, || {
            daemon.metric("semel_forwarded_messages_total", &[]) >= at_least
        });
    }

    pub fn set(&mut self, settings: &[(&str, &str)]) {
        settings.iter().for_each(|(name, value)| self.world.set(name, value));
    }
}

fn event_of(message: &Message) -> Option<EventId> {
    let (_, value) = message.headers.iter().rfind(|(name, _)| name == EVENT_ID)?;
    EventId::encode(value.as_deref()?).ok()
}
