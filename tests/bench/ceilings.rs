//! What nobody can be faster than: the same copy without claims, the same claims without a copy.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rdkafka::{Offset, TopicPartitionList};
use semel::kafka::TopicPartition;
use semel::kafka::client::ClusterOptions;
use semel::kafka::native::{Event, Outgoing, Record};
use semel::sink::Destination;
use semel::sink::kafka::{KafkaSink, KafkaSinkOptions, Topics};
use semel::source::kafka::{Assignment, KafkaSource, KafkaSourceOptions};

use crate::measure::{Run, cpu_of, memory_of};
use crate::scenes::{Scene, Topic};
use crate::support::database::Database;
use crate::support::generator::EVENT_ID;
use crate::support::unique;

const TRANSACTION: usize = 5_000;
const INSERT: usize = 1_000;

/// Runs in a process of its own, so that its memory and time are its own.
pub fn copy(topic: &Topic, output: &str) -> Run {
    let own = std::env::current_exe().expect("a program");
    let arguments = ["--copy", &topic.kafka, &topic.name, output, &topic.messages.to_string()];
    let answer = std::process::Command::new(own).args(arguments).output().expect("the copy starts");
    let text = String::from_utf8_lossy(&answer.stdout);
    let mut numbers = text.split_whitespace().map(|text| text.parse::<u64>().expect("a number"));
    let mut next = || numbers.next().unwrap_or_else(|| panic!("the copy: {}", String::from_utf8_lossy(&answer.stderr)));
    Run {
        messages: topic.messages,
        time: Duration::from_micros(next()),
        cpu: Duration::from_micros(next()),
        memory_kib: next(),
        ..Run::default()
    }
}

/// The copy itself: one thread; prints time, CPU time and memory.
pub fn copy_here(kafka: &str, input: &str, output: &str, messages: u64) {
    let cluster = ClusterOptions { brokers: kafka.to_owned(), ..ClusterOptions::default() };
    let source = KafkaSource::new(&KafkaSourceOptions {
        cluster: cluster.clone(),
        topics: vec![input.to_owned()],
        group: unique("copy"),
        assignment: Assignment::Eager,
        session_timeout: Duration::from_secs(10),
        fetch_ahead_kib: 4 * 1024,
    });
    let source = source.expect("a source");
    let options = KafkaSinkOptions {
        cluster,
        transactional_id: unique("copy"),
        transaction_timeout: Duration::from_secs(15),
        record_bytes_max: 1_048_588,
        batch_bytes_max: 1_000_000,
    };
    let topics = Topics { forward: output.to_owned(), dead_letter: None, duplicates: None };
    let mut sink = KafkaSink::new(&options, &topics, Duration::from_secs(30)).expect("a sink");
    source.subscribe().expect("a subscription");
    let (mut begun, mut cpu) = (Instant::now(), Duration::ZERO);
    let (mut done, mut window) = (0, Vec::<Record>::with_capacity(TRANSACTION));
    while done < messages {
        match source.poll(Duration::from_millis(50)) {
            Some(Event::Assigned(partitions)) => {
                let places: Vec<_> = source.places(&partitions).into_iter().map(|place| (place, 0)).collect();
                source.assign(&places).expect("an assignment");
                (begun, cpu) = (Instant::now(), cpu_of(std::process::id()));
            }
            Some(Event::Message(record)) => window.push(record),
            _ => {}
        }
        if window.len() == TRANSACTION || done + window.len() as u64 == messages {
            done += window.len() as u64;
            transact(&source, &mut sink, input, &mut window);
            window.clear();
        }
    }
    let (time, cpu) = (begun.elapsed(), cpu_of(std::process::id()) - cpu);
    println!("{} {} {}", time.as_micros(), cpu.as_micros(), memory_of(std::process::id()));
    // Nothing is left to be settled, and leaving the group takes a while.
    std::process::exit(0);
}

fn transact(source: &KafkaSource, sink: &mut KafkaSink, input: &str, window: &mut [Record]) {
    let membership = source.membership().expect("a membership");
    sink.begin().expect("a transaction");
    let mut next = BTreeMap::new();
    for (number, record) in window.iter_mut().enumerate() {
        let mut outgoing = Outgoing { record, partition: None, added: &[], without_value: false, number };
        sink.send(Destination::Forward, &mut outgoing).expect("room");
        next.insert(TopicPartition { topic: 0, partition: record.partition() }, record.offset() + 1);
    }
    sink.flush().expect("delivery");
    let mut offsets = TopicPartitionList::new();
    for (place, position) in next {
        offsets.add_partition_offset(input, place.partition, Offset::Offset(position)).expect("an offset");
    }
    sink.send_offsets(&offsets, &membership).expect("offsets");
    sink.commit().expect("a commit");
}

/// The claims of the topic's messages, in their order, in plain statements of a thousand rows, on one connection.
pub fn inserts(scene: &Scene, database: &str) -> Run {
    let database = Database::open(database);
    let rows: Vec<(String, i64, i32)> = scene
        .recipe()
        .iter()
        .map(|message| {
            let id = message.headers.iter().find(|(name, _)| name == EVENT_ID).and_then(|(_, value)| value.clone());
            (String::from_utf8(id.unwrap_or_default()).expect("text"), message.timestamp, message.partition)
        })
        .collect();
    let begun = Instant::now();
    let cpu = cpu_of(std::process::id());
    for (n, window) in rows.chunks(INSERT).enumerate() {
        let ids: Vec<&str> = window.iter().map(|(id, _, _)| id.as_str()).collect();
        let millis: Vec<i64> = window.iter().map(|(_, millis, _)| *millis).collect();
        let partitions: Vec<i32> = window.iter().map(|(_, _, partition)| *partition).collect();
        let offsets: Vec<i64> = (0..window.len() as i64).map(|k| (n * INSERT) as i64 + k).collect();
        database.query(
            r#"INSERT INTO processed_kafka_events
                   (consumer_scope_id, first_seen_at, event_id, week_start, lane, position, topic, "partition", "offset")
               SELECT 'bench', now(), u.id, date_trunc('week', to_timestamp(u.ms / 1000.0) AT TIME ZONE 'UTC')::date,
                      1, u.o, 'bench', u.p, u.o
               FROM unnest($1::text[], $2::bigint[], $3::int[], $4::bigint[]) AS u (id, ms, p, o)
               ORDER BY 3
               ON CONFLICT DO NOTHING"#,
            &[&ids, &millis, &partitions, &offsets],
        );
    }
    Run { messages: rows.len() as u64, time: begun.elapsed(), cpu: cpu_of(std::process::id()) - cpu, ..Run::default() }
}
