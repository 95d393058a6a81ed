//! One suite of promises for every sink, and what only one of them has to show.
//!
//! `suite!(name, make)` runs the whole suite for one implementation; `make` is an async function that answers a
//! [`Subject`] with nothing in it, whose destination [`Destination::Forward`] has room for so many messages. What a
//! broker has stored is read by other means than the sink's: see `rabbitmq.rs` and `nats.rs`.

use std::collections::BTreeMap;

use async_trait::async_trait;
use semel::sink::{Destination, Sink};

mod broken;
mod files;
mod kit;
pub mod nats;
mod only_nats;
mod only_rabbitmq;
pub mod rabbitmq;
mod subjects;
mod suite;
mod tls;

/// A sink under test, and its broker.
pub struct Subject {
    pub sink: Box<dyn Sink>,
    pub broker: Box<dyn Broker>,
}

/// What the tests ask and tell a broker beside the sink.
#[async_trait]
pub trait Broker: Send + Sync {
    /// Everything that is stored there, in its order; it is gone then, and there is room again.
    async fn take(&self, destination: Destination) -> Vec<Stored>;

    /// Ends a destination, with what it holds.
    async fn remove(&self, destination: Destination);

    /// Makes it anew.
    async fn make(&self, destination: Destination);

    /// Another sink on it, that was told of no place for duplicates. None where each has all.
    fn without_duplicates(&self) -> Option<Box<dyn Sink>>;

    /// Whether it keeps milliseconds of a message's time, or seconds.
    fn keeps_millis(&self) -> bool;
}

/// A message as a broker has it, with the documented encodings undone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stored {
    pub id: Option<String>,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    /// In their order for each name.
    pub headers: BTreeMap<String, Vec<Option<Vec<u8>>>>,
    pub timestamp_millis: Option<i64>,
}

/// Runs one test.
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime starts").block_on(test);
}

macro_rules! suite {
    ($sink:ident) => {
        suite!($sink; as_it_was, in_order_to_each_destination, five_thousand, full, missing, unroutable,
            not_configured, nothing);
    };
    ($sink:ident; $($test:ident),*) => {
        mod $sink {
            $(#[test]
            fn $test() {
                crate::sink::run(crate::sink::suite::$test(crate::sink::subjects::$sink));
            })*
        }
    };
}

mod conformance {
    suite!(memory);
    suite!(classic);
    suite!(quorum);
    suite!(nats);
    // A disk is full of bytes, not of messages (see `into_file.rs`), nothing is routed there, and a file has one writer.
    suite!(file; as_it_was, in_order_to_each_destination, five_thousand, missing, nothing);
}
