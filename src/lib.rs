//! Semel lets each event through once.
//!
//! Data flows one way: **source → key (id and time) → window → store (claim) → judge → sink → settle.**
//!
//! ```text
//! main ─▶ cli ─▶ pipeline, api ─▶ source | store | sink ─▶ key, config, kafka ─▶ protocol
//! ```
//!
//! | room | what is in it |
//! | --- | --- |
//! | [`protocol`] | the pure core: it decides. No client, no clock, no randomness; the model check drives it |
//! | [`key`] | picks event id and event time out of a message |
//! | [`message`] | a message as sources without offsets and sinks without transactions pass it on |
//! | [`source`], [`sink`] | where messages come from and go; neither knows of the other, nor of stores |
//! | [`store`] | the claims: a trait with its promises, over PostgreSQL, in a folder, in memory |
//! | [`pipeline`] | the only place that sees source, store and sink together |
//! | [`kafka`] | what both sides of a Kafka pipeline share, and the only unsafe code |
//! | [`config`] | every setting: name, unit, default, what it goes with |
//! | [`cli`], [`api`] | a file per subcommand; what is served over HTTP |
//! | [`clock`], [`shutdown`], [`metrics`], [`telemetry`] | one of each for the process |
//!
//! **A message's way.** The reader polls it under a membership that was captured before, and puts it into a window. The
//! claimer finds its id and week, asks the store for the claims of the whole window in one commit, and judges: inserted,
//! or held by this very position, goes on; held by anybody else is a duplicate. The publisher sends what goes on in one
//! Kafka transaction with two offsets, the group's own and the settled one. Only then is the message done.
//!
//! **Where messages have no offsets** one task does one window after the other: it reserves the window's claims on a lane
//! of its own run, publishes (to each confirm, or into Kafka in one transaction), and acknowledges
//! ([`pipeline::leased`]).
//!
//! **Where the sink has no transactions** Kafka's partitions keep their lanes, and the store is told how far each is settled:
//! a window is published to each confirm, settled, and then the group's offset follows ([`pipeline::settled`]).
//!
//! **What always holds.** One position owns each event, and only it publishes. From Kafka to Kafka output, group offset
//! and settled position move in one transaction. Who no longer owns a partition can neither claim nor release nor commit. Nothing is
//! forwarded unclaimed unless a policy says so and a header shows it. What cannot be claimed is not lost but a dead
//! letter that says where it came from and why.

pub mod api;
pub mod cli;
pub mod clock;
pub mod config;
pub mod kafka;
pub mod key;
pub mod message;
pub mod metrics;
pub mod pipeline;
pub mod protocol;
pub mod shutdown;
pub mod sink;
pub mod source;
pub mod store;
pub mod telemetry;
