//! The lanes that a worker may extend, as its three threads see them.

use std::collections::BTreeMap;

use crate::kafka::TopicPartition;
use crate::protocol::lane::{LaneId, Position, StreamId, Token};
use crate::store::Guard;

#[derive(Debug, Clone)]
pub struct Held {
    pub stream: StreamId,
    pub lane: LaneId,
    pub token: Token,
    /// A claim under this token has an unknown outcome: before the next one the token is replaced.
    pub in_doubt: bool,
    /// Committed, as far as is known: read at the assignment, moved by every commit.
    pub committed: Position,
    /// A commit since then has an unknown outcome: the position may be behind.
    pub commit_in_doubt: bool,
}

impl Held {
    pub fn guard(&self) -> Guard {
        Guard { lane: self.lane, token: self.token }
    }
}

pub type Lanes = BTreeMap<TopicPartition, Held>;

/// A positive number that nobody else draws.
pub fn draw() -> Result<i64, getrandom::Error> {
    let random = getrandom::u64()?;
    Ok(((random >> 1) as i64).max(1))
}

pub fn draw_token() -> Result<Token, getrandom::Error> {
    draw().map(Token)
}

pub fn draw_lane() -> Result<LaneId, getrandom::Error> {
    draw().map(LaneId)
}
