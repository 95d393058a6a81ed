//! Windows and results where nothing fails.

use std::time::Duration;

use super::Subject;
use super::kit::{FORMS, Form, ids, options, published, record, records, start, start_with};
use super::watched::Call;

/// One reserve and one commit a window, of which all but the last ride on the next reserve.
pub async fn sizes(subject: Subject) {
    let instance = start(&subject).await;
    let mut expected = Vec::new();
    for (form, letter) in FORMS.into_iter().zip(["a", "l"]) {
        for count in [1, 255, 256, 257, 600] {
            let prefix = format!("{letter}{count}-");
            let records = records(&prefix, count);
            instance.store.committed();
            assert_eq!(instance.post(form, &records).await.outcomes(), "p".repeat(count), "{form:?} of {count}");
            let each: Vec<i64> = (0..count).step_by(256).map(|from| 256.min(count - from) as i64).collect();
            assert_eq!(
                instance.store.committed(),
                each,
                "{form:?} of {count}: each by the call that follows its window"
            );
            expected.extend(ids(&prefix, 0..count));
            let windows = |calls: &mut Vec<Call>| {
                let end = calls.pop();
                assert_eq!(end, Some(Call::Commit), "{form:?} of {count}: the last window's");
                std::mem::take(calls)
            };
            let sizes = (0..count).step_by(256).map(|from| Call::Reserve(256.min(count - from)));
            assert_eq!(windows(&mut instance.store.calls()), sizes.collect::<Vec<_>>(), "{form:?} of {count}");
            for again in ["second", "third"] {
                let answer = instance.post(form, &records).await;
                assert_eq!(answer.counts(), (0, count as u64, 0), "{again} try, {form:?} of {count}");
            }
            instance.store.calls();
        }
    }
    assert_eq!(published(&subject).await, expected);
}

/// Rejects, repeats within and across windows, and records without an id, each where it stood.
pub async fn order_of_results(subject: Subject) {
    let instance = start(&subject).await;
    for (form, letter) in FORMS.into_iter().zip(["a", "l"]) {
        let mut records = Vec::new();
        let mut right = String::new();
        let mut fresh = Vec::new();
        for n in 0..700 {
            let (text, outcome) = match n % 10 {
                3 => ("5".to_owned(), 'r'),
                4 => (record(&format!("{letter}{}", n - 4)), 'd'),
                5 => (format!("{{\"id\":{{\"a\":{n}}}}}"), 'r'),
                6 => (format!("{{\"without\":\"{letter}{n}\"}}"), 'p'),
                // Of a window before, from the second on.
                7 if n > 400 => (record(&format!("{letter}{}", n - 400 - 7)), 'd'),
                8 => (format!("{{\"id\":\"{letter}{n}\",\"a\":1,\"a\":1}}"), 'r'),
                9 => (format!("{{\"id\":\"{letter}{n}\",\"text\":\"{}\"}}", "x".repeat(1_000)), 'r'),
                _ => (record(&format!("{letter}{n}")), 'p'),
            };
            if outcome == 'p' && n % 10 != 6 {
                fresh.push(format!("{letter}{n}"));
            }
            records.push(text);
            right.push(outcome);
        }
        let answer = instance.post(form, &records).await;
        assert_eq!(answer.outcomes(), right, "{form:?}");
        let reasons = [
            (3, "it is not an object"),
            (5, "the place of its id holds neither text nor a number"),
            (8, "a name is repeated in an object"),
            (9, "it is too large"),
        ];
        for (n, reason) in reasons {
            assert_eq!(answer.body["results"][n]["reason"], reason);
        }
        let came: Vec<String> = published(&subject).await.into_iter().filter(|id| id.starts_with(letter)).collect();
        assert_eq!(came, fresh, "{form:?}");
        let again = right.replace('p', "d");
        let without_ids = |n: usize| n % 10 == 6;
        let again: String = again.chars().enumerate().map(|(n, c)| if without_ids(n) { 'p' } else { c }).collect();
        assert_eq!(instance.post(form, &records).await.outcomes(), again, "{form:?} again");
    }
}

/// The first counts, whatever else it says.
pub async fn repeats(subject: Subject) {
    let instance = start(&subject).await;
    let all: Vec<String> =
        ["a", "b", "a", "c", "b"].iter().enumerate().map(|(n, id)| format!("{{\"id\":\"{id}\",\"n\":{n}}}")).collect();
    assert_eq!(instance.post(Form::Array, &all).await.outcomes(), "ppdpd");
    assert_eq!(instance.store.calls(), [Call::Reserve(3), Call::Commit]);
    assert_eq!(published(&subject).await, ["a", "b", "c"]);
    let values = (subject.published)().await;
    assert_eq!(values[0], b"{\"id\":\"a\",\"n\":0}", "the first of them");
}

/// Published each time, without a claim and without a key that a broker would drop them by.
pub async fn without_ids(subject: Subject) {
    let instance = start(&subject).await;
    let all = ["{\"a\":1}".to_owned(), "{\"id\":null}".to_owned(), "{\"id\":\" \"}".to_owned()];
    for _ in 0..2 {
        assert_eq!(instance.post(Form::Lines, &all).await.outcomes(), "ppp");
    }
    assert_eq!(instance.store.calls(), [], "there is nothing to claim");
    assert_eq!(published(&subject).await.len(), 6);
    assert_eq!(instance.post(Form::Lines, &[]).await.outcomes(), "");
    assert_eq!(instance.post(Form::Array, &[]).await.outcomes(), "");
}

