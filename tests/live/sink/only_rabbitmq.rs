//! What only RabbitMQ has: exchanges, typed headers, orders to the broker, frames, TLS.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldArray, FieldTable};
use semel::message::{Header, Message};
use semel::sink::rabbitmq::{RabbitOptions, RabbitSink, Route, Server};
use semel::sink::{Destination, Doubt, Outgoing, Published, Sink, SinkError};
use serde_json::{Value, json};

use super::kit::{all_confirmed, answered, forward, header, is_in_doubt, is_refused, numbered, texts, to};
use super::rabbitmq::Management;
use super::subjects::{Queues, server};
use super::{Broker, run};
use crate::support::services::Services;
use crate::support::unique;

fn management() -> Management {
    Management::new(&Services::shared().rabbitmq.management)
}

fn sink(route: Route) -> RabbitSink {
    RabbitSink::new(RabbitOptions::new(server(&Services::shared().rabbitmq.url), route))
}

#[test]
fn an_exchange_and_its_queues() {
    run(async {
        let (management, name) = (management(), unique("sink"));
        let (free, full) = (format!("{name}-free"), format!("{name}-full"));
        let route = Route { exchange: name.clone(), routing_key: "any".to_owned() };
        let mut sink = sink(route);
        let error = sink.check().await.expect_err("no such exchange");
        assert!(matches!(error, SinkError::Refused(_)), "{error:?}");
        assert_eq!(sink.publish(&[forward("a")]).await, [Published::NotSent], "a missing exchange closes no channel");

        management.declare_exchange(&name, "fanout", &[]).await;
        sink.check().await.expect("an exchange");
        let answers = sink.publish(&[forward("a")]).await;
        assert_eq!(answers, [Published::InDoubt(Doubt::answered("returned by the broker: 312 NO_ROUTE"))]);

        management.declare(&free, json!({})).await;
        management.declare_exchange(&name, "fanout", &[&free]).await;
        all_confirmed(&sink.publish(&[forward("a")]).await);

        // One of two queues refuses: the other has it.
        management.declare(&full, json!({ "x-max-length": 1, "x-overflow": "reject-publish" })).await;
        management.declare_exchange(&name, "fanout", &[&full]).await;
        all_confirmed(&sink.publish(&[forward("b")]).await);
        let answers = sink.publish(&[forward("c")]).await;
        assert!(is_in_doubt(&answers[0]), "{answers:?}");
        assert_eq!(texts(&management.take(&free).await), ["a", "b", "c"]);
        assert_eq!(texts(&management.take(&full).await), ["b"]);
    });
}

/// An exchange that goes away closes the channel: what was sent is in doubt. It is made anew by itself.
#[test]
fn a_channel_that_the_broker_closes() {
    run(async {
        let (management, name) = (management(), unique("sink"));
        management.declare(&name, json!({})).await;
        management.declare_exchange(&name, "fanout", &[&name]).await;
        let mut sink = sink(Route { exchange: name.clone(), routing_key: String::new() });
        all_confirmed(&sink.publish(&numbered("before", 100)).await);
        management.delete_exchange(&name).await;
        let answers = sink.publish(&numbered("during", 3_000)).await;
        let unknown = |answer: &Published| matches!(answer, Published::InDoubt(_) | Published::NotSent);
        assert!(answers.iter().all(unknown) && is_in_doubt(&answers[0]), "{answers:?}");
        assert_eq!(sink.publish(&numbered("without", 3)).await, vec![Published::NotSent; 3]);
        management.declare_exchange(&name, "fanout", &[&name]).await;
        all_confirmed(&sink.publish(&numbered("after", 100)).await);
        let stored = texts(&management.take(&name).await);
        assert_eq!(stored.len(), 200, "{stored:?}");
    });
}

/// Typed headers and properties go through as they are, but for those that would act here.
#[test]
fn properties_of_a_message_from_rabbitmq() {
    run(async {
        let (management, name) = (management(), unique("sink"));
        let other = format!("{name}-other");
        management.declare(&name, json!({})).await;
        management.declare(&other, json!({})).await;
        let text = |text: &str| AMQPValue::LongString(text.into());
        let table = |entries: Vec<(&str, AMQPValue)>| {
            FieldTable::from(entries.into_iter().map(|(name, value)| (name.into(), value)).collect::<BTreeMap<_, _>>())
        };
        let death = table(vec![("count", AMQPValue::LongLongInt(3)), ("queue", text("q"))]);
        let headers = table(vec![
            ("CC", AMQPValue::FieldArray(FieldArray::from(vec![text(&other)]))),
            ("x-death", AMQPValue::FieldArray(FieldArray::from(vec![AMQPValue::FieldTable(death)]))),
            ("n", AMQPValue::LongInt(-5)),
            ("yes", AMQPValue::Boolean(true)),
        ]);
        let amqp = BasicProperties::default()
            .with_headers(headers)
            .with_user_id("somebody".into())
            .with_message_id("its own".into())
            .with_correlation_id("c".into())
            .with_type("t".into())
            .with_priority(4)
            .with_expiration("600000".into())
            .with_timestamp(12_345);
        let headers = vec![header("n", Some(b"-5")), header("semel-verdict", Some(b"duplicate"))];
        let mut outgoing = forward("a");
        outgoing.message = Message { headers, amqp: Some(Box::new(amqp)), ..outgoing.message };
        // A header that the broker would not take for what it is: refused with the channel, were it left as it is.
        let mut from_elsewhere = forward("b");
        from_elsewhere.message.headers = vec![Header::new("CC", other.clone().into_bytes())];
        let mut sink = sink(Route::to_queue(&name));
        all_confirmed(&sink.publish(&[outgoing.clone(), from_elsewhere]).await);
        assert_eq!(management.take(&other).await, [], "it is not copied");
        let stored = management.take_raw(&name).await;
        let right = json!({
            "headers": {
                "semel-CC": [other], "x-death": [{ "count": 3, "queue": "q" }], "n": -5, "yes": true,
                "semel-verdict": "duplicate", "semel-user-id": "somebody", "semel-message-id": "its own",
            },
            "message_id": outgoing.idempotency_key, "correlation_id": "c", "type": "t", "priority": 4,
            "expiration": "600000", "timestamp": 12_345, "delivery_mode": 2,
        });
        assert_eq!(stored[0]["properties"], right);
        assert_eq!(stored[1]["properties"]["headers"], json!({ "semel-CC": other }));
    });
}

