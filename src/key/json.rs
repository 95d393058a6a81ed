//! Finds a few values in a JSON text in one pass, without building a tree.
//!
//! What is not on the way to a wanted value is skipped: checked for JSON's grammar, neither stored nor decoded. Only the
//! way itself recurses, so the stack is bounded by [`POINTER_TOKENS_MAX`] whatever the text nests. A member that occurs
//! twice counts by its last occurrence, as in most readers.
//!
//! Cost: one scan of the text whatever the number of pointers, one small allocation.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Longest JSON Pointer, in steps.
pub const POINTER_TOKENS_MAX: usize = 64;

/// A JSON Pointer (RFC 6901), decoded.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pointer(Vec<String>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadPointer {
    #[error("a JSON Pointer is empty or begins with /")]
    NoSlash,
    #[error("in a JSON Pointer ~ is followed by 0 or 1")]
    Tilde,
    #[error("a JSON Pointer has at most {POINTER_TOKENS_MAX} steps")]
    Long,
}

impl Pointer {
    /// The empty text names the whole document.
    pub fn parse(text: &str) -> Result<Pointer, BadPointer> {
        if text.is_empty() {
            return Ok(Pointer(Vec::new()));
        }
        let steps = text.strip_prefix('/').ok_or(BadPointer::NoSlash)?;
        let tokens: Vec<String> = steps.split('/').map(decode_step).collect::<Result<_, _>>()?;
        if tokens.len() > POINTER_TOKENS_MAX { Err(BadPointer::Long) } else { Ok(Pointer(tokens)) }
    }
}

fn decode_step(step: &str) -> Result<String, BadPointer> {
    let mut decoded = String::with_capacity(step.len());
    let mut chars = step.chars();
    while let Some(char) = chars.next() {
        decoded.push(match char {
            '~' => match chars.next() {
                Some('0') => '~',
                Some('1') => '/',
                _ => return Err(BadPointer::Tilde),
            },
            other => other,
        });
    }
    Ok(decoded)
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|step| write!(f, "/{}", step.replace('~', "~0").replace('/', "~1")))
    }
}

/// Several pointers as one tree, to be looked for together.
#[derive(Debug, Clone, Default)]
pub struct Pointers {
    root: Node,
    count: usize,
}

#[derive(Debug, Clone, Default)]
struct Node {
    /// Which results the value here is wanted for.
    wanted: Vec<usize>,
    children: Vec<(Step, Node)>,
}

#[derive(Debug, Clone)]
struct Step {
    name: String,
    /// The same step into an array: digits without a leading zero.
    index: Option<usize>,
}

impl Pointers {
    /// Results come in the order of the pointers.
    pub fn of<'a>(pointers: impl IntoIterator<Item = &'a Pointer>) -> Pointers {
        let mut all = Pointers::default();
        for pointer in pointers {
            let node = pointer.0.iter().fold(&mut all.root, |node, name| node.child(name));
            node.wanted.push(all.count);
            all.count += 1;
        }
        all
    }
}

impl Node {
    fn child(&mut self, name: &str) -> &mut Node {
        let at = self.children.iter().position(|(step, _)| step.name == name).unwrap_or_else(|| {
            let index = name.parse().ok().filter(|index: &usize| index.to_string() == name);
            self.children.push((Step { name: name.into(), index }, Node::default()));
            self.children.len() - 1
        });
        &mut self.children[at].1
    }

    fn forget(&self, found: &mut [Option<&str>]) {
        self.wanted.iter().for_each(|&n| found[n] = None);
        self.children.iter().for_each(|(_, child)| child.forget(found));
    }
}

/// Where a text stops being JSON. Says nothing of what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    pub line: usize,
    pub column: usize,
    pub ends_early: bool,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.ends_early { "it ends early at" } else { "at" };
        write!(f, "{what} line {}, column {}", self.line, self.column)
    }
}

impl From<serde_json::Error> for Fault {
    fn from(error: serde_json::Error) -> Fault {
        Fault { line: error.line(), column: error.column(), ends_early: error.is_eof() }
    }
}

/// A text that is scanned when the first of its values is asked for.
pub struct Document<'a> {
    pointers: &'a Pointers,
    text: Option<&'a [u8]>,
    found: OnceCell<Result<Vec<Option<&'a str>>, Fault>>,
}

