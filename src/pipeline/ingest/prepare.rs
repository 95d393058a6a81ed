//! From a record as it was handed over to what is published, and the key that it is published under. Pure.

use crate::key::canonical::{self, Uncanonical};
use crate::key::{Headers, Unkeyed, View};
use crate::message::{Header, Message};
use crate::protocol::event::EventId;
use crate::protocol::idempotency;
use crate::sink::{Destination, Outgoing};

use super::{Misfit, Options, Target};

/// Headers of what is published.
pub const TENANT: &str = "semel-tenant";
pub const TABLE: &str = "semel-table";
pub const EVENT_ID: &str = "semel-event-id";

/// What became of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    Published,
    Duplicate,
    Rejected(Reason),
}

/// Why a record can never be published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Reason {
    #[error("it is not JSON")]
    NotJson,
    #[error("it is not an object")]
    NotAnObject,
    #[error("it is nested too deep")]
    Deep,
    #[error("a name is repeated in an object")]
    RepeatedName,
    #[error("a number does not fit a double: send it as a string")]
    Inexact,
    #[error("it is too large")]
    Large,
    #[error("the place of its id holds neither text nor a number")]
    BadId,
    #[error("the sink cannot carry it")]
    Unfit,
    #[error("it does not fit its table's schema")]
    Schema,
}

impl Reason {
    pub const ALL: [Reason; 9] = [
        Reason::NotJson,
        Reason::NotAnObject,
        Reason::Deep,
        Reason::RepeatedName,
        Reason::Inexact,
        Reason::Large,
        Reason::BadId,
        Reason::Unfit,
        Reason::Schema,
    ];
}

impl From<Uncanonical> for Reason {
    fn from(error: Uncanonical) -> Reason {
        match error {
            Uncanonical::NotJson => Reason::NotJson,
            Uncanonical::Deep => Reason::Deep,
            Uncanonical::Repeated => Reason::RepeatedName,
            Uncanonical::Inexact => Reason::Inexact,
        }
    }
}

/// A record that is never published.
#[derive(Debug)]
pub struct Rejected {
    pub reason: Reason,
    pub misfit: Option<Misfit>,
}

impl From<Reason> for Rejected {
    fn from(reason: Reason) -> Rejected {
        Rejected { reason, misfit: None }
    }
}

/// A record that is ready for a window.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// None: it has no id, or its table is not deduplicated.
    pub(super) key: Option<EventId>,
    pub(super) outgoing: Outgoing,
}

impl Prepared {
    /// In bytes, about what it takes in memory.
    pub fn size(&self) -> usize {
        self.outgoing.message.size()
    }
}

/// `headers`: of the request, where it carries this one record alone.
///
/// Cost: one scan for the canonical form, one for an id that lies in the record, one hash; with a schema the record is
/// read once more, as a whole.
pub fn prepare(options: &Options, target: &Target, text: &[u8], headers: &dyn Headers) -> Result<Prepared, Rejected> {
    if text.len() > options.record_bytes_max {
        return Err(Reason::Large.into());
    }
    let form = canonical::canonical(text).map_err(Reason::from)?;
    if form.first() != Some(&b'{') {
        return Err(Reason::NotAnObject.into());
    }
    if form.len() > options.record_bytes_max {
        return Err(Reason::Large.into());
    }
    if let Some(misfit) = options.schemas.get(&target.tenant, &target.table).and_then(|schema| schema.misfit(&form)) {
        return Err(Rejected { reason: Reason::Schema, misfit: Some(misfit) });
    }
    let view = View { key: None, value: Some(&form), timestamp_millis: None, headers };
    let id = match options.extraction.key(&view) {
        Ok(key) => Some(key.event_id),
        Err(Unkeyed::Id(crate::key::KeyError::Missing)) => None,
        Err(_) => return Err(Reason::BadId.into()),
    };
    let text = |text: &str| text.as_bytes().to_vec();
    let mut headers = vec![Header::new(TENANT, text(&target.tenant)), Header::new(TABLE, text(&target.table))];
    headers.extend(id.as_ref().map(|id| Header::new(EVENT_ID, text(id.as_str()))));
    let message = Message { value: Some(form.into()), headers, ..Message::default() };
    let key = id.filter(|_| target.dedupes);
    // Without dedupe a repeat is to come through, past a broker that deduplicates too.
    let idempotency_key = key.as_ref().map(|id| idempotency::of_row(&target.tenant, &target.table, id.as_str()));
    Ok(Prepared { key, outgoing: Outgoing { destination: Destination::Forward, message, idempotency_key } })
}
