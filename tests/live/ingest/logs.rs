//! Exact levels and messages: what is the caller's own doing is a debug line, what is the store's is an error line.

use std::cell::RefCell;
use std::future::Future;
use std::sync::Once;
use std::time::Duration;

use axum::body::Body;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

use super::bodies::Broken;
use super::kit::{Form, KEY, ORDERS, record, records, start};
use super::scripted::Fault;
use super::subjects;
use super::watched::Fail;

type Line = (Level, String);

thread_local! {
    /// What this thread's test has logged; none where nobody listens.
    static HEARD: RefCell<Option<Vec<Line>>> = const { RefCell::new(None) };
}

/// One for the whole process: what is logged is thrown away at its source where no subscriber ever wanted it, and that
/// is decided once, while other tests run.
struct Collector;

#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

impl<S: Subscriber> Layer<S> for Collector {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let target = event.metadata().target();
        let rooms = ["semel::pipeline::ingest", "semel::pipeline::slots", "semel::api"];
        if rooms.iter().any(|room| target.starts_with(room)) {
            let mut message = Message::default();
            event.record(&mut message);
            let line = (*event.metadata().level(), message.0);
            HEARD.with_borrow_mut(|heard| heard.as_mut().map(|heard| heard.push(line)));
        }
    }
}

/// Everything that is logged, on one thread.
fn logged<T: Future<Output = ()>>(test: impl FnOnce() -> T) -> Vec<Line> {
    static LISTENING: Once = Once::new();
    LISTENING.call_once(|| {
        let subscriber = tracing_subscriber::registry().with(Collector);
        tracing::subscriber::set_global_default(subscriber).expect("nobody else listens in this process");
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    HEARD.set(Some(Vec::new()));
    runtime.block_on(test());
    HEARD.take().unwrap_or_default()
}

fn lines(of: &[(Level, &str)]) -> Vec<Line> {
    of.iter().map(|(level, text)| (*level, (*text).to_owned())).collect()
}

const AT_START: usize = 3;

#[test]
fn a_store_failure_is_an_error_line() {
    let found = logged(async || {
        let instance = start(&subjects::memory().await).await;
        instance.store.fail_reserve(0, Fail::OutOfReach);
        assert_eq!(instance.post_one(&record("a")).await.status, 503);
        instance.store.fail_reserve(0, Fail::Rejected);
        assert_eq!(instance.post_one(&record("a")).await.status, 500);
    });
    let right = lines(&[
        (Level::INFO, "opened a lane"),
        (Level::INFO, "opened a lane"),
        (Level::INFO, "opened a lane"),
        (Level::ERROR, "the claim store failed to reserve a window"),
        (Level::ERROR, "the claim store failed to reserve a window"),
    ]);
    assert_eq!(found, right);
}

#[test]
fn a_commit_that_fails_is_an_error_line() {
    let found = logged(async || {
        let instance = start(&subjects::memory().await).await;
        instance.store.fail_commit(0, Fail::OutOfReach);
        assert_eq!(instance.post_one(&record("a")).await.status, 200);
    });
    assert_eq!(found[AT_START..], lines(&[(Level::ERROR, "the commit of published records failed")]));
}

#[test]
fn what_the_caller_breaks_off_is_a_debug_line() {
    let found = logged(async || {
        let instance = start(&subjects::memory().await).await;
        let body = Body::new(Broken(Some(Form::Lines.body(&records("b", 3)))));
        let headers = [("x-api-key", KEY), ("content-type", "application/x-ndjson")];
        assert_eq!(instance.send(ORDERS, &headers, body).await.status, 400);
    });
    let right =
        [(Level::DEBUG, "the body broke off"), (Level::DEBUG, "the request ended early, its open window is dropped")];
    assert_eq!(found[AT_START..], lines(&right));
}

/// The caller goes away while its window is being reserved: released, unpublished, a debug line. A store that fails
/// meanwhile is an error line all the same.
#[test]
fn a_caller_that_goes_away_is_a_debug_line() {
    for (fail, right) in [
        (Fail::Slow(200), (Level::DEBUG, "the caller went away, its open window is dropped")),
        (Fail::OutOfReachAfter(200), (Level::ERROR, "the claim store failed to reserve a window")),
    ] {
        let found = logged(async || {
            let subject = subjects::memory().await;
            let instance = start(&subject).await;
            instance.store.fail_reserve(0, fail);
            let slow = instance.post_one("{\"id\":\"a\"}");
            // Dropped in the middle of it, as a lost connection drops it.
            let _ = tokio::time::timeout(Duration::from_millis(50), slow).await;
            tokio::time::sleep(Duration::from_millis(400)).await;
            assert_eq!(super::kit::published(&subject).await, [""; 0]);
            assert!(!instance.is_claimed("a").await, "its claim was given back");
        });
        let found: Vec<_> = found[AT_START..].iter().filter(|(_, text)| text != "gave claims back").cloned().collect();
        assert_eq!(found, lines(&[right]), "{fail:?}");
    }
}

/// A window that is being published is brought to its end.
#[test]
fn a_caller_that_goes_away_during_the_publish() {
    let found = logged(async || {
        let subject = subjects::memory().await;
        let instance = start(&subject).await;
        instance.scripts.fault(0, Fault::Slow(Duration::from_millis(200)));
        let slow = instance.post_one("{\"id\":\"a\"}");
        let _ = tokio::time::timeout(Duration::from_millis(50), slow).await;
        tokio::time::sleep(Duration::from_millis(900)).await;
        assert_eq!(super::kit::published(&subject).await, ["a"]);
        assert_eq!(instance.post_one("{\"id\":\"a\"}").await.outcomes(), "d");
    });
    assert_eq!(found[AT_START..], lines(&[(Level::DEBUG, "the store knows what is committed")]));
}

#[test]
fn a_publish_that_fails_is_a_warning() {
    let found = logged(async || {
        let instance = start(&subjects::memory().await).await;
        instance.scripts.fault(1, Fault::Refuse);
        assert_eq!(instance.post(Form::Array, &records("r", 3)).await.status, 503);
    });
    let right = [(Level::WARN, "a record was not published"), (Level::DEBUG, "gave claims back")];
    assert_eq!(found[AT_START..], lines(&right));
}
