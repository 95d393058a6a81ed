//! Which messages of a window ask for a claim, and what becomes of each.
//!
//! One key twice in one statement cannot be told apart by the store, so repeats are resolved here: of the messages
//! with one key, the first asks; when the answer names a holder, whichever of them sits on that position publishes.
//! The questions are sorted by key, because two windows that insert the same keys in different orders deadlock.

use std::collections::HashMap;
use std::hash::Hash;

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
    pub fn of<K: Ord + Hash>(keys: &[K]) -> Questions {
        let mut first: HashMap<&K, usize> = HashMap::with_capacity(keys.len());
        let mut asking = Vec::with_capacity(keys.len());
        let asker: Vec<usize> = keys
            .iter()
            .enumerate()
            .map(|(n, key)| {
                *first.entry(key).or_insert_with(|| {
                    asking.push(n);
                    n
                })
            })
            .collect();
        asking.sort_unstable_by(|&a, &b| keys[a].cmp(&keys[b]));
        let mut question_of = vec![usize::MAX; keys.len()];
        for (question, &message) in asking.iter().enumerate() {
            question_of[message] = question;
        }
        Questions { asking, answered_by: asker.into_iter().map(|n| question_of[n]).collect() }
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
