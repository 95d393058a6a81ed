//! From NATS and from the standard input, by the real binary: the same promises as from RabbitMQ.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::{self, stream};
use async_nats::{HeaderMap, ServerAddr};

use crate::MINUTE;
use crate::into_kafka::Into;
use crate::rabbitmq::Between;
use crate::support::daemon::Daemon;
use crate::support::services::Services;

/// A stream in the place of the input queue.
struct Stream {
    context: jetstream::Context,
    name: String,
}

impl Stream {
    fn before(between: &mut Between) -> Stream {
        let url = Services::shared().nats;
        assert!(!url.is_empty(), "SEMEL_TEST_NATS is not set: run tests/run");
        let address: ServerAddr = url.parse().expect("a URL");
        let name = between.input.replace('.', "-");
        let context = between.runtime.block_on(async {
            let (user, password) = (address.username().expect("a user"), address.password().expect("a password"));
            let options = async_nats::ConnectOptions::with_user_and_password(user.into(), password.into());
            let context = jetstream::new(options.connect(address.clone()).await.expect("NATS answers"));
            let subjects = vec![name.clone()];
            let config = stream::Config { name: name.clone(), subjects, ..stream::Config::default() };
            context.create_stream(config).await.expect("a stream");
            context
        });
        let source = format!("{url}?stream={name}&consumer=once&ack_wait=4s");
        between.settings.insert("SEMEL_SOURCE".to_owned(), source);
        Stream { context, name }
    }

    fn send(&self, between: &Between, events: &[String]) {
        between.runtime.block_on(async {
            let mut sent = Vec::with_capacity(events.len());
            for event in events {
                let mut headers = HeaderMap::new();
                headers.append("message_id", event.as_str());
                let body = format!("{{\"of\":\"{event}\"}}");
                let published = self.context.publish_with_headers(self.name.clone(), headers, body.into()).await;
                sent.push(published.expect("sent"));
            }
            for stored in sent {
                stored.await.expect("stored");
            }
        });
    }

    /// Waits until nothing is left to be acknowledged.
    fn wait_done(&self, between: &Between) {
        let begun = Instant::now();
        loop {
            let left = between.runtime.block_on(async {
                let mut consumer: PullConsumer =
                    self.context.get_consumer_from_stream("once", &self.name).await.expect("a consumer");
                let info = consumer.info().await.expect("an answer");
                info.num_pending as usize + info.num_ack_pending
            });
            if left == 0 {
                return;
            }
            assert!(begun.elapsed() < 3 * MINUTE, "{left} are left: see {}", between.folder.display());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn delete(self, between: &Between) {
        between.runtime.block_on(self.context.delete_stream(&self.name)).expect("deleted");
    }
}

#[test]
fn nats_to_a_queue() {
    let mut between = Between::new("nats");
    let stream = Stream::before(&mut between);
    let events = between.events(6_000, 30);
    let mut excused: BTreeSet<String> = BTreeSet::new();
    let mut daemons = ["a", "b"].map(|instance| Some(between.daemon(instance)));
    for (n, part) in events.chunks(2_000).enumerate() {
        stream.send(&between, part);
        let which = n % 2;
        daemons[which].as_mut().expect("a daemon").wait_ready();
        std::thread::sleep(Duration::from_millis(between.random.among(0..300)));
        daemons[which].take().expect("a daemon").kill();
        let instance = ["a", "b"][which];
        excused.extend(between.unsettled_of(&format!("slot:%/{instance}")));
        daemons[which] = Some(between.daemon(instance));
    }
    let distinct: BTreeSet<&String> = events.iter().collect();
    between.wait_forwarded(distinct.len());
    stream.wait_done(&between);
    daemons.into_iter().flatten().for_each(Daemon::stop);
    let doubled = between.check(&events);
    println!("{} events, {} twice, {} unsettled at a kill", distinct.len(), doubled.len(), excused.len());
    excused.extend(between.told(&events));
    assert!(doubled.is_subset(&excused), "twice without a word: {:?}", doubled.difference(&excused));
    stream.delete(&between);
}

#[test]
fn nats_to_kafka() {
    let mut into = Into::new("nats-kafka");
    let stream = Stream::before(&mut into.between);
    let events = into.between.events(6_000, 30);
    let mut daemons = ["a", "b"].map(|instance| Some(into.between.daemon(instance)));
    for (n, part) in events.chunks(2_000).enumerate() {
        stream.send(&into.between, part);
        let which = n % 2;
        daemons[which].as_mut().expect("a daemon").wait_ready();
        std::thread::sleep(Duration::from_millis(into.between.random.among(0..300)));
        daemons[which].take().expect("a daemon").kill();
        daemons[which] = Some(into.between.daemon(["a", "b"][which]));
    }
    stream.wait_done(&into.between);
    daemons.into_iter().flatten().for_each(Daemon::stop);
    into.check(&events);
    stream.delete(&into.between);
}

/// Lines of these events, as a file.
fn lines(between: &Between, events: &[String]) -> std::path::PathBuf {
    let path = between.folder.join("lines.ndjson");
    let mut file = File::create(&path).expect("a file");
    for event in events {
        writeln!(file, "{{\"of\":\"{event}\"}}").expect("written");
    }
    path
}

/// Killed in the middle and told again: each once, but for what had no time to be settled. Told once more: nothing.
#[test]
fn lines_to_a_queue() {
    let mut between = Between::new("stdin");
    for (name, value) in [("SEMEL_SOURCE", "stdin:"), ("SEMEL_EVENT_ID", "json:/of"), ("SEMEL_PIPELINE", "lines")] {
        between.settings.insert(name.to_owned(), value.to_owned());
    }
    let events = between.events(20_000, 30);
    let distinct: BTreeSet<&String> = events.iter().collect();
    let path = lines(&between, &events);
    let run = || Daemon::start_fed(&between.folder, "a", &between.settings, File::open(&path).expect("a file"));
    let mut killed = run();
    killed.wait_ready();
    let begun = Instant::now();
    while between.waiting(&between.output) < 1_000 {
        assert!(begun.elapsed() < MINUTE && killed.has_ended().is_none(), "{}", killed.tail());
        std::thread::sleep(Duration::from_millis(5));
    }
    killed.kill();
    let unsettled = between.unsettled_of("slot:lines/a").len();
    let mut counts = Vec::new();
    for _ in 0..2 {
        let mut daemon = run();
        let status = daemon.wait_end(2 * MINUTE);
        assert!(status.success(), "{status}: {}", daemon.tail());
        counts.push(between.waiting(&between.output));
    }
    println!("{} events, {unsettled} unsettled at the kill, {counts:?} came out", distinct.len());
    assert_eq!(counts[0], counts[1], "nothing comes of what was forwarded");
    assert!(counts[0] >= distinct.len() && counts[0] <= distinct.len() + unsettled, "{counts:?}");
    let body = |event: &&String| format!("{{\"of\":\"{event}\"}}").into_bytes();
    let out: BTreeSet<Vec<u8>> = between.take_all(&between.output).into_iter().map(|message| message.data).collect();
    assert_eq!(out, distinct.iter().map(body).collect(), "every line, as it was");
}
