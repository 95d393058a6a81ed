//! Queues into queues and into Kafka while brokers, connections and the store fail: nothing is lost, no broker's limit
//! drops anything, and every second copy is accounted for.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use lapin::options::{ExchangeDeclareOptions, QueueBindOptions};
use lapin::types::{AMQPValue, FieldTable};

use crate::into_kafka::Into;
use crate::rabbitmq::Between;
use crate::support::broker::wait_until;
use crate::support::database::Database;
use crate::support::proxy::Proxy;
use crate::support::services::{OwnServices, Service, Services, port_of};
use crate::{MINUTE, full};

/// Arguments of a quorum queue that drops a message which came back more often than this.
fn quorum(delivery_limit: i64) -> FieldTable {
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    arguments.insert("x-delivery-limit".into(), AMQPValue::LongLongInt(delivery_limit));
    arguments
}

/// Waits until everything came out and the input is read, and judges: nothing lost, and twice only what the log tells of.
fn settled(between: &Between, events: &[String]) {
    let distinct: BTreeSet<&String> = events.iter().collect();
    between.wait_forwarded(distinct.len());
    wait_until("the input is read to its end", 2 * MINUTE, || between.waiting(&between.input) == 0);
    // What is out of a connection that is gone, or held until a lease is over, shows by then.
    std::thread::sleep(Duration::from_secs(8));
    wait_until("the input is read to its end", MINUTE, || between.waiting(&between.input) == 0);
    let (doubled, told) = (between.check(events), between.told(events));
    println!("{} events: {} came out twice, {} told of as in doubt", distinct.len(), doubled.len(), told.len());
    let unaccounted: Vec<_> = doubled.difference(&told).collect();
    assert!(unaccounted.is_empty(), "twice, and no log says why: {unaccounted:?}");
}

/// Ends RabbitMQ as a crash does and brings it back, with messages on their way.
fn crash(own: &OwnServices, between: &mut Between, away: Duration) {
    std::thread::sleep(Duration::from_millis(between.random.among(50..400)));
    own.stop(Service::RabbitMq, true);
    std::thread::sleep(away);
    own.bring_back(Service::RabbitMq);
    between.connect_again();
}

fn crashes() -> (usize, usize) {
    if full() { (30_000, 8) } else { (6_000, 2) }
}

#[test]
fn a_broker_that_crashes() {
    let own = OwnServices::start(&[Service::RabbitMq]);
    let mut between = Between::with("queue-crash", &own.services, FieldTable::default());
    // What was declared a moment ago would not outlive a crash.
    own.rabbitmqctl(&["eval", "mnesia:sync_log()."]);
    let (messages, crashes) = crashes();
    let events = between.events(messages, 30);
    let mut daemons = ["a", "b"].map(|instance| between.daemon(instance));
    daemons.iter_mut().for_each(|daemon| daemon.wait_ready());
    for part in events.chunks(messages.div_ceil(crashes)) {
        between.send_at_last(part);
        crash(&own, &mut between, Duration::from_secs(2));
    }
    settled(&between, &events);
    daemons.into_iter().for_each(|daemon| daemon.stop());
}

#[test]
fn a_broker_that_crashes_before_kafka() {
    let own = OwnServices::start(&[Service::RabbitMq]);
    let between = Between::with("queue-crash-kafka", &own.services, quorum(20));
    let mut into = Into::after("queue-crash-kafka", between);
    own.rabbitmqctl(&["eval", "mnesia:sync_log()."]);
    let (messages, crashes) = crashes();
    let events = into.between.events(messages, 30);
    let mut daemons = ["a", "b"].map(|instance| into.between.daemon(instance));
    daemons.iter_mut().for_each(|daemon| daemon.wait_ready());
    for part in events.chunks(messages.div_ceil(crashes)) {
        into.between.send_at_last(part);
        crash(&own, &mut into.between, Duration::from_secs(2));
    }
    into.wait_done(messages as u64);
    daemons.into_iter().for_each(|daemon| daemon.stop());
    into.check(&events);
}

