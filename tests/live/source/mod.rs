//! One suite of promises for every source whose deliveries are settled one by one.
//!
//! `suite!(name, make)` runs the whole suite for one implementation; `make` is an async function that answers a place of
//! its own with nothing in it. A source joins by that one line.

use std::future::Future;
use std::time::Duration;

use async_trait::async_trait;
use semel::message::Message;
use semel::source::Source;

mod kit;
mod nats;
mod rabbitmq;
mod subjects;
mod suite;

/// A queue or stream of a test's own.
#[async_trait]
pub trait Place: Send + Sync {
    /// Another source on it, of another instance. Not more than `prefetch` may be out.
    fn open(&self, prefetch: usize) -> Box<dyn Source>;

    /// Sends these from elsewhere, and waits until they are stored.
    async fn send(&self, messages: &[Message]);

    /// Loses every connection of the sources.
    fn cut(&self);

    /// Lets no source connect, or lets them again.
    fn refuse(&self, refuses: bool);

    /// What is sent, and what it must come as.
    fn samples(&self) -> Vec<(Message, Message)>;

    /// How long what a source had out that is gone may take to come again.
    fn patience(&self) -> Duration;
}

/// Runs one test in a place of its own.
fn run<M: AsyncFnOnce() -> Box<dyn Place>>(make: M, test: impl AsyncFnOnce(Box<dyn Place>)) {
    block_on(async { test(make().await).await });
}

fn block_on(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime starts").block_on(test);
}

macro_rules! suite {
    ($source:ident, $make:expr) => {
        suite!($source, $make;
            comes_as_it_was_sent, comes_again_unless_acknowledged, comes_again_when_handed_back, old_tags_do_nothing,
            bounded, pauses, a_dropped_call_loses_nothing, out_of_reach, connections_are_cut;
        );
    };
    ($source:ident, $make:expr; $($test:ident),*;) => {
        mod $source {
            $(#[test]
            fn $test() {
                crate::source::run($make, crate::source::suite::$test);
            })*
        }
    };
}

mod conformance {
    suite!(memory, crate::source::subjects::memory);
    suite!(rabbitmq_classic, crate::source::subjects::rabbitmq_classic);
    suite!(rabbitmq_quorum, crate::source::subjects::rabbitmq_quorum);
    suite!(nats, crate::source::subjects::nats);
}
