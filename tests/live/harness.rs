//! The live tests' own tools against the real services: what the scenarios stand on.

use std::time::Duration;

use crate::support::broker::Broker;
use crate::support::database::Database;
use crate::support::feed;
use crate::support::generator::{Dress, Recipe};
use crate::support::proxy::{Api, CLAIM, Moment, Proxy, Sight, Then};
use crate::support::random::seed;
use crate::support::services::Services;
use crate::support::unique;

/// Everything odd survives the way through the real broker, so that what is altered later was altered by Semel.
#[test]
fn what_is_fed_is_read_back() {
    let services = Services::shared();
    let broker = Broker(services.kafka.clone());
    let topic = unique("harness");
    broker.make_topic(&topic, 3, &[]);
    let recipe = Recipe { dress: Dress::Odd, without_id_percent: 2, ..Recipe::new(seed(), 5_000, 3) };
    println!("seed {}", recipe.seed);
    let sent = feed::send(&services.kafka, &topic, recipe.iter(), None);
    let logs = broker.read(&topic);
    for log in &logs {
        let expected = sent.iter().filter(|message| message.partition == log.partition);
        assert_eq!(log.records.len(), expected.clone().count());
        for (record, message) in log.records.iter().zip(expected) {
            assert_eq!((&record.key, &record.value), (&message.key, &message.value));
            assert_eq!((&record.headers, record.timestamp), (&message.headers, Some(message.timestamp)));
        }
        assert_eq!((log.end, log.stable_end), (log.records.len() as i64, log.records.len() as i64));
    }
}

/// A client that knows only the proxy's address never speaks to the broker past it: the broker's answers are rewritten,
/// or the cut would not be seen.
#[test]
fn the_proxy_stands_before_kafka() {
    let services = Services::shared();
    let broker = Broker(services.kafka.clone());
    let topic = unique("harness");
    broker.make_topic(&topic, 1, &[]);
    let proxy = Proxy::of_kafka(services.kafka_port());
    let address = format!("127.0.0.1:{}", proxy.port());
    let seen = proxy.on(Sight::Kafka(Api::Produce), Moment::After, 1, || Then::Cut);
    let sent = feed::send(&address, &topic, Recipe::new(1, 500, 1).iter(), None);
    seen.wait(Duration::from_secs(1), "a produce request");
    // The cut answer was for stored records: the idempotent producer sends them again, and they stay once.
    assert_eq!(broker.read(&topic)[0].records.len(), sent.len());

    proxy.refuse(true);
    let consumed = std::thread::spawn(move || Broker(address).offsets("harness", &topic, true));
    std::thread::sleep(Duration::from_millis(300));
    assert!(!consumed.is_finished(), "an answer came although the proxy refuses");
    proxy.refuse(false);
    assert_eq!(consumed.join().expect("an answer after all"), [None]);
}

/// Before: surely not carried out. After: carried out, and the client does not know.
#[test]
fn the_proxy_stands_before_postgres() {
    let services = Services::shared();
    let url = services.make_database();
    let direct = Database::open(&url);
    direct.execute("CREATE TABLE processed_kafka_events (n int)");
    let proxy = Proxy::of_postgres(services.postgres_port());
    let through = url.replace(&services.postgres_port().to_string(), &proxy.port().to_string()) + "?sslmode=disable";
    let rows = || direct.query("SELECT n FROM processed_kafka_events ORDER BY n", &[]).len();
    for (moment, expected) in [(Moment::Before, 0..=0), (Moment::After, 1..=1), (Moment::During, 1..=2)] {
        let sight = proxy.on(CLAIM, moment, 1, || Then::Cut);
        let client = Database::open(&through);
        let answer = client.attempt("INSERT INTO processed_kafka_events VALUES (1)");
        sight.wait(Duration::from_secs(1), "the claim");
        assert!(answer.is_err(), "{moment:?}: an answer came although it was cut");
        std::thread::sleep(Duration::from_millis(100));
        assert!(expected.contains(&rows()), "{moment:?}: {} rows", rows());
    }
    let second = proxy.on(CLAIM, Moment::After, 2, || Then::Pass);
    let client = Database::open(&through);
    for _ in 0..2 {
        client.execute("INSERT INTO processed_kafka_events VALUES (1)");
    }
    second.wait(Duration::from_secs(1), "the second claim");
    proxy.stall(true);
    let stalled = std::thread::spawn(move || client.execute("INSERT INTO processed_kafka_events VALUES (1)"));
    std::thread::sleep(Duration::from_millis(300));
    assert!(!stalled.is_finished(), "an answer came although the proxy stalls");
    proxy.stall(false);
    assert_eq!(stalled.join().expect("an answer after all"), 1);
}
