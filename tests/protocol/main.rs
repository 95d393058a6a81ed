//! What needs no service: the pure core by properties and tables, the whole protocol by a search of small worlds, and
//! the checker of the live tests.

mod backoff;
#[path = "../support/checker/mod.rs"]
#[allow(dead_code, reason = "the live tests use the rest")]
mod checker;
mod command_line;
mod crossing;
mod dropped;
mod event;
#[path = "../support/generator.rs"]
#[allow(dead_code, reason = "the live tests use the rest")]
mod generator;
mod holds;
mod idempotency;
mod instance;
mod lane;
mod leased;
mod model;
mod plain_sink;
#[path = "../support/random.rs"]
#[allow(dead_code, reason = "the live tests use the rest")]
mod random;
mod searching;
mod seeded_faults;
mod shared_scope;
mod slot;
mod slots;
mod start;
mod window;
