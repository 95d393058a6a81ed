//! What only NATS JetStream has: keys that the stream remembers, streams of Semel's own, orders to the server.

use std::time::Duration;

use semel::message::Message;
use semel::sink::nats::{NatsOptions, NatsSink, Servers};
use semel::sink::{Destination, Outgoing, Published, Sink, SinkError};
use serde_json::json;

use super::kit::{all_confirmed, forward, header, is_refused, noise, texts, to};
use super::nats::Streams;
use super::subjects::{OwnStreams, servers};
use super::{Broker, run};
use crate::support::services::Services;
use crate::support::unique;

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn a_second_copy_is_dropped_and_as_good_as_confirmed() {
    run(async {
        let streams = OwnStreams::make_all(&Services::shared(), None).await;
        let mut sink = NatsSink::new(streams.options());
        let answers = sink.publish(&[forward("a"), forward("b"), forward("a"), forward("c")]).await;
        let first = [Published::Confirmed, Published::Confirmed, Published::Deduplicated, Published::Confirmed];
        assert_eq!(answers, first, "in one window");
        let mut another = NatsSink::new(streams.options());
        assert_eq!(another.publish(&[forward("b")]).await, [Published::Deduplicated], "from another process");
        let unnamed = Outgoing { idempotency_key: None, ..forward("a") };
        all_confirmed(&another.publish(&[unnamed.clone(), unnamed]).await);
        all_confirmed(&another.publish(&[to(Destination::DeadLetter, "a")]).await);
        assert_eq!(texts(&streams.take(Destination::Forward).await), ["a", "b", "c", "a", "a"]);
    });
}

/// The message's own `Nats-Msg-Id` and other orders act on nothing, and stay readable.
#[test]
fn orders_to_the_server_are_disarmed() {
    run(async {
        let streams = Streams::connect(&Services::shared().nats).await;
        let name = unique("sink");
        streams.create(&name, json!({ "allow_rollup_hdrs": true })).await;
        let mut sink = NatsSink::new(options(&name));
        let orders = [("Nats-Rollup", "all"), ("Nats-Expected-Last-Sequence", "77"), ("Nats-Msg-Id", "1")];
        let ordering = |text: &str| {
            let mut outgoing = Outgoing { idempotency_key: None, ..forward(text) };
            outgoing.message.headers = orders.map(|(name, value)| header(name, Some(value.as_bytes()))).into();
            outgoing
        };
        all_confirmed(&sink.publish(&[forward("first"), ordering("second"), ordering("third")]).await);
        let stored = streams.take(&name).await;
        assert_eq!(texts(&stored), ["first", "second", "third"]);
        for (name, value) in orders {
            assert_eq!(stored[2].headers[&format!("semel-{name}")], [Some(value.as_bytes().to_vec())]);
        }
        assert_eq!(stored[2].id, None);
    });
}

#[test]
fn too_large_for_the_server_or_the_stream() {
    run(async {
        let streams = Streams::connect(&Services::shared().nats).await;
        let name = unique("sink");
        streams.create(&name, json!({ "max_msg_size": 1_000 })).await;
        let mut sink = NatsSink::new(options(&name));
        let of = |bytes: usize| {
            let message = Message { value: Some(noise(7, bytes).into()), ..Message::default() };
            Outgoing { destination: Destination::Forward, message, idempotency_key: None }
        };
        assert!(sink.unfit(&of(1 << 20)).is_some() && sink.unfit(&of(1_000_000)).is_none());
        let answers = sink.publish(&[forward("a"), of(1 << 20), forward("b")]).await;
        assert!(answers[0] == Published::Confirmed && is_refused(&answers[1]), "{answers:?}");
        assert_eq!(answers[2], Published::NotSent);
        let answers = sink.publish(&[of(2_000)]).await;
        assert_eq!(
            answers,
            [Published::Refused("message size exceeds maximum allowed (code 400, error code 10054)".into())]
        );
        all_confirmed(&sink.publish(&[forward("b")]).await);
        assert_eq!(texts(&streams.take(&name).await), ["a", "b"]);
    });
}

fn options(subject: &str) -> NatsOptions {
    NatsOptions::new(servers(&Services::shared().nats), subject)
}

async fn refusal(options: NatsOptions) -> String {
    match NatsSink::new(options).check().await {
        Err(SinkError::Refused(cause)) => cause.to_string(),
        other => panic!("{other:?}"),
    }
}

