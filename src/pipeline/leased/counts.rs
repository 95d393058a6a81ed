//! What a window came to, for the metrics.

use metrics::{counter, histogram};

use super::keyer::Form;
use crate::metrics as names;
use crate::pipeline::causes::Cause;

/// How a message ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct End {
    pub is_sent: bool,
    pub is_duplicate: bool,
}

/// Messages of a window.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub forwarded: u64,
    pub duplicates: u64,
}

/// `how`: how the window ended.
pub(crate) fn count<'a>(
    scope: &str,
    how: &'static str,
    messages: impl ExactSizeIterator<Item = (&'a Form, End)>,
) -> Counts {
    histogram!(names::WINDOW_MESSAGES).record(messages.len() as f64);
    let mut counts = Counts::default();
    for (form, End { is_sent, is_duplicate }) in messages {
        let sent = u64::from(is_sent);
        match form {
            Form::Forward => {
                counts.duplicates += u64::from(is_duplicate);
                counts.forwarded += sent;
            }
            Form::ForwardDuplicate => {
                counts.duplicates += sent;
                counts.forwarded += sent;
            }
            Form::RouteDuplicate => counts.duplicates += sent,
            Form::ForwardUnclaimed(cause) => {
                counts.forwarded += sent;
                by_cause(names::UNCLAIMED, *cause, sent);
            }
            Form::DeadLetter { cause, .. } => by_cause(names::DEAD_LETTERS, *cause, sent),
        }
    }
    counter!(names::CLAIMS, "consumer_scope_id" => scope.to_owned(), "outcome" => "duplicate")
        .increment(counts.duplicates);
    counter!(names::FORWARDED).increment(counts.forwarded);
    counter!(names::WINDOWS, "end" => how).increment(1);
    counts
}

fn by_cause(metric: &'static str, cause: Cause, sent: u64) {
    counter!(metric, "cause" => cause.label()).increment(sent);
}
