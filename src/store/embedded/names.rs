//! Numbers for what many claims have in common: their scope, and their origin.
//!
//! A number is drawn when a name is first written and stays for ever. It is written in the same batch as the first
//! claim that needs it, so that a batch that is dropped must take its numbers back ([`Numbers::forget_new`]).

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use super::code::{In, Out, Unreadable};
use crate::protocol::lane::LaneId;

/// Names with their numbers, which count up from 0 without gaps.
#[derive(Debug)]
pub(super) struct Numbers<N> {
    of: HashMap<N, u32>,
    names: Vec<N>,
    /// How many of them are in the store.
    kept: usize,
}

impl<N: Clone + Eq + Hash> Numbers<N> {
    /// `stored`: by number.
    pub fn new(stored: Vec<N>) -> Numbers<N> {
        let of = stored.iter().cloned().zip(0..).collect();
        Numbers { of, kept: stored.len(), names: stored }
    }

    pub fn get(&self, name: &N) -> Option<u32> {
        self.of.get(name).copied()
    }

    pub fn name(&self, number: u32) -> Result<&N, Unreadable> {
        self.names.get(number as usize).ok_or(Unreadable("it names a scope or an origin that is not there"))
    }

    pub fn get_or_draw(&mut self, name: &N) -> u32 {
        self.get(name).unwrap_or_else(|| {
            let number = self.names.len() as u32;
            self.names.push(name.clone());
            self.of.insert(name.clone(), number);
            number
        })
    }

    /// Those that are not in the store yet.
    pub fn new_ones(&self) -> impl Iterator<Item = (u32, &N)> {
        (self.kept as u32..).zip(&self.names[self.kept..])
    }

    pub fn keep_new(&mut self) {
        self.kept = self.names.len();
    }

    pub fn forget_new(&mut self) {
        for name in self.names.drain(self.kept..) {
            self.of.remove(&name);
        }
    }

    pub fn all(&self) -> impl Iterator<Item = (u32, &N)> {
        (0..).zip(&self.names)
    }
}

/// Where claims come from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Origin {
    /// None: settled for ever.
    pub lane: Option<LaneId>,
    pub topic: Arc<str>,
    pub partition: Option<i32>,
}

impl Origin {
    const FORMAT: u8 = 1;

    pub fn write(&self) -> Vec<u8> {
        let mut out = Out::default();
        out.byte(Self::FORMAT)
            .maybe(self.lane, |out, lane| {
                out.signed(lane.0);
            })
            .bytes(self.topic.as_bytes())
            .maybe(self.partition, |out, partition| {
                out.signed(i64::from(partition));
            });
        out.0
    }

    pub fn read(record: &[u8]) -> Result<Origin, Unreadable> {
        let mut read = In(record);
        read.format(Self::FORMAT)?;
        let lane = read.maybe(In::signed)?.map(LaneId);
        let topic = read.text()?.into();
        Ok(Origin { lane, topic, partition: read.maybe(In::small_signed)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_dropped_batch_are_drawn_again() {
        let mut numbers = Numbers::new(vec!["a"]);
        assert_eq!(numbers.get_or_draw(&"b"), 1);
        numbers.forget_new();
        assert_eq!(numbers.get(&"b"), None);
        assert_eq!(numbers.get_or_draw(&"c"), 1, "b's number was never written");
        assert_eq!(numbers.new_ones().collect::<Vec<_>>(), [(1, &"c")]);
        numbers.keep_new();
        numbers.forget_new();
        assert_eq!((numbers.get(&"a"), numbers.get(&"c")), (Some(0), Some(1)));
    }

    #[test]
    fn origins_come_back() {
        for origin in [
            Origin { lane: Some(LaneId(i64::MAX)), topic: "orders".into(), partition: Some(-1) },
            Origin { lane: None, topic: "".into(), partition: None },
        ] {
            assert_eq!(Origin::read(&origin.write()), Ok(origin));
        }
    }
}
