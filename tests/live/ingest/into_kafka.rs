//! Into Kafka: a window is one transaction. What fails is made to fail by the broker, or on the way to it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use semel::protocol::idempotency;

use super::Subject;
use super::kit::{Answer, Form, Instance, ids, options, published, record, records, start, start_with};
use super::subjects::{in_kafka, in_kafka_by};
use super::watched::{Call, Fail};
use crate::support::broker::Broker;
use crate::support::proxy::{Api, Moment, Proxy, Sight, Then};
use crate::support::services::Services;

fn lease_s(subject: &Subject) -> u64 {
    subject.lease.as_secs_f64().ceil() as u64
}

async fn each_once(subject: &Subject, mut right: Vec<String>) {
    let mut came = published(subject).await;
    came.sort();
    right.sort();
    assert_eq!(came, right);
}

/// Posts again and again until it is answered with results.
async fn until_done(instance: &Instance, records: &[String]) -> Answer {
    let begun = Instant::now();
    loop {
        let answer = instance.post(Form::Lines, records).await;
        if answer.status == 200 {
            return answer;
        }
        assert!(answer.status == 503 && begun.elapsed() < Duration::from_secs(60), "{answer:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Of those that are to fail; the client waits five seconds longer for their end.
const TRANSACTION: Duration = Duration::from_secs(2);
const AWAY: Duration = Duration::from_millis(7_500);

/// The same subject, with a topic of its own behind a proxy.
async fn behind_a_proxy(subject: Subject) -> (Subject, Arc<Proxy>) {
    let proxy = Arc::new(Proxy::of_kafka(Services::shared().kafka_port()));
    let (subject, _) = in_kafka_by(&format!("127.0.0.1:{}", proxy.port()), TRANSACTION, subject).await;
    (subject, proxy)
}

pub async fn keys_and_headers(subject: Subject) {
    let (subject, topic) = in_kafka(subject).await;
    let instance = start(&subject).await;
    assert_eq!(instance.post_one(&record("one")).await.outcomes(), "p");
    assert_eq!(instance.post_one("{\"no\":\"id\"}").await.outcomes(), "p");
    let log = tokio::task::block_in_place(|| Broker(Services::shared().kafka).read(&topic).remove(0));
    let headers = |n: usize| -> Vec<(String, String)> {
        let headers = log.records[n].headers.iter();
        let text = |value: &Option<Vec<u8>>| String::from_utf8(value.clone().expect("a value")).expect("text");
        headers.map(|(name, value)| (name.clone(), text(value))).collect()
    };
    let key = idempotency::of_row("acme", "orders", "one").to_string();
    let own = [("semel-tenant", "acme"), ("semel-table", "orders")];
    let of_one = [("semel-event-id", "one"), ("semel-idempotency-key", &key)];
    let right = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    assert_eq!(headers(0), right(&[own, of_one].concat()));
    assert_eq!(headers(1), right(&own), "without an id there is no key");
    assert_eq!(log.records[0].value.as_deref(), Some(&b"{\"amount\":1,\"id\":\"one\"}"[..]));
}

/// A known abort is definite: k is the window's first record, and nothing of the window is left. Earlier windows stay.
pub async fn aborted(subject: Subject) {
    let (subject, topic) = in_kafka(subject).await;
    let instance = start(&subject).await;
    let broker = Broker(Services::shared().kafka);
    tokio::task::block_in_place(|| broker.set_topic(&topic, &[("max.message.bytes", "60000")]));
    let mut all = records("a", 600);
    // 256 of these are more than a batch may be; the client makes batches of what the topic took at the start.
    for record in &mut all[256..512] {
        record.insert_str(1, &format!("\"text\":\"{}\",", "x".repeat(900)));
    }
    let refused = Answer::failure(503, "the broker refused a record", Some(30));
    assert_eq!(instance.post(Form::Array, &all).await, refused);
    let mut calls = instance.store.calls();
    calls.retain(|call| *call != Call::Commit);
    assert_eq!(calls, [Call::Reserve(256), Call::Reserve(256), Call::Release], "the third is never reserved");
    assert_eq!(instance.claimed("a", 0..600).await, (0..256).collect::<Vec<_>>());
    assert_eq!(published(&subject).await, ids("a", 0..256));
    tokio::task::block_in_place(|| broker.set_topic(&topic, &[("max.message.bytes", "1000000")]));
    // The broker needs a moment for it.
    assert_eq!(until_done(&instance, &all).await.counts(), (344, 256, 0));
    assert_eq!(published(&subject).await, ids("a", 0..600));
}

/// The broker is gone and stays away: definite where it never had anything, in doubt where a transaction was to be
/// ended. Once it is back, everything comes through once.
pub async fn out_of_reach(subject: Subject) {
    let (subject, proxy) = behind_a_proxy(subject).await;
    let instance = start(&subject).await;
    assert_eq!(instance.post(Form::Lines, &records("o", 300)).await.counts(), (300, 0, 0));
    proxy.refuse(true);
    proxy.cut();
    let answer = instance.post(Form::Lines, &records("n", 10)).await;
    assert_eq!(answer, Answer::failure(503, "the broker refused a record", Some(30)), "nothing has left the client");
    assert_eq!(instance.claimed("n", 0..10).await, [0; 0]);
    proxy.refuse(false);
    let away = Arc::clone(&proxy);
    let seen = proxy.on(Sight::Kafka(Api::EndTxn), Moment::Before, 1, move || {
        away.refuse(true);
        Then::Cut
    });
    let mut answer = instance.post(Form::Lines, &records("o", 600)).await;
    while answer.retry_after == Some(30) {
        // The client was not connected again yet.
        answer = instance.post(Form::Lines, &records("o", 600)).await;
    }
    seen.wait(Duration::from_secs(1), "the end of a transaction");
    let right = Answer::failure(503, "the broker is out of reach", Some(lease_s(&subject)));
    assert_eq!(answer, right, "uncertain, with the time after which the claims have lapsed");
    assert_eq!(instance.claimed("o", 300..600).await, (300..512).collect::<Vec<_>>(), "they are left");
    proxy.refuse(false);
    assert_eq!(until_done(&instance, &records("o", 600)).await.counts(), (300, 300, 0));
    assert_eq!(instance.post(Form::Lines, &records("o", 600)).await.counts(), (0, 600, 0));
    each_once(&subject, ids("o", 0..600)).await;
}

/// A transaction's end is not heard of: the outcome is found out before the answer.
pub async fn answers_are_lost(subject: Subject) {
    let (subject, proxy) = behind_a_proxy(subject).await;
    let options = semel::pipeline::ingest::Options { lanes: 1, ..options(&subject, "a") };
    let instance = start_with(&subject, options, super::kit::LIMITS).await;
    let refused = Answer::failure(503, "the broker refused a record", Some(30));
    let cases = [(Moment::After, true), (Moment::Before, false)];
    for (n, (moment, is_there)) in cases.into_iter().enumerate() {
        let records = records(&format!("l{n}-"), 300);
        // For as long as the client waits for the end, and no longer.
        let away = Arc::clone(&proxy);
        let seen = proxy.on(Sight::Kafka(Api::EndTxn), moment, 1, move || {
            away.refuse(true);
            std::thread::spawn(move || {
                std::thread::sleep(AWAY);
                away.refuse(false);
            });
            Then::Cut
        });
        let answer = instance.post(Form::Array, &records).await;
        seen.wait(Duration::from_secs(1), "the end of a transaction");
        match is_there {
            true => assert_eq!(answer.counts(), (300, 0, 0), "it has committed"),
            false => assert_eq!(answer, refused, "the next holder of the producer's id has ended it"),
        }
        let again = instance.post(Form::Array, &records).await;
        assert_eq!(again.counts(), if is_there { (0, 300, 0) } else { (300, 0, 0) });
    }
    each_once(&subject, [ids("l0-", 0..300), ids("l1-", 0..300)].concat()).await;
}

/// Records without claims, of which the store knows nothing: the offset alone says whether they are there.
pub async fn undeduped_in_doubt(subject: Subject) {
    let (subject, proxy) = behind_a_proxy(subject).await;
    let options = semel::pipeline::ingest::Options { lanes: 1, ..options(&subject, "a") };
    let instance = start_with(&subject, options, super::kit::LIMITS).await;
    let path = "/v1/ingest/acme/logs";
    let body = Form::Lines.body(&records("u", 3));
    let send = || instance.send_as(path, Form::Lines.content_type(), body.clone());
    assert_eq!(send().await.outcomes(), "ppp");
    for (moment, is_there) in [(Moment::Before, false), (Moment::After, true)] {
        let before = published(&subject).await.len();
        let away = Arc::clone(&proxy);
        let seen = proxy.on(Sight::Kafka(Api::EndTxn), moment, 1, move || {
            away.refuse(true);
            std::thread::spawn(move || {
                std::thread::sleep(AWAY);
                away.refuse(false);
            });
            Then::Cut
        });
        let answer = send().await;
        seen.wait(Duration::from_secs(1), "the end of a transaction");
        assert_eq!(answer.status == 200, is_there, "{answer:?}");
        assert_eq!(published(&subject).await.len() - before, if is_there { 3 } else { 0 });
    }
}

/// Another run of the same instance takes the slots while a window is between its claims and its publish: that window
/// is not published, and nobody is told that it was.
pub async fn fenced(subject: Subject) {
    let instance = start(&subject).await;
    instance.store.fail_reserve(0, Fail::Slow(2_500));
    let records = records("f", 10);
    let slow = instance.post(Form::Array, &records);
    let other = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let other = start(&subject).await;
        let answer = other.post(Form::Array, &records).await;
        (other, answer)
    };
    let (late, (other, answer)) = tokio::join!(slow, other);
    assert_eq!(answer.outcomes(), "p".repeat(10), "what the fenced run had claimed is free again");
    assert_eq!(late.status, 503, "{late:?}");
    assert_eq!(until_done(&other, &records).await.outcomes(), "d".repeat(10));
    each_once(&subject, ids("f", 0..10)).await;
}

/// No lease is waited for: the run before cannot publish any more.
pub async fn restarts(subject: Subject) {
    let instance = start(&subject).await;
    assert_eq!(instance.post(Form::Array, &records("r", 300)).await.counts(), (300, 0, 0));
    let next = start(&subject).await;
    let begun = Instant::now();
    while next.ingest.lanes_ready() < 3 {
        assert!(begun.elapsed() < subject.lease / 2, "no lease is waited for");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(next.post(Form::Array, &records("r", 310)).await.counts(), (10, 300, 0));
    next.ingest.leave().await;
    each_once(&subject, ids("r", 0..310)).await;
}
