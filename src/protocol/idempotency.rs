//! What a message is called towards brokers and readers that drop second copies: its idempotency key.
//!
//! The same in every copy of an event, whoever sends it and when, and another one for every other event. So it is
//! a digest of the key that the claim is stored under, which has no lifetime, place or time in it.
//!
//! Parts are joined with their lengths before them: no two lists of parts give the same bytes, whatever is in them.

use sha2::{Digest, Sha256};

use super::event::{EventId, Scope};

/// Length of a key: 128 bits, in hexadecimal.
pub const KEY_DIGITS: usize = 32;

/// Of an event that a pipeline forwards for a scope.
pub fn of_event(scope: &Scope, event: &EventId) -> Box<str> {
    digest(&[scope.as_str().as_bytes(), event.as_str().as_bytes()])
}

/// Of a row that was taken in for a tenant.
pub fn of_row(tenant: &str, table: &str, id: &str) -> Box<str> {
    digest(&[tenant.as_bytes(), table.as_bytes(), id.as_bytes()])
}

fn digest(parts: &[&[u8]]) -> Box<str> {
    let mut digits = hex::encode(Sha256::digest(joined(parts)));
    digits.truncate(KEY_DIGITS);
    digits.into()
}

/// Each part behind its length (8 bytes, the highest first).
pub fn joined(parts: &[&[u8]]) -> Vec<u8> {
    let mut joined = Vec::with_capacity(parts.iter().map(|part| part.len() + 8).sum());
    for part in parts {
        joined.extend((part.len() as u64).to_be_bytes());
        joined.extend_from_slice(part);
    }
    joined
}