/// Both ends are cut again and again, each by itself.
#[test]
fn connections_that_are_cut() {
    let mut between = Between::new("queue-cuts");
    let port = port_of(&Services::shared().rabbitmq.url);
    let ends = [Proxy::of_anything(port), Proxy::of_anything(port)];
    between.reach("SEMEL_SOURCE", port, ends[0].port());
    between.reach("SEMEL_SINK", port, ends[1].port());
    let (messages, cuts) = if full() { (60_000, 60) } else { (9_000, 12) };
    let events = between.events(messages, 30);
    let mut daemons = ["a", "b"].map(|instance| between.daemon(instance));
    daemons.iter_mut().for_each(|daemon| daemon.wait_ready());
    for (n, part) in events.chunks(messages.div_ceil(cuts)).enumerate() {
        between.send(part);
        std::thread::sleep(Duration::from_millis(between.random.among(0..300)));
        ends[n % 2].cut();
    }
    settled(&between, &events);
    daemons.into_iter().for_each(|daemon| daemon.stop());
}

/// The broker ends channels whose deliveries are kept for too long: they come again, and nothing else becomes of it.
#[test]
fn a_channel_that_is_ended() {
    let own = OwnServices::start(&[Service::RabbitMq]);
    let limits = "application:set_env(rabbit, consumer_timeout, 1000), \
        application:set_env(rabbit, channel_tick_interval, 500).";
    own.rabbitmqctl(&["eval", limits]);
    let mut between = Between::with("queue-channel", &own.services, quorum(20));
    let port = Services::shared().postgres_port();
    let store = Proxy::of_postgres(port);
    between.reach("SEMEL_STORE", port, store.port());
    let events = between.events(500, 0);
    let mut daemon = between.daemon("a");
    daemon.wait_ready();
    store.refuse(true);
    between.send(&events);
    wait_until("messages are out", MINUTE, || between.waiting(&between.input) < events.len());
    // The broker looks once a half second, at what is older than one.
    wait_until("the channel is ended", MINUTE, || between.waiting(&between.input) == events.len());
    store.refuse(false);
    settled(&between, &events);
    daemon.stop();
}

/// Away again and again, and then for long. The queue drops what is handed back.
#[test]
fn a_store_that_is_away() {
    let mut between = Between::with("queue-store", &Services::shared(), quorum(0));
    let port = Services::shared().postgres_port();
    let store = Proxy::of_postgres(port);
    between.reach("SEMEL_STORE", port, store.port());
    let long = if full() { 300 } else { 20 };
    let mut events = Vec::new();
    let mut daemon = between.daemon("a");
    daemon.wait_ready();
    for (n, seconds) in [2, 2, 2, long].into_iter().enumerate() {
        store.refuse(true);
        let some: Vec<String> = (0..400).map(|k| format!("event-{n}-{k}")).collect();
        between.send(&some);
        events.extend(some);
        wait_until("messages are out", MINUTE, || between.waiting(&between.input) == 0);
        std::thread::sleep(Duration::from_secs(seconds));
        assert!(daemon.log_text().contains("nothing more is received until the claim store answers"));
        store.refuse(false);
        between.wait_forwarded(events.len());
    }
    settled(&between, &events);
    assert!(!daemon.log_text().contains("handed back"), "{}", daemon.tail());
    daemon.stop();
}

