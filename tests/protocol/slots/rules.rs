//! The rules of protocol.md, "Lanes of an instance", one to drop at a time.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// A reserve of unknown outcome is followed by a new lane, not by another reserve on the same one.
    UnknownReserveCuts,
    /// A release after a definite failure deletes exactly its window's positions.
    ReleaseBounded,
    /// A release of unknown outcome is repeated until it is answered.
    ReleaseRepeated,
    /// A message is acknowledged only after the known commit of its window.
    AckAfterKnownCommit,
    /// A claim that was gone when its holder was read is reserved again.
    GoneIsAskedAgain,
    /// A claim that is in flight is not acknowledged.
    InFlightNotAcknowledged,
    /// An idle run tells the store what it has committed.
    IdleFlush,
    /// A start of the same name waits until the lease of the run before has lapsed.
    StartWaits,
    /// Only a lapsed lease lets another take a slot.
    StealOnlyLapsed,
    /// A takeover initialises the slot's producer.
    ProducerInitialised,
    /// After that, the slot's row is read again: still my token.
    RowReadAgain,
    /// The Kafka step comes before the store's.
    KafkaStepFirst,
    /// The store's step is guarded by owner and open lane.
    OpenGuarded,
    /// Where Kafka names a lane that the store never opened, its recorded cut is used.
    RecordedCutUsed,
}
