//! The pure core: it decides, everything else acts.
//!
//! Nothing here reads a clock, draws a random number, opens a connection or knows a client library. Every function
//! is a decision over values that somebody else read, and returns what that somebody is to do next. That is why the
//! model check in `tests/protocol` can drive the very code that the daemon runs.
//!
//! The idea in four sentences. A claim is a durable row that is written once and never updated; it names the *lane*
//! and the *position* on it where it was made. A lane is an ordered stream of claims that one writer at a time may
//! extend; for Kafka it belongs to one partition of one group and its positions are offsets. Each lane has a
//! *settled* position below which everything is done. Who owns a claim, and whether it is done, follows from those
//! two, so that committing a whole window costs one number.
//!
//! | module | decides |
//! | --- | --- |
//! | [`event`] | what an event is called: scope, stored event id, week |
//! | [`idempotency`] | what its message is called towards brokers |
//! | [`lane`] | who may extend a lane, and what the settled offset's metadata says |
//! | [`verdict`] | what to do with a message whose id was claimed by a given position |
//! | [`window`] | which messages of a window ask for a claim, and the verdict of each |
//! | [`settled`] | from Kafka into sinks without transactions: how far a window goes, and where a start cuts |
//! | [`instance`] | the same with a sink without transactions: a window's next step, and what each answer means for it |
//! | [`slot`] | for sources without offsets: whether a claim in the way is done, and where a taken lane is cut |
//! | [`ingest`] | how a failure of an ingest window settles, and what it is answered with |
//! | [`start`] | where to read on after an assignment, and whether that is a discontinuity |
//! | [`recovery`] | where a halted partition goes on, by the operator's word |
//! | [`backoff`] | how long to wait before the next try |

pub mod backoff;
pub mod event;
pub mod idempotency;
pub mod ingest;
pub mod instance;
pub mod lane;
pub mod recovery;
pub mod settled;
pub mod slot;
pub mod start;
pub mod verdict;
pub mod window;
