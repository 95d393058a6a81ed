//! Picks event id and event time out of a message.
//!
//! Both are pure functions of the message and the recipe: the same message read again by anybody gives the same key.
//! [`Extraction`] puts the two together; [`recipe`] and [`time`] say what can be asked for.

use sha2::{Digest, Sha256};

use crate::protocol::event::{EventId, EventTime, Week};
use json::{Document, Pointers};

pub mod bounds;
pub mod canonical;
mod cloudevents;
pub mod grammar;
mod idtime;
pub mod json;
pub mod recipe;
#[cfg(test)]
mod testing;
pub mod time;

pub use bounds::{Bounds, OutOfBounds};
pub use grammar::BadRecipe;
pub use recipe::{KeyError, Recipe};
pub use time::{TimeError, TimeRecipe};

/// A message as extraction sees it, whatever source it came from. Borrowed, nothing is copied.
#[derive(Clone, Copy)]
pub struct View<'a> {
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    /// The record's own timestamp in milliseconds since the epoch, where the source has one.
    pub timestamp_millis: Option<i64>,
    pub headers: &'a dyn Headers,
}

/// Access to headers by name.
pub trait Headers {
    /// The value of the last header of this name. Outer None: no such header; inner None: its value is null.
    fn last(&self, name: &str) -> Option<Option<&[u8]>>;
}

/// For sources that have no headers.
pub struct NoHeaders;

impl Headers for NoHeaders {
    fn last(&self, _name: &str) -> Option<Option<&[u8]>> {
        None
    }
}

/// What an event is called by, within a scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    pub event_id: EventId,
    pub week: Week,
    /// None where events have no time by intent.
    pub time: Option<EventTime>,
}

/// Why a message has no key. Each has a policy of its own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unkeyed {
    #[error(transparent)]
    Id(#[from] KeyError),
    #[error(transparent)]
    Time(#[from] TimeError),
}

/// How event id and event time are picked out of a message, in at most one scan of its value.
#[derive(Debug, Clone)]
pub struct Extraction {
    recipe: Recipe,
    time: TimeRecipe,
    pointers: Pointers,
}

impl Extraction {
    pub fn new(recipe: Recipe, time: TimeRecipe) -> Extraction {
        let of_time = match &time {
            TimeRecipe::Json(pointer, _) => Some(pointer),
            _ => None,
        };
        let pointers = Pointers::of(recipe.pointers.iter().chain(of_time));
        Extraction { recipe, time, pointers }
    }

    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    pub fn time(&self) -> &TimeRecipe {
        &self.time
    }

    /// Cost: one scan of the value where a part lies in it, a hash of it for `digest`, a handful of small allocations.
    pub fn key(&self, view: &View<'_>) -> Result<Key, Unkeyed> {
        let document = Document::new(&self.pointers, view.value);
        let picked = self.recipe.pick(view, &document)?;
        let time = self.time.time(view, &picked.last, &document, self.recipe.pointers.len())?;
        Ok(Key { event_id: picked.id, week: TimeRecipe::week(time), time })
    }

    /// Sixteen hexadecimal digits that change with anything that changes the key of a message. Kept with each lane,
    /// because claims made in another way mean something else.
    pub fn digest(&self) -> String {
        const FORMAT: &str = "semel-extraction-1";
        let text = format!("{FORMAT}\n{}\n{}\n", self.recipe, self.time);
        hex::encode(&Sha256::digest(text)[..8])
    }
}

#[cfg(test)]
#[path = "extraction_tests.rs"]
mod tests;
