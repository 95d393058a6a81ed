//! Claims that are kept for a time.

use std::time::{Duration, Instant};

use semel::pipeline::ingest::{Options, Retention};

use super::Subject;
use super::failures::held_elsewhere;
use super::kit::{Form, Instance, options, record, records, start, start_with};

const KEPT: Duration = Duration::from_secs(2);

async fn keeping(subject: &Subject, retention: &str) -> Instance {
    let retention = Retention::of(retention).expect("a list");
    start_with(subject, Options { retention, ..options(subject, "a") }, super::kit::LIMITS).await
}

async fn until_gone(instance: &Instance, id: &str) {
    let begun = Instant::now();
    while instance.is_claimed(id).await {
        assert!(begun.elapsed() < Duration::from_secs(20), "{id} is not forgotten");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// What is over is published again; what is not, what is not settled and what is another table's is not.
pub async fn expires(subject: Subject) {
    let instance = keeping(&subject, "acme/orders=2s,*/returns=1h").await;
    let one = |path: &'static str, id: &str| instance.send_as(path, "application/json", record(id));
    let [orders, returns, others] = ["/v1/ingest/acme/orders", "/v1/ingest/acme/returns", "/v1/ingest/acme/others"];
    let made = Instant::now();
    for path in [orders, returns, others] {
        assert_eq!(one(path, "a").await.outcomes(), "p");
    }
    // Claimed long ago, and the lease of whoever is at work on it runs.
    let (_, guard) = held_elsewhere(&subject, "held", Duration::from_secs(600)).await;
    assert_eq!(one(orders, "a").await.outcomes(), "d");
    assert!(made.elapsed() < KEPT, "too slow a machine to tell");
    until_gone(&instance, "a").await;
    assert!(made.elapsed() >= KEPT, "after {:?}", made.elapsed());
    assert!(instance.is_claimed("held").await, "it is not settled");
    assert_eq!(one(orders, "held").await.status, 503, "it is in flight");
    assert_eq!(one(orders, "a").await.outcomes(), "p", "once more");
    assert_eq!(one(orders, "a").await.outcomes(), "d", "it begins anew");
    assert_eq!(one(returns, "a").await.outcomes(), "d", "kept for longer");
    assert_eq!(one(others, "a").await.outcomes(), "d", "kept for ever");
    // Settled at last, it is as old as it says.
    subject.store.release(guard, 1, &[], 1, 1).await.expect("settled");
    until_gone(&instance, "held").await;
    drop(instance);
    let instance = start(&subject).await;
    let begun = Instant::now();
    while instance.post_one(&record("kept")).await.status != 200 {
        assert!(begun.elapsed() < Duration::from_secs(20), "the leases of the run before are over");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    tokio::time::sleep(KEPT * 2).await;
    assert_eq!(instance.post_one(&record("kept")).await.outcomes(), "d", "without a setting nothing is forgotten");
}

/// More than one batch, while others go on.
pub async fn many(subject: Subject) {
    let instance = keeping(&subject, "acme/orders=1s").await;
    let all = records("m", 3_000);
    assert_eq!(instance.post(Form::Lines, &all).await.counts(), (3_000, 0, 0));
    for id in ["m0", "m1499", "m2999"] {
        until_gone(&instance, id).await;
        assert_eq!(instance.post_one(&record("meanwhile")).await.status, 200);
    }
    let begun = Instant::now();
    while !instance.claimed("m", 0..3_000).await.is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(20), "all of them");
    }
}
