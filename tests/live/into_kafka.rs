//! RabbitMQ to Kafka by the real binary, with the claims in PostgreSQL: exactly once for a read_committed reader, whatever
//! is killed or paused.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use semel::protocol::event::{EventId, Scope};
use semel::protocol::idempotency;

use crate::rabbitmq::Between;
use crate::support::broker::Broker;
use crate::support::checker::Record;
use crate::support::daemon::Daemon;
use crate::support::services::Services;
use crate::support::unique;
use crate::{MINUTE, full};

/// A queue, and the topics that daemons forward it to.
pub struct Into {
    pub between: Between,
    pub broker: Broker,
    pub topic: String,
    dead: String,
}

impl Into {
    pub fn new(name: &str) -> Into {
        Into::after(name, Between::new(name))
    }

    pub fn after(name: &str, mut between: Between) -> Into {
        let broker = Broker(Services::shared().kafka);
        let [topic, dead] = ["out", "dead"].map(|end| unique(&format!("{name}-{end}")));
        broker.make_topic(&topic, 3, &[]);
        broker.make_topic(&dead, 1, &[]);
        let settings = &mut between.settings;
        settings.remove("SEMEL_PUBLISH_TIMEOUT");
        settings.insert("SEMEL_SINK".to_owned(), format!("kafka://{}/{topic}", broker.0));
        settings.insert("SEMEL_DEAD_LETTER".to_owned(), dead.clone());
        settings.insert("SEMEL_TRANSACTION_TIMEOUT".to_owned(), "2s".to_owned());
        Into { between, broker, topic, dead }
    }

    pub fn records(&self, topic: &str) -> Vec<Record> {
        self.broker.read(topic).into_iter().flat_map(|log| log.records).collect()
    }

    /// Waits until nothing is left to be acknowledged, also of what a killed instance had.
    pub fn wait_done(&self, messages: u64) {
        let begun = Instant::now();
        let mut quiet_since = Instant::now();
        // Its deliveries are out until they are acknowledged; a lease and a heartbeat later nobody holds one for others.
        while quiet_since.elapsed() < Duration::from_secs(6) {
            if self.between.waiting(&self.between.input) > 0 {
                quiet_since = Instant::now();
            }
            assert!(begun.elapsed() < 5 * MINUTE, "{messages} are not done: see {}", self.between.folder.display());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Every event once, under its key, and nothing else.
    pub fn check(&self, events: &[String]) {
        let scope = Scope::new(&self.between.scope).expect("a scope");
        let mut copies: BTreeMap<String, u32> = BTreeMap::new();
        for record in self.records(&self.topic) {
            let event = header(&record, "message_id").expect("an id of its own");
            let key = idempotency::of_event(&scope, &EventId::encode(event.as_bytes()).expect("an id"));
            assert_eq!(header(&record, "semel-idempotency-key").as_deref(), Some(&*key));
            assert_eq!(record.value, Some(format!("{{\"of\":\"{event}\"}}").into_bytes()), "the body is the event's");
            *copies.entry(event).or_default() += 1;
        }
        let sent: BTreeSet<&String> = events.iter().collect();
        let lost: Vec<_> = sent.iter().filter(|event| !copies.contains_key(**event)).collect();
        assert!(lost.is_empty(), "{} of {} events are lost: {:?}", lost.len(), sent.len(), &lost[..lost.len().min(5)]);
        let doubled: Vec<_> = copies.iter().filter(|(_, count)| **count > 1).collect();
        assert!(doubled.is_empty(), "{} events are doubled: {:?}", doubled.len(), &doubled[..doubled.len().min(5)]);
        assert_eq!(copies.len(), sent.len(), "what came out was sent");
    }
}

/// A header that is text.
pub fn header(record: &Record, name: &str) -> Option<String> {
    let value = record.headers.iter().find(|(known, _)| known == name)?.1.clone()?;
    Some(String::from_utf8(value).expect("text"))
}

/// Sends in parts, and lets something happen to an instance while each is on its way.
fn through(
    name: &str,
    messages: usize,
    parts: usize,
    mut happen: impl FnMut(&mut Into, &mut [Option<Daemon>; 2], usize),
) {
    let mut into = Into::new(name);
    let events = into.between.events(messages, 30);
    let mut daemons = ["a", "b"].map(|instance| Some(into.between.daemon(instance)));
    for (n, part) in events.chunks(messages.div_ceil(parts)).enumerate() {
        into.between.send(part);
        happen(&mut into, &mut daemons, n);
    }
    into.wait_done(messages as u64);
    daemons.into_iter().flatten().for_each(Daemon::stop);
    into.check(&events);
    println!("{messages} messages: every event once");
}

#[test]
fn kills_are_not_seen() {
    let (messages, kills) = if full() { (100_000, 30) } else { (10_000, 6) };
    let mut hits = 0;
    through("into-kafka-kills", messages, kills + 1, |into, daemons, n| {
        if n == kills {
            return;
        }
        let which = n % 2;
        daemons[which].as_mut().expect("a daemon").wait_ready();
        std::thread::sleep(Duration::from_millis(into.between.random.among(0..300)));
        daemons[which].take().expect("a daemon").kill();
        let instance = ["a", "b"][which];
        let left = into.between.unsettled_of(&format!("kafka-slot:%/{}/{instance}", into.between.input)).len();
        println!("kill {} of {instance}: {left} claims not known to be settled", n + 1);
        hits += usize::from(left > 0);
        daemons[which] = Some(into.between.daemon(instance));
    });
    assert!(hits > 0, "no kill hit an instance at work");
}

/// Paused for longer than its lease, an instance is overtaken: when it goes on, it can neither claim nor publish.
#[test]
fn a_paused_instance_is_overtaken() {
    through("into-kafka-pause", 6_000, 4, |into, daemons, n| {
        let daemon = daemons[n % 2].as_mut().expect("a daemon");
        daemon.wait_ready();
        std::thread::sleep(Duration::from_millis(into.between.random.among(0..150)));
        daemon.halt();
        std::thread::sleep(Duration::from_secs(5));
        daemon.go_on();
    });
}

#[test]
fn what_has_no_id_is_a_dead_letter() {
    let into = Into::new("into-kafka-dead");
    into.between.send(&["event-1".to_owned(), String::new(), "event-2".to_owned()]);
    let mut daemon = into.between.daemon("a");
    daemon.wait_ready();
    into.wait_done(3);
    daemon.stop();
    into.check(&["event-1".to_owned(), "event-2".to_owned()]);
    let dead = into.records(&into.dead);
    assert_eq!(dead.len(), 1);
    assert_eq!(header(&dead[0], "semel-cause").as_deref(), Some("missing_id"));
    assert_eq!(header(&dead[0], "semel-origin").as_deref(), Some(&*into.between.input));
}