/// Switched off for a table: what is sent twice comes twice.
pub async fn without_dedupe(subject: Subject) {
    let instance = start(&subject).await;
    let body = Form::Lines.body(&[record("a"), record("a"), record("b")]);
    for _ in 0..2 {
        let answer = instance.send_as("/v1/ingest/acme/logs", "application/x-ndjson", body.clone()).await;
        assert_eq!(answer.outcomes(), "ppp");
    }
    assert_eq!(instance.store.calls(), []);
    assert_eq!(published(&subject).await, ["a", "a", "b", "a", "a", "b"]);
}

/// A window of one, whose id may stand in a header.
pub async fn one_object(subject: Subject) {
    let instance = start(&subject).await;
    assert_eq!(instance.post_one(" {\"b\":1.0, \"id\":\"a\"} ").await.outcomes(), "p");
    assert_eq!(instance.store.calls(), [Call::Reserve(1), Call::Commit]);
    assert_eq!(instance.post_one("{\"id\":\"a\"}").await.outcomes(), "d");
    let headers = |key: &'static str| {
        [("x-api-key", super::kit::KEY), ("content-type", "application/json; charset=utf-8"), ("idempotency-key", key)]
    };
    let path = super::kit::ORDERS;
    assert_eq!(instance.send(path, &headers("h"), "{\"id\":\"c\"}").await.outcomes(), "p", "the header goes first");
    assert_eq!(instance.send(path, &headers("h"), "{\"id\":\"d\"}").await.outcomes(), "d");
    assert_eq!(instance.post_one("{\"id\":\"h\"}").await.outcomes(), "d", "it is the same id, wherever it stands");
    assert_eq!(instance.send(path, &headers("x"), "[{\"id\":\"c\"}]").await.outcomes(), "p", "not of an array");
    let values = (subject.published)().await;
    let right: [&[u8]; 3] = [b"{\"b\":1,\"id\":\"a\"}", b"{\"id\":\"c\"}", b"{\"id\":\"c\"}"];
    assert_eq!(values, right, "in their canonical form");
}

/// More requests than lanes, with ids in common: each is published once, and who is told so is right.
pub async fn many_at_once(subject: Subject) {
    let instance = start(&subject).await;
    let requests = (0..24).map(|request| {
        // Each id is in three requests.
        let records: Vec<String> = (0..300).map(|n| record(&format!("{}-{n}", request / 3))).collect();
        let instance = &instance;
        async move {
            for tries in 0..200 {
                let form = FORMS[request % 2];
                let answer = instance.post(form, &records).await;
                if answer.status == 200 {
                    return (answer.counts(), tries);
                }
                let in_flight = "an event is in flight";
                assert_eq!((answer.status, &answer.body["error"]), (503, &in_flight.into()), "{answer:?}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            panic!("request {request} never came through");
        }
    });
    let ended = futures_of(requests.collect()).await;
    let sum = |of: fn(&((u64, u64, u64), i32)) -> u64| ended.iter().map(of).sum::<u64>();
    assert_eq!(sum(|((_, _, rejected), _)| *rejected), 0);
    assert_eq!(sum(|((published, duplicate, _), _)| published + duplicate), 24 * 300);
    let mut came = published(&subject).await;
    came.sort();
    let mut right: Vec<String> = (0..8).flat_map(|of| (0..300).map(move |n| format!("{of}-{n}"))).collect();
    right.sort();
    assert_eq!(came, right);
}

/// All at once, on this task.
pub async fn futures_of<T, F: Future<Output = T>>(futures: Vec<F>) -> Vec<T> {
    let mut futures: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        let mut is_over = true;
        for (future, ended) in &mut futures {
            if ended.is_none() {
                match future.as_mut().poll(context) {
                    std::task::Poll::Ready(value) => *ended = Some(value),
                    std::task::Poll::Pending => is_over = false,
                }
            }
        }
        if is_over { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    futures.into_iter().filter_map(|(_, ended)| ended).collect()
}

/// The same id in two tenants, or in two tables, is two events.
pub async fn two_tenants(subject: Subject) {
    let instance = start(&subject).await;
    let targets = ["acme/orders", "other/orders", "acme/returns"];
    for (again, outcome) in [(1, "p"), (2, "d")] {
        for target in targets {
            let path = format!("/v1/ingest/{target}");
            let answer = instance.send_as(&path, "application/json", record("a")).await;
            assert_eq!(answer.outcomes(), outcome, "{target}, try {again}");
        }
    }
    assert_eq!(published(&subject).await.len(), 3);
}

/// A request whose records come one by one does not keep a lane from the others, nor its claims from being settled.
pub async fn slow_streams(subject: Subject) {
    let instance = start_with(
        &subject,
        semel::pipeline::ingest::Options { lanes: 1, window_records_max: 2, ..options(&subject, "a") },
        super::kit::LIMITS,
    )
    .await;
    let (sender, mut receiver) = tokio::sync::mpsc::channel::<String>(1);
    let body = axum::body::Body::new(super::bodies::Channel(Box::new(move |context| receiver.poll_recv(context))));
    let headers = [("x-api-key", super::kit::KEY), ("content-type", "application/x-ndjson")];
    let slow = instance.send(super::kit::ORDERS, &headers, body);
    let others = async {
        for n in 0..5 {
            sender.send(format!("{}\n", record(&format!("slow{n}")))).await.expect("it listens");
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(instance.post_one(&record("quick")).await.outcomes(), "p", "the only lane is free");
        assert_eq!(instance.post_one(&record("slow0")).await.outcomes(), "d", "and owes nothing");
        drop(sender);
    };
    let (answer, ()) = tokio::join!(slow, others);
    assert_eq!(answer.outcomes(), "ppppp");
    let right = ["slow0", "slow1", "slow2", "slow3", "quick", "slow4"];
    assert_eq!(published(&subject).await, right);
}