impl<'a> Document<'a> {
    pub fn new(pointers: &'a Pointers, text: Option<&'a [u8]>) -> Document<'a> {
        Document { pointers, text, found: OnceCell::new() }
    }

    /// The value of pointer number `n`. None: there is no text, it is empty, or it has no such place.
    pub fn get(&self, n: usize) -> Result<Option<Found<'a>>, Fault> {
        let Some(text) = self.text.filter(|text| !text.is_empty()) else { return Ok(None) };
        let found = self.found.get_or_init(|| scan(self.pointers, text));
        match found {
            Ok(found) => found[n].map(Found::read).transpose(),
            Err(fault) => Err(*fault),
        }
    }
}

/// A value of a JSON text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found<'a> {
    Null,
    /// Decoded.
    Text(Cow<'a, str>),
    /// As it is written: `1`, `1.0` and `1e0` are three.
    Number(&'a str),
    Boolean,
    Array,
    Object,
}

impl<'a> Found<'a> {
    fn read(raw: &'a str) -> Result<Found<'a>, Fault> {
        Ok(match raw.as_bytes()[0] {
            b'"' if !raw.contains('\\') => Found::Text(Cow::Borrowed(&raw[1..raw.len() - 1])),
            b'"' => Found::Text(Cow::Owned(serde_json::from_str(raw)?)),
            b'{' => Found::Object,
            b'[' => Found::Array,
            b'n' => Found::Null,
            b't' | b'f' => Found::Boolean,
            _ => Found::Number(raw),
        })
    }
}

fn scan<'a>(pointers: &Pointers, text: &'a [u8]) -> Result<Vec<Option<&'a str>>, Fault> {
    let mut found = vec![None; pointers.count];
    let mut json = serde_json::Deserializer::from_slice(text);
    Walk { node: &pointers.root, found: &mut found }.deserialize(&mut json)?;
    json.end()?;
    Ok(found)
}

/// Walks one value, keeping what its node wants.
struct Walk<'w, 'de> {
    node: &'w Node,
    found: &'w mut Vec<Option<&'de str>>,
}

impl<'de> DeserializeSeed<'de> for Walk<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        if self.node.wanted.is_empty() {
            return json.deserialize_any(self);
        }
        let raw = <&RawValue>::deserialize(json)?.get();
        if !self.node.children.is_empty() {
            // Wanted whole and in parts: the parts are looked for in the whole.
            let inner = Walk { node: self.node, found: self.found };
            serde_json::Deserializer::from_str(raw).deserialize_any(inner).map_err(serde::de::Error::custom)?;
        }
        self.node.wanted.iter().for_each(|&n| self.found[n] = Some(raw));
        Ok(())
    }
}

/// A scalar has no places inside.
macro_rules! no_place_in {
    ($($visit:ident($type:ty)),*) => {$(
        fn $visit<E>(self, _: $type) -> Result<(), E> {
            Ok(())
        }
    )*};
}

impl<'de> Visitor<'de> for Walk<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    no_place_in!(visit_bool(bool), visit_i64(i64), visit_u64(u64), visit_f64(f64), visit_str(&str));

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(child) = map.next_key_seed(NamedChild(self.node))? {
            match child {
                Some(node) => {
                    node.forget(self.found);
                    map.next_value_seed(Walk { node, found: self.found })?;
                }
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        for index in 0.. {
            let child = self.node.children.iter().find(|(step, _)| step.index == Some(index));
            let more = match child {
                Some((_, node)) => seq.next_element_seed(Walk { node, found: self.found })?.is_some(),
                None => seq.next_element::<IgnoredAny>()?.is_some(),
            };
            if !more {
                break;
            }
        }
        Ok(())
    }
}

/// Reads a member's name and says which child it leads to.
struct NamedChild<'w>(&'w Node);

impl<'de, 'w> DeserializeSeed<'de> for NamedChild<'w> {
    type Value = Option<&'w Node>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_str(self)
    }
}

impl<'w> Visitor<'_> for NamedChild<'w> {
    type Value = Option<&'w Node>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a member's name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.children.iter().find(|(step, _)| step.name == name).map(|(_, node)| node))
    }
}

#[cfg(test)]
#[path = "json_tests.rs"]
mod tests;
