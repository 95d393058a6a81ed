//! How an event id is picked out of a message.
//!
//! A recipe is a list of alternatives, tried in order; each is one part or a composite of several:
//!
//! ```text
//! header:ce_id | header:tenant + json:/id
//! ```
//!
//! | part | is |
//! | --- | --- |
//! | `header:NAME` | the value of the last header of that name |
//! | `key` | the message's key |
//! | `json:/pointer` | a string (decoded) or a number (its exact text) in the value; `1` and `"1"` are one id |
//! | `cloudevents` | source and id of a CloudEvent: headers `ce_source` and `ce_id`, or a JSON body of its own type |
//! | `digest` | SHA-256 of the value, in hexadecimal |
//!
//! A part that is absent, null or blank makes its alternative missing, and the next is tried. A value that should be
//! JSON and is not, or a place that holds neither string nor number, is a defect of the message: nothing else is tried,
//! because the next alternative may well be shared by different events, and a shared id loses all but one of them. For
//! the same reason a message with no alternative left has no id, never a common one.
//!
//! Composites are joined injectively ([`EventId::join`]). In a recipe that has a composite, single parts are escaped
//! the same way, so that ids of different alternatives do not meet by accident.

use std::borrow::Cow;
use std::fmt;

use sha2::{Digest, Sha256};

use super::grammar::{BadRecipe, Piece, escaped};
use super::json::{Document, Fault, Found, Pointer, Pointers};
use super::{View, cloudevents};
use crate::protocol::event::EventId;

/// Most parts in one recipe.
pub const PARTS_MAX: usize = 16;

/// How an event id is picked out of a message.
#[derive(Debug, Clone)]
pub struct Recipe {
    alternatives: Vec<Vec<Part>>,
    pub(super) pointers: Vec<Pointer>,
    /// Of this recipe's own pointers, for callers that want no more than the id.
    scanned: Pointers,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Header(String),
    Key,
    /// Number of its pointer.
    Json(usize),
    /// Numbers of the pointers to source and id.
    CloudEvents(usize, usize),
    Digest,
}

/// Why a message has no event id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("the message has no event id")]
    Missing,
    #[error("the value is not JSON: {0}")]
    NotJson(Fault),
    #[error("the place of the event id holds {found}")]
    NotAnId { found: &'static str },
}

/// An id, and the last of its parts (the one that may carry a time).
pub(super) struct Picked<'a> {
    pub id: EventId,
    pub last: Cow<'a, [u8]>,
}

impl Recipe {
    pub fn parse(text: &str) -> Result<Recipe, BadRecipe> {
        let whole = Piece::whole(text);
        let mut recipe = Recipe { alternatives: Vec::new(), pointers: Vec::new(), scanned: Pointers::default() };
        for alternative in whole.split('|') {
            let parts = alternative.split('+').into_iter().map(|piece| recipe.part(piece)).collect::<Result<_, _>>()?;
            recipe.alternatives.push(parts);
        }
        if recipe.alternatives.iter().map(Vec::len).sum::<usize>() > PARTS_MAX {
            return Err(whole.bad(format!("a recipe has at most {PARTS_MAX} parts")));
        }
        recipe.scanned = Pointers::of(&recipe.pointers);
        Ok(recipe)
    }

    fn part(&mut self, piece: Piece<'_>) -> Result<Part, BadRecipe> {
        Ok(match piece.named() {
            ("header", Some(name)) if !name.text.is_empty() => Part::Header(name.unescaped()?),
            ("header", _) => return Err(piece.bad("`header` names a header: `header:NAME`")),
            ("json", Some(pointer)) => {
                Part::Json(self.pointer(Pointer::parse(&pointer.unescaped()?).map_err(|e| pointer.bad(e.to_string()))?))
            }
            ("json", None) => return Err(piece.bad("`json` names a place: `json:/pointer`")),
            ("key", None) => Part::Key,
            ("digest", None) => Part::Digest,
            ("cloudevents", None) => {
                let [source, id] = cloudevents::pointers();
                Part::CloudEvents(self.pointer(source), self.pointer(id))
            }
            ("", None) => return Err(piece.bad("a part is missing here")),
            _ => {
                let known = "header:NAME, key, json:/pointer, cloudevents, digest";
                return Err(piece.bad(format!("`{}` is none of {known}", piece.text)));
            }
        })
    }

    fn pointer(&mut self, pointer: Pointer) -> usize {
        self.pointers.iter().position(|known| *known == pointer).unwrap_or_else(|| {
            self.pointers.push(pointer);
            self.pointers.len() - 1
        })
    }

