//! Headers that carry what a protocol has no place for. Where a message has a header of that name already, it stays:
//! it is what an earlier hop could not place either.

/// The message's key.
pub const KEY: &str = "semel-key";
/// `1`: the body is empty because the value is null (a tombstone).
pub const NULL: &str = "semel-null";
/// Milliseconds since the epoch, where the protocol keeps no time of the producer's.
pub const TIMESTAMP: &str = "semel-timestamp-millis";
/// The message's own id, where the idempotency key stands in its place.
pub const MESSAGE_ID: &str = "semel-message-id";
/// The user who published it first; RabbitMQ refuses any other than the connection's own.
pub const USER_ID: &str = "semel-user-id";
/// Stands before the name of a header that would tell this broker what to do.
pub const DISARMED: &str = "semel-";
/// In NATS, a header that cannot go as it is.
pub const ENCODED: &str = "semel-header";
