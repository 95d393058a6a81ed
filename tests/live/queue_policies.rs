//! What becomes of duplicates, and of all while the store is away, from queues into queues and into Kafka.

use std::collections::BTreeSet;
use std::time::Duration;

use lapin::options::QueueDeclareOptions;
use lapin::types::FieldTable;

use crate::MINUTE;
use crate::into_kafka::{self, Into};
use crate::rabbitmq::{Between, header};
use crate::support::broker::wait_until;
use crate::support::daemon::Daemon;
use crate::support::proxy::Proxy;
use crate::support::services::Services;

/// A pipeline from a queue, wherever it goes to.
trait Pipeline {
    fn between(&mut self) -> &mut Between;

    /// Makes a destination.
    fn make(&self, name: &str);

    /// Name of the destination of what is forwarded.
    fn output(&self) -> String;

    /// How many there are.
    fn count(&self, destination: &str) -> usize;

    /// What is there: the values of these two headers.
    fn all(&self, destination: &str, names: [&str; 2]) -> Vec<[Option<String>; 2]>;
}

impl Pipeline for Between {
    fn between(&mut self) -> &mut Between {
        self
    }

    fn make(&self, name: &str) {
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        let declared = self.channel.queue_declare(name.into(), options, FieldTable::default());
        self.runtime.block_on(declared).expect("a queue");
    }

    fn output(&self) -> String {
        self.output.clone()
    }

    fn count(&self, destination: &str) -> usize {
        self.waiting(destination)
    }

    fn all(&self, destination: &str, names: [&str; 2]) -> Vec<[Option<String>; 2]> {
        self.take_all(destination).iter().map(|message| names.map(|name| header(message, name))).collect()
    }
}

impl Pipeline for Into {
    fn between(&mut self) -> &mut Between {
        &mut self.between
    }

    fn make(&self, name: &str) {
        self.broker.make_topic(name, 1, &[]);
    }

    fn output(&self) -> String {
        self.topic.clone()
    }

    fn count(&self, destination: &str) -> usize {
        self.records(destination).len()
    }

    fn all(&self, destination: &str, names: [&str; 2]) -> Vec<[Option<String>; 2]> {
        let records = self.records(destination);
        records.iter().map(|record| names.map(|name| into_kafka::header(record, name))).collect()
    }
}

fn duplicates(daemon: &Daemon) -> f64 {
    daemon.metric("im2be_dedup_claims_total", &[r#"outcome="duplicate""#])
}

fn named(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| format!("event-{n}")).collect()
}

const VERDICT: &str = "semel-verdict";
const UNCLAIMED: &str = "semel-unclaimed";

fn count_of(all: &[[Option<String>; 2]], value: &str) -> usize {
    all.iter().filter(|headers| headers.iter().any(|header| header.as_deref() == Some(value))).count()
}

fn duplicates_marked(mut pipeline: impl Pipeline) {
    let between = pipeline.between();
    between.settings.insert("SEMEL_DUPLICATES".to_owned(), "mark".to_owned());
    between.send(&[named(0..50), named(0..20)].concat());
    let mut daemon = between.daemon("a");
    daemon.wait_ready();
    let output = pipeline.output();
    wait_until("all come out", MINUTE, || pipeline.count(&output) >= 70);
    wait_until("duplicates are counted", MINUTE, || duplicates(&daemon) == 20.0);
    daemon.stop();
    let all = pipeline.all(&output, [VERDICT, UNCLAIMED]);
    assert_eq!((all.len(), count_of(&all, "duplicate")), (70, 20));
}

fn duplicates_routed(mut pipeline: impl Pipeline) {
    let route = format!("{}.twice", pipeline.between().input);
    pipeline.make(&route);
    let between = pipeline.between();
    between.settings.insert("SEMEL_DUPLICATES".to_owned(), "route".to_owned());
    between.settings.insert("SEMEL_DUPLICATES_TOPIC".to_owned(), route.clone());
    between.send(&[named(0..50), named(0..20)].concat());
    let input = between.input.clone();
    let mut daemon = between.daemon("a");
    daemon.wait_ready();
    let output = pipeline.output();
    wait_until("all come out", MINUTE, || pipeline.count(&output) >= 50 && pipeline.count(&route) >= 20);
    wait_until("duplicates are counted", MINUTE, || duplicates(&daemon) == 20.0);
    daemon.stop();
    let all = pipeline.all(&output, [VERDICT, UNCLAIMED]);
    assert_eq!((all.len(), count_of(&all, "duplicate")), (50, 0));
    let routed = pipeline.all(&route, [VERDICT, "semel-origin"]);
    assert_eq!(routed, vec![[Some("duplicate".to_owned()), Some(input)]; 20]);
}

/// What comes while the store is away goes out marked; what comes after is claimed again, and its copies are dropped.
fn store_away_forwarded(mut pipeline: impl Pipeline) {
    let port = Services::shared().postgres_port();
    let store = Proxy::of_postgres(port);
    let output = pipeline.output();
    let between = pipeline.between();
    between.reach("SEMEL_STORE", port, store.port());
    between.settings.insert("SEMEL_STORE_AWAY".to_owned(), "forward".to_owned());
    let mut daemon = between.daemon("a");
    daemon.wait_ready();
    between.send(&named(0..30));
    wait_until("the first come out", MINUTE, || pipeline.count(&output) >= 30);
    store.refuse(true);
    pipeline.between().send(&named(20..70));
    wait_until("all that come meanwhile come out", MINUTE, || pipeline.count(&output) >= 80);
    store.refuse(false);
    let unclaimed = daemon.metric("semel_forwarded_unclaimed_total", &[r#"cause="store_away""#]);
    assert_eq!(unclaimed, 50.0, "those claimed before too: nobody could tell");
    daemon.wait_ready();
    pipeline.between().send(&[named(70..100), named(70..100), named(0..30)].concat());
    wait_until("those that come after are claimed", MINUTE, || pipeline.count(&output) >= 110);
    wait_until("and their copies dropped", MINUTE, || duplicates(&daemon) == 60.0);
    std::thread::sleep(Duration::from_millis(500));
    daemon.stop();
    let all = pipeline.all(&output, [VERDICT, UNCLAIMED]);
    assert_eq!((all.len(), count_of(&all, "store_away")), (110, 50));
    let between = pipeline.between();
    assert_eq!(between.waiting(&between.input), 0);
    let claimed: BTreeSet<String> = between.claimed().into_iter().collect();
    assert_eq!(claimed, [named(0..30), named(70..100)].concat().into_iter().collect());
}

macro_rules! into_both {
    ($($test:ident),*) => {
        mod into_queues {
            $(#[test]
            fn $test() {
                super::$test(super::Between::new("queue-policies"));
            })*
        }

        mod into_kafka_topics {
            $(#[test]
            fn $test() {
                super::$test(super::Into::new("kafka-policies"));
            })*
        }
    };
}

into_both!(duplicates_marked, duplicates_routed, store_away_forwarded);
