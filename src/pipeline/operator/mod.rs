//! What operators do by hand: look, release, recover. Beside the daemon, never instead of it.
//!
//! | file | does |
//! | --- | --- |
//! | [`claims`] | the store, for a program that asks a few questions and ends |
//! | [`standing`] | where each partition stands, and what a start would make of it |
//! | [`settled`] | how far lanes are settled, by the offsets of their group |
//! | [`why`] | who claimed an event, and what follows for its copies |
//! | [`release`] | frees the claims of an event, or a retired group's unsettled ones |
//! | [`recover`] | lets halted partitions go on |
//! | [`check`] | everything that a start depends on, fact by fact |
//!
//! Whatever changes something is planned first, as a value that can be shown, and carried out on demand. The group must
//! be without members then: its owner tokens are overwritten, and its offsets are written from outside, which the broker
//! allows only for a group that is empty.

use std::path::PathBuf;
use std::time::Duration;

use crate::kafka::groups::{GroupError, Groups};
use crate::kafka::native::{Member, NativeError};
use crate::source::kafka::SourceError;
use crate::store::StoreError;

pub mod check;
pub mod claims;
pub mod recover;
pub mod release;
pub mod settled;
pub mod standing;
pub mod why;

pub use claims::Claims;

/// For one question to the brokers.
pub const ASK: Duration = Duration::from_secs(10);

/// For a transaction that is pending on the offsets of a group without members: its coordinator ends it.
pub const SETTLE: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    #[error("there is no claim store in {}", folder.display())]
    NoStore { folder: PathBuf },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Group(#[from] GroupError),
    #[error("kafka does not tell the ids of the topics {topics}: one is missing, or may not be described")]
    Topics { topics: String, source: NativeError },
    #[error(
        "group {group} has members ({}): stop them first. one that crashed is thrown out after SEMEL_SESSION_TIMEOUT",
        listed(.members)
    )]
    HasMembers { group: String, members: Vec<Member> },
    #[error(
        "{topic}/{partition}: its offsets were not found as they were committed: somebody else writes them. stop every \
         member of the group and repeat this"
    )]
    Overwritten { topic: String, partition: i32 },
    #[error("no randomness for a token")]
    Random(#[from] getrandom::Error),
    #[error("the runtime does not start")]
    Runtime(#[from] std::io::Error),
}

fn listed(members: &[Member]) -> String {
    let shown = members.iter().map(|member| format!("{} at {}", member.client, member.host.trim_start_matches('/')));
    shown.collect::<Vec<_>>().join(", ")
}

/// Refuses a group that somebody is in.
pub fn refuse_members(groups: &Groups, group: &str) -> Result<(), OperatorError> {
    match groups.describe(group, ASK)?.members {
        members if members.is_empty() => Ok(()),
        members => Err(OperatorError::HasMembers { group: group.to_owned(), members }),
    }
}
