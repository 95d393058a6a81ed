//! Semel lets each event through once.
//!
//! Data flows one way: **source → key (id and time) → window → store (claim) → judge → sink → settle.**

pub mod api;
pub mod cli;
pub mod clock;
pub mod config;
pub mod kafka;
pub mod key;
pub mod metrics;
pub mod pipeline;
pub mod protocol;
pub mod shutdown;
pub mod sink;
pub mod source;
pub mod store;
pub mod telemetry;
