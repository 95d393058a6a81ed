//! Which messages of a window ask for a claim, and what becomes of each.
//!
//! One key twice in one statement cannot be told apart by the store, so repeats are resolved here: of the messages
//! with one key, the first asks; when the answer names a holder, whichever of them sits on that position publishes.
//! The questions are sorted by key, because two windows that insert the same keys in different orders deadlock.

use super::lane::Coordinate;
use super::verdict::{Claimed, Verdict, judge};

/// The claims that a window asks for.
#[derive(Debug)]
pub struct Questions {
    /// Indices of the asking messages, in the order in which the store is to be asked: ascending by key.
    pub asking: Vec<usize>,
    /// For every message of the window, the index in `asking` of the question that answers it.
    answered_by: Vec<usize>,
}

impl Questions {
    /// `keys`: what the claims are made of, one per message, in the order in which the messages were read.
    pub fn of<K: Ord>(keys: &[K]) -> Questions {
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_unstable_by(|&a, &b| keys[a].cmp(&keys[b]).then(a.cmp(&b)));
        Questions::in_order(keys, order.into_iter())
    }

    /// The same for messages that are sorted already: ascending by key, repeats in the order in which they were read.
    pub fn of_sorted<K: PartialEq>(keys: &[K]) -> Questions {
        Questions::in_order(keys, 0..keys.len())
    }

    fn in_order<K: PartialEq>(keys: &[K], order: impl Iterator<Item = usize>) -> Questions {
        let mut asking: Vec<usize> = Vec::with_capacity(keys.len());
        let mut answered_by = vec![0; keys.len()];
        for n in order {
            if asking.last().is_none_or(|&asker| keys[asker] != keys[n]) {
                asking.push(n);
            }
            answered_by[n] = asking.len() - 1;
        }
        Questions { asking, answered_by }
    }

    /// The message that asks on behalf of this one: itself, or an earlier one with the same key.
    pub fn asker(&self, n: usize) -> usize {
        self.asking[self.answered_by[n]]
    }

    /// The verdict of every message, in the order of the window.
    ///
    /// `answers`: one per question, in the order of `asking`. `at`: the coordinate of each message.
    pub fn verdicts(&self, answers: &[Claimed], at: impl Fn(usize) -> Coordinate) -> Vec<Verdict> {
        assert_eq!(answers.len(), self.asking.len(), "one answer per question");
        self.answered_by
            .iter()
            .enumerate()
            .map(|(n, &question)| judge(answers[question], at(self.asking[question]), at(n)))
            .collect()
    }
}