#[test]
fn too_large_for_a_frame_or_the_limit() {
    run(async {
        let (management, name) = (management(), unique("sink"));
        management.declare(&name, json!({})).await;
        let server = server(&Services::shared().rabbitmq.url);
        let options = RabbitOptions { message_bytes_max: 5_000, ..RabbitOptions::new(server, Route::to_queue(&name)) };
        let mut sink = RabbitSink::new(options);
        let with_header = |bytes: usize| {
            let mut outgoing = forward("headers");
            outgoing.message.headers = vec![header("h", Some(&vec![b'x'; bytes]))];
            outgoing
        };
        let (fits, bursts) = (with_header(130_900), with_header(131_072));
        let long = forward(&"x".repeat(5_001));
        assert_eq!([&fits, &bursts, &long].map(|outgoing| sink.unfit(outgoing).is_some()), [false, true, true]);
        for unfit in [bursts, long] {
            let answers = sink.publish(&[fits.clone(), unfit, fits.clone()]).await;
            assert!(answers[0] == Published::Confirmed && is_refused(&answers[1]), "{answers:?}");
            assert_eq!(answers[2], Published::NotSent);
        }
        all_confirmed(&sink.publish(&[forward(&"x".repeat(5_000))]).await);
        assert_eq!(management.take(&name).await.len(), 3);
    });
}

#[test]
fn nobody_answers_or_lets_us_in() {
    run(async {
        let queues = Queues::make_all(&Services::shared(), "classic", None).await;
        let with = |server: Server| {
            RabbitSink::new(RabbitOptions { server, timeout: Duration::from_secs(3), ..queues.options() })
        };
        let right = queues.server.clone();
        for wrong in [
            Server { password: "wrong".to_owned(), ..right.clone() },
            Server { vhost: "none".to_owned(), ..right.clone() },
        ] {
            let error = with(wrong.clone()).check().await.expect_err("not let in");
            assert!(matches!(error, SinkError::Refused(_)), "{wrong:?}: {error:?}");
        }
        let away = "127.0.0.1:1".to_owned();
        let mut nobody = with(Server { hosts: vec![away.clone()], ..right.clone() });
        let error = nobody.check().await.expect_err("nobody is there");
        assert!(matches!(error, SinkError::Lost(_)), "{error:?}");
        assert_eq!(nobody.publish(&[forward("a")]).await, [Published::NotSent]);
        let hosts = [vec![away], right.hosts.clone()].concat();
        all_confirmed(&with(Server { hosts, ..right }).publish(&[forward("a")]).await);
        assert_eq!(texts(&queues.take(Destination::Forward).await), ["a"]);
    });
}

/// No more are out than may be, and none is sent once one has failed.
#[test]
fn a_failure_ends_the_sending() {
    run(async {
        let queues = Queues::make_all(&Services::shared(), "classic", Some(5)).await;
        let mut sink = RabbitSink::new(RabbitOptions { unconfirmed_max: 10, ..queues.options() });
        super::kit::ends_at_a_failure(&mut sink, &queues).await;
    });
}

/// Not a promise, but what windows are good for.
#[test]
fn confirms_a_second() {
    run(async {
        for kind in ["classic", "quorum"] {
            let queues = Queues::make_all(&Services::shared(), kind, None).await;
            let mut sink = RabbitSink::new(queues.options());
            let body = "x".repeat(500);
            for window in [1, 256, 1_000] {
                let messages: Vec<Outgoing> = (0..window * (5_000 / window).min(200))
                    .map(|n| to(Destination::Forward, &format!("{n}-{body}")))
                    .collect();
                let begin = Instant::now();
                for part in messages.chunks(window) {
                    let answers = sink.publish(part).await;
                    assert_eq!(answered(part, &answers, Published::is_stored).len(), part.len());
                }
                let rate = messages.len() as f64 / begin.elapsed().as_secs_f64();
                println!("{kind} queue, windows of {window}: {rate:.0} confirms/s");
            }
            let stored: Vec<Value> = queues.management.take_raw(&queues.queue(Destination::Forward)).await;
            assert!(stored.len() > 9_000);
        }
    });
}
