//! Real services, the real binary. Run by `tests/run`, which starts the services.

#[path = "../support/mod.rs"]
mod support;

mod harness;
mod store;
