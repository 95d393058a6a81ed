//! The five calls of a transaction, and what each error asks for.
//!
//! librdkafka sorts errors into three kinds: retriable (the same call again), requiring an abort, and fatal. A call that
//! timed out is none of them: the broker may still carry it out. librdkafka lacks the client side of KIP-890, so a late
//! EndTxn could hit a later transaction of the same epoch. After any such call the producer is destroyed and a new one
//! initialises its id: the new epoch stops the straggler, and the offsets say which way it went.

use std::time::{Duration, Instant};

use rdkafka::TopicPartitionList;
use rdkafka::producer::{BaseProducer, Producer};
use rdkafka::types::RDKafkaErrorCode;
use rdkafka_sys as sys;

use super::client::Context;
use super::native::{Membership, NativeError};

/// Why a transaction did not go through.
#[derive(Debug, thiserror::Error)]
pub enum TransactionError {
    /// The transaction can and must be aborted; nothing of it will be visible.
    #[error("the transaction has to be aborted")]
    Abort(#[source] NativeError),
    /// It may have committed, or may still: make a new producer, then read the committed offsets.
    #[error("the outcome of the transaction is unknown")]
    Unknown(#[source] NativeError),
    /// Another producer took over the transactional id, or the coordinator ended a transaction that took too long.
    #[error("the producer was fenced")]
    Fenced(#[source] NativeError),
}

/// What the pipeline does about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    AbortAndReread,
    RebuildAndReread,
    RebuildOrLeave,
}

impl TransactionError {
    pub fn recovery(&self) -> Recovery {
        match self {
            TransactionError::Abort(_) => Recovery::AbortAndReread,
            TransactionError::Unknown(_) => Recovery::RebuildAndReread,
            TransactionError::Fenced(_) => Recovery::RebuildOrLeave,
        }
    }

    /// Of a record that was not delivered: nothing of the transaction is committed yet, so aborting is enough unless the
    /// producer itself is done for.
    pub fn of_produce(error: NativeError) -> TransactionError {
        match TransactionError::of(error) {
            TransactionError::Unknown(error) if !error.fatal => TransactionError::Abort(error),
            other => other,
        }
    }

    fn of(error: NativeError) -> TransactionError {
        use RDKafkaErrorCode::{Fenced, InvalidProducerEpoch, ProducerFenced};
        if matches!(error.code, Fenced | ProducerFenced | InvalidProducerEpoch) {
            TransactionError::Fenced(error)
        } else if error.requires_abort {
            TransactionError::Abort(error)
        } else {
            TransactionError::Unknown(error)
        }
    }
}

/// Repeats `call` while its error is retriable and no time-out, until `patience` is over.
fn repeat(patience: Duration, mut call: impl FnMut() -> *mut sys::rd_kafka_error_t) -> Result<(), TransactionError> {
    let until = Instant::now() + patience;
    loop {
        match NativeError::check(call()) {
            Ok(()) => return Ok(()),
            Err(error)
                if error.retriable && error.code != RDKafkaErrorCode::OperationTimedOut && Instant::now() < until =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => return Err(TransactionError::of(error)),
        }
    }
}

fn millis(time: Duration) -> i32 {
    time.as_millis().min(i32::MAX as u128) as i32
}

/// Registers the transactional id, fences its earlier holder and ends what that one left open. May take as long as the
/// coordinator needs for that.
pub fn initialise(producer: &BaseProducer<Context>, patience: Duration) -> Result<(), TransactionError> {
    let client = producer.client().native_ptr();
    let until = Instant::now() + patience;
    loop {
        // SAFETY: the client is alive; the error is owned by `check`.
        match NativeError::check(unsafe { sys::rd_kafka_init_transactions(client, 1_000) }) {
            Ok(()) => return Ok(()),
            // Initialising is resumable: a time-out only says that it is not done yet.
            Err(error)
                if (error.retriable || error.code == RDKafkaErrorCode::OperationTimedOut) && Instant::now() < until =>
            {
                producer.poll(Duration::from_millis(5));
            }
            Err(error) => return Err(TransactionError::of(error)),
        }
    }
}

pub fn begin(producer: &BaseProducer<Context>) -> Result<(), TransactionError> {
    let client = producer.client().native_ptr();
    // SAFETY: as in `initialise`.
    repeat(Duration::ZERO, || unsafe { sys::rd_kafka_begin_transaction(client) })
}

/// Adds a group's offsets to the open transaction. Two round trips.
pub fn send_offsets(
    producer: &BaseProducer<Context>,
    offsets: &TopicPartitionList,
    membership: &Membership,
    patience: Duration,
) -> Result<(), TransactionError> {
    let client = producer.client().native_ptr();
    // SAFETY: client, list and membership are alive for the call, which copies what it keeps.
    repeat(patience, || unsafe {
        sys::rd_kafka_send_offsets_to_transaction(client, offsets.ptr(), membership.as_ptr(), millis(patience))
    })
}

/// Commits. Everything that was produced has been delivered before this is called: librdkafka would otherwise wait for
/// reports that nobody reads.
pub fn commit(producer: &BaseProducer<Context>, patience: Duration) -> Result<(), TransactionError> {
    let client = producer.client().native_ptr();
    // SAFETY: as in `initialise`.
    repeat(patience, || unsafe { sys::rd_kafka_commit_transaction(client, millis(patience)) })
}

/// Aborts, after throwing away what was not delivered. `Ok`: nothing of the transaction is or will be visible.
pub fn abort(producer: &BaseProducer<Context>, patience: Duration) -> Result<(), TransactionError> {
    use rdkafka::producer::PurgeConfig;
    let client = producer.client().native_ptr();
    let until = Instant::now() + patience;
    // What is on its way is waited for: purging it too would leave its sequence numbers in doubt. What then comes back
    // to the queue, because a batch before it was refused, is purged in its turn; nobody else polls for it while the
    // client aborts.
    while producer.in_flight_count() > 0 && Instant::now() < until {
        producer.purge(PurgeConfig::default().queue());
        let pause = Instant::now() + Duration::from_millis(20);
        while producer.in_flight_count() > 0 && Instant::now() < pause {
            producer.poll(Duration::from_millis(1));
        }
    }
    // SAFETY: as in `initialise`.
    repeat(patience, || unsafe { sys::rd_kafka_abort_transaction(client, millis(patience)) })
}