/// One that comes 25 times, since its connection is cut while another holds its event, is not dropped at 20.
#[test]
fn a_message_that_comes_often() {
    let mut between = Between::with("queue-often", &Services::shared(), quorum(20));
    let port = port_of(&Services::shared().rabbitmq.url);
    let source = Proxy::of_anything(port);
    between.reach("SEMEL_SOURCE", port, source.port());
    let database = Database::open(&between.database);
    let mut daemon = between.daemon("a");
    daemon.wait_ready();
    // Another instance that is at work on it for an hour.
    let (input, scope) = (&between.input, &between.scope);
    for statement in [
        format!("INSERT INTO semel_streams (stream, owner, open_lane) VALUES ('slot:{input}/other', 11, 7)"),
        format!(
            "INSERT INTO semel_lanes (lane, stream, scope, recipe, opened_at, settled, lease_until)
             VALUES (7, 'slot:{input}/other', '{scope}', 'header:message_id', now(), 0, now() + INTERVAL '1 hour')"
        ),
        format!(
            "INSERT INTO processed_kafka_events
                 (consumer_scope_id, event_id, week_start, first_seen_at, lane, position)
             VALUES ('{scope}', 'event-1', '0001-01-01', now(), 7, 0)"
        ),
    ] {
        database.execute(&statement);
    }
    let events = ["event-1".to_owned()];
    between.send(&events);
    let read = || daemon.metric("semel_read_messages_total", &[]);
    for times in 1..=25 {
        wait_until(&format!("it comes for the {times}th time"), MINUTE, || read() >= f64::from(times));
        source.cut();
    }
    wait_until("it comes once more", MINUTE, || read() >= 26.0);
    assert_eq!(between.waiting(&between.output), 0, "another holds its event");
    database.execute("UPDATE semel_lanes SET lease_until = now() WHERE lane = 7");
    settled(&between, &events);
    daemon.stop();
}

/// What no queue takes is in doubt, as the broker does not say which message it was: it is tried again each time that the
/// lease of its claim is over, told of each time, and the others pass.
#[test]
fn messages_without_a_route() {
    const LOST: usize = 3;
    let mut between = Between::new("queue-unroutable");
    let exchange = format!("{}.exchange", between.input);
    let kind = |kind: &str| {
        let mut headers = FieldTable::default();
        headers.insert("kind".into(), AMQPValue::LongString(kind.into()));
        headers
    };
    let bind = |between: &Between, arguments| {
        let (queue, exchange) = (between.output.as_str().into(), exchange.as_str().into());
        let bound = between.channel.queue_bind(queue, exchange, "".into(), QueueBindOptions::default(), arguments);
        between.runtime.block_on(bound).expect("bound");
    };
    let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    let declared = between.channel.exchange_declare(
        exchange.as_str().into(),
        lapin::ExchangeKind::Headers,
        options,
        FieldTable::default(),
    );
    between.runtime.block_on(declared).expect("an exchange");
    bind(&between, kind("routed"));
    let sink = between.settings.get_mut("SEMEL_SINK").expect("a sink");
    *sink = format!("{}?exchange={exchange}&routing_key=any", sink.split_once('?').expect("a query").0);
    let mut daemon = between.daemon("a");
    daemon.wait_ready();
    let begun = Instant::now();
    let mut events = Vec::new();
    for n in 0..LOST {
        let lost = [format!("lost-{n}")];
        let some: Vec<String> = (0..100).map(|k| format!("event-{n}-{k}")).collect();
        between.send_with(&lost, &kind("other"));
        between.send_with(&some, &kind("routed"));
        events.extend(some);
        events.extend(lost);
    }
    between.wait_forwarded(events.len() - LOST);
    println!("all others were forwarded after {:?}", begun.elapsed());
    std::thread::sleep(Duration::from_secs(10));
    assert_eq!(between.waiting(&between.output), events.len() - LOST, "none of the lost came out");
    let in_doubt = daemon.metric("semel_in_doubt_total", &[]);
    let leases = begun.elapsed().as_secs_f64() / 3.0 + 1.0;
    println!("in doubt {in_doubt} times in {leases:.1} leases");
    assert!(in_doubt >= 2.0 * LOST as f64, "each is tried again and counted: {in_doubt}");
    // At first all that were sent with one that came back are, until it is known which it was.
    let lines = daemon.log_text().lines().filter(|line| line.contains("in doubt whether")).count() as f64;
    assert!(lines <= LOST as f64 * leases, "{lines} lines in {leases} leases");
    bind(&between, kind("other"));
    settled(&between, &events);
    daemon.stop();
}
