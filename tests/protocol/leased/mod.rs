//! The leased pipeline itself, as it runs, in simulated worlds that follow from a seed: the memory store, a queue and a
//! sink whose every call may fail in every way that their traits allow, several instances in one scope, processes that
//! are killed at any await and started again, and such as stand still for longer than their lease.
//!
//! What must be true of each world, at any time and at its end, is in [`world`]: nothing is acknowledged that is not in
//! the sink; each event is there at least once, and twice only where a publish was in doubt, a process was killed
//! between publish and settle, or a holder outlived its lease; a claim in doubt is nobody's before its lease is over; in
//! the end everything is acknowledged.
//!
//! `SEMEL_TEST_SEED` runs one world and tells what happens in it; `SEMEL_TEST_FULL=1` runs many more.
//!
//! | module | holds |
//! | --- | --- |
//! | [`world`] | the setup, what is known of the world, what must be true |
//! | [`machine`] | time, chance, and who goes on next |
//! | [`store`], [`queue`], [`sink`] | what the instances talk to |
//! | [`broken`] | what the simulation must notice |
//! | [`holds`] | the tests |

mod broken;
mod holds;
mod machine;
mod queue;
mod sink;
mod store;
mod world;