    /// The message's event id, in the form in which it is stored. At most one scan of the value.
    pub fn event_id(&self, view: &View<'_>) -> Result<EventId, KeyError> {
        let document = Document::new(&self.scanned, view.value);
        self.pick(view, &document).map(|picked| picked.id)
    }

    /// The same over a document whose first pointers are this recipe's.
    pub(super) fn pick<'a>(&'a self, view: &View<'a>, document: &Document<'a>) -> Result<Picked<'a>, KeyError> {
        for alternative in &self.alternatives {
            if let Some(mut parts) = collect(alternative, view, document)? {
                let texts: Vec<&[u8]> = parts.iter().map(Cow::as_ref).collect();
                let id = self.id_of(&texts)?;
                let last = parts.pop().unwrap_or_default();
                return Ok(Picked { id, last });
            }
        }
        Err(KeyError::Missing)
    }

    /// The stored form of an id given by its parts, as an operator types it.
    pub fn id_of(&self, parts: &[&[u8]]) -> Result<EventId, KeyError> {
        let encoded = match parts {
            [only] if !self.has_composite() => EventId::encode(only),
            [only] => {
                let mut part = Vec::with_capacity(only.len());
                EventId::escape_part(only, &mut part);
                EventId::encode(&part)
            }
            several => EventId::encode(&EventId::join(several)),
        };
        encoded.map_err(|_| KeyError::Missing)
    }

    /// Every alternative's last part is a digest.
    pub fn ends_in_digest(&self) -> bool {
        self.alternatives.iter().all(|parts| parts.last() == Some(&Part::Digest))
    }

    fn has_composite(&self) -> bool {
        self.alternatives.iter().any(|parts| parts.len() > 1 || matches!(parts[..], [Part::CloudEvents(..)]))
    }
}

/// The parts of one alternative, or none where it is missing.
fn collect<'a>(
    alternative: &'a [Part],
    view: &View<'a>,
    document: &Document<'a>,
) -> Result<Option<Vec<Cow<'a, [u8]>>>, KeyError> {
    let mut parts = Vec::with_capacity(alternative.len() + 1);
    for part in alternative {
        match part {
            Part::Header(name) => parts.push(view.headers.last(name).flatten().map(Cow::Borrowed)),
            Part::Key => parts.push(view.key.map(Cow::Borrowed)),
            Part::Json(n) => parts.push(json(document, *n)?),
            Part::Digest => parts.push(view.value.filter(|value| !value.is_empty()).map(digest)),
            Part::CloudEvents(source, id) if cloudevents::is_structured(view) => {
                parts.extend([json(document, *source)?, json(document, *id)?]);
            }
            Part::CloudEvents(..) => parts.extend(cloudevents::from_headers(view)),
        }
        if parts.iter().any(|part| part.as_deref().is_none_or(is_blank)) {
            return Ok(None);
        }
    }
    Ok(parts.into_iter().collect())
}

fn json<'a>(document: &Document<'a>, n: usize) -> Result<Option<Cow<'a, [u8]>>, KeyError> {
    let not = |found| Err(KeyError::NotAnId { found });
    match document.get(n).map_err(KeyError::NotJson)? {
        None | Some(Found::Null) => Ok(None),
        Some(Found::Text(Cow::Borrowed(text))) => Ok(Some(Cow::Borrowed(text.as_bytes()))),
        Some(Found::Text(Cow::Owned(text))) => Ok(Some(Cow::Owned(text.into_bytes()))),
        Some(Found::Number(text)) => Ok(Some(Cow::Borrowed(text.as_bytes()))),
        Some(Found::Boolean) => not("true or false"),
        Some(Found::Array) => not("an array"),
        Some(Found::Object) => not("an object"),
    }
}

fn digest(value: &[u8]) -> Cow<'static, [u8]> {
    Cow::Owned(hex::encode(Sha256::digest(value)).into_bytes())
}

fn is_blank(part: &[u8]) -> bool {
    part.iter().all(u8::is_ascii_whitespace)
        || std::str::from_utf8(part).is_ok_and(|text| text.chars().all(char::is_whitespace))
}

/// The recipe in its shortest spelling, which parses to the same recipe.
impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, alternative) in self.alternatives.iter().enumerate() {
            f.write_str(if n > 0 { "|" } else { "" })?;
            for (n, part) in alternative.iter().enumerate() {
                f.write_str(if n > 0 { "+" } else { "" })?;
                match part {
                    Part::Header(name) => write!(f, "header:{}", escaped(name))?,
                    Part::Key => f.write_str("key")?,
                    Part::Json(n) => write!(f, "json:{}", escaped(&self.pointers[*n].to_string()))?,
                    Part::CloudEvents(..) => f.write_str("cloudevents")?,
                    Part::Digest => f.write_str("digest")?,
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "recipe_tests.rs"]
mod tests;