/// A stream that forgets keys before what was in doubt is sent again is refused, and stays as it is.
#[test]
fn a_duplicate_window_that_is_too_short() {
    run(async {
        let streams = Streams::connect(&Services::shared().nats).await;
        let name = unique("sink");
        streams.create(&name, json!({ "duplicate_window": 60_000_000_000_u64 })).await;
        let with = |lease| NatsOptions { lease, ..options(&name) };
        let told = refusal(with(Duration::from_secs(30))).await;
        assert!(told.contains("for 60s,") && told.contains("is 61s"), "{told}");
        assert_eq!(streams.info(&name).await["config"]["duplicate_window"], 60_000_000_000_u64);
        NatsSink::new(with(Duration::from_millis(29_500))).check().await.expect("exactly long enough");
        NatsSink::new(NatsOptions { create: Some(unique("sink")), ..with(Duration::from_millis(29_500)) })
            .check()
            .await
            .expect("nothing is made where all is there");
    });
}

#[test]
fn streams_that_will_not_do() {
    run(async {
        let streams = Streams::connect(&Services::shared().nats).await;
        let name = unique("sink");
        assert_eq!(refusal(options(&name)).await, format!("no stream holds subject {name}"));
        streams.create(&name, json!({})).await;
        let other = NatsOptions { stream: Some("other".to_owned()), ..options(&name) };
        assert_eq!(refusal(other).await, format!("subject {name} is held by stream {name} and not by other"));
        let foreign = NatsOptions { dead_letter: Some(unique("free")), create: Some(name.clone()), ..options(&name) };
        let told = refusal(foreign).await;
        assert_eq!(told, format!("stream {name} is there and was not made by semel: its subjects are not changed"));
        let silent = unique("sink");
        streams.create(&silent, json!({ "no_ack": true })).await;
        assert_eq!(refusal(options(&silent)).await, format!("stream {silent} acknowledges nothing (no_ack)"));
    });
}

/// Made with a window of two minutes, known for our own again, and brought up to what a longer lease needs.
#[test]
fn a_stream_of_our_own() {
    run(async {
        let streams = Streams::connect(&Services::shared().nats).await;
        let (name, dead) = (unique("sink"), unique("dead"));
        let made = NatsOptions { create: Some(name.clone()), ..options(&format!("{name}.out")) };
        let window = |seconds: u64| json!(seconds * 1_000_000_000);
        NatsSink::new(made.clone()).check().await.expect("it is made");
        let config = streams.info(&name).await["config"].clone();
        assert_eq!(config["duplicate_window"], window(120));
        assert_eq!((&config["subjects"], &config["num_replicas"]), (&json!([format!("{name}.out")]), &json!(1)));

        let longer = NatsOptions { lease: 2 * MINUTE, dead_letter: Some(dead.clone()), ..made.clone() };
        let mut sink = NatsSink::new(longer);
        sink.check().await.expect("it is brought up");
        let config = streams.info(&name).await["config"].clone();
        assert_eq!((&config["duplicate_window"], &config["subjects"][1]), (&window(241), &json!(dead)));
        all_confirmed(&sink.publish(&[forward("a"), to(Destination::DeadLetter, "b")]).await);

        NatsSink::new(NatsOptions { create: None, ..made }).check().await.expect("longer than needed is right");
        assert_eq!(streams.info(&name).await["config"]["duplicate_window"], window(241));
        assert_eq!(texts(&streams.take(&name).await), ["a", "b"]);
    });
}

/// No more are out than may be, and none is sent once one has failed.
#[test]
fn a_failure_ends_the_sending() {
    run(async {
        let streams = OwnStreams::make_all(&Services::shared(), Some(5)).await;
        let mut sink = NatsSink::new(NatsOptions { unconfirmed_max: 10, ..streams.options() });
        super::kit::ends_at_a_failure(&mut sink, &streams).await;
    });
}

#[test]
fn nobody_answers_or_lets_us_in() {
    run(async {
        let right = servers(&Services::shared().nats);
        let with = |servers: Servers| {
            NatsSink::new(NatsOptions { timeout: Duration::from_secs(2), ..NatsOptions::new(servers, "any") })
        };
        let mut wrong = with(Servers { password: Some("wrong".to_owned()), ..right.clone() });
        let error = wrong.check().await.expect_err("not let in");
        assert!(matches!(error, SinkError::Refused(_)), "{error:?}");
        let away = "127.0.0.1:1".to_owned();
        let mut nobody = with(Servers { hosts: vec![away.clone()], ..right.clone() });
        let error = nobody.check().await.expect_err("nobody is there");
        assert!(matches!(error, SinkError::Lost(_)), "{error:?}");
        assert_eq!(nobody.publish(&[forward("a")]).await, [Published::NotSent]);
        let streams = OwnStreams::make_all(&Services::shared(), None).await;
        let hosts = [vec![away], right.hosts.clone()].concat();
        let mut second = NatsSink::new(NatsOptions { servers: Servers { hosts, ..right }, ..streams.options() });
        all_confirmed(&second.publish(&[forward("a")]).await);
        assert_eq!(texts(&streams.take(Destination::Forward).await), ["a"]);
    });
}
