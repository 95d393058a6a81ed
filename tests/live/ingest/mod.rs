//! HTTP ingest: its windows, and its failures row by row, over every store and sink.
//!
//! What a caller sees, what was published, and what the store was asked are compared with what is promised. Failures are
//! written down beforehand, in a store and a sink around the real ones.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use semel::pipeline::leased::wiring::IntoKafka;
use semel::sink::Sink;
use semel::store::slots::SlotStore;

mod access;
mod binary;
mod bodies;
mod failures;
mod fuzzed;
mod into_kafka;
mod kit;
mod logs;
mod retention;
mod schemas;
mod scripted;
mod subjects;
mod watched;
mod windows;

/// Where ingest is tested: a store and a sink that deduplicates, both empty.
pub struct Subject {
    /// In Kafka a slot's name is the cluster's: each test has its own.
    pub pipeline: String,
    pub store: Arc<dyn SlotStore>,
    /// One connection.
    pub sink: Box<dyn Fn() -> Box<dyn Sink>>,
    /// In its place, where windows are transactions.
    pub kafka: Option<IntoKafka>,
    /// Values in the order in which they were published.
    pub published: Box<dyn Fn() -> kit::Later<Vec<Vec<u8>>>>,
    pub lease: Duration,
    /// Waits until every lease that runs now has lapsed.
    pub lapse: Box<dyn Fn() -> kit::Later<()>>,
    pub keep: Box<dyn std::any::Any>,
}

fn run<T: Future<Output = ()>>(test: T) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime starts").block_on(test);
}

macro_rules! suite {
    ($subject:ident) => {
        suite!($subject;
            windows: sizes, order_of_results, repeats, without_ids, without_dedupe, one_object, many_at_once,
                two_tenants, slow_streams;
            failures: refused, in_doubt, fails_otherwise, not_sent, restarts, answered_after_k, stored_but_reported_failed, store_unavailable,
                reserve_fails_otherwise, reserve_of_unknown_outcome, release_fails, commit_fails, in_flight, taken_over,
                a_panic, a_slow_reserve, overtaken, unclaimed_records_fail;
            retention: expires, many;
        );
    };
    ($subject:ident; $($part:ident: $($test:ident),*;)*) => {
        mod $subject {
            $(mod $part {
                $(#[test]
                fn $test() {
                    crate::ingest::run(async {
                        crate::ingest::$part::$test(crate::ingest::subjects::$subject().await).await;
                    });
                })*
            })*
        }
    };
}

suite!(memory);
suite!(embedded);
suite!(postgres);
suite!(embedded_nats);
suite!(postgres_nats);

// Into Kafka the rows that a scripted sink makes are in `into_kafka`, which has a real broker make them.
macro_rules! suite_in_kafka {
    ($subject:ident) => {
        suite!($subject;
            windows: sizes, order_of_results, repeats, without_ids, without_dedupe, one_object, many_at_once,
                two_tenants, slow_streams;
            failures: store_unavailable, reserve_fails_otherwise, reserve_of_unknown_outcome, commit_fails, in_flight,
                taken_over, a_slow_reserve, overtaken;
            retention: expires;
            into_kafka: keys_and_headers, aborted, out_of_reach, answers_are_lost, fenced, restarts, undeduped_in_doubt;
        );
    };
}

suite_in_kafka!(embedded_kafka);
suite_in_kafka!(postgres_kafka);
