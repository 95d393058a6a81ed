//! Real services, the real binary. Run by `tests/run`, which starts the services.
//!
//! Every scenario ends with the checker's judgement over input, output, claims and offsets, and prints its seed. The
//! short forms are the default; `SEMEL_TEST_FULL=1` asks for the long ones.

use std::time::Duration;

#[path = "../support/mod.rs"]
mod support;

mod anew;
mod away;
mod clash;
mod commands;
mod crash;
mod cuts;
mod dead_letters;
mod demo;
mod end_to_end;
mod from_kafka;
mod harness;
mod ingest;
mod into_file;
mod into_kafka;
mod load;
mod operator;
mod other_sources;
mod pipe;
mod policies;
mod queue_faults;
mod queue_policies;
mod rabbitmq;
mod rebalance;
mod settings;
mod sink;
mod source;
mod store;
mod tampered;
mod zombie;

const MINUTE: Duration = Duration::from_secs(60);

fn full() -> bool {
    std::env::var("SEMEL_TEST_FULL").is_ok_and(|value| value == "1")
}
