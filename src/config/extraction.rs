//! How event id and event time are picked out of a message.

use super::reader::Reader;
use super::setting::{Default, Kind, Setting};
use crate::key::{Extraction, Recipe, TimeRecipe};

pub const EVENT_ID: Setting = Setting::new(
    "SEMEL_EVENT_ID",
    Kind::Recipe(
        "header:NAME, key, json:/POINTER, cloudevents, digest; `|` between alternatives, `+` within a composite",
    ),
    Default::Required,
    "What identifies an event, the same in every copy of it.",
)
.in_ingest_as("header:Idempotency-Key|json:/id")
.in_pipe_as("digest")
.written_in_pipe("json:/POINTER, digest; `|` between alternatives, `+` within a composite")
.told_in_pipe("What identifies an event, the same in every copy of it. `digest` is the whole line.");

pub const EVENT_TIME: Setting = Setting::new(
    "SEMEL_EVENT_TIME",
    Kind::Recipe("record, header:NAME[:UNIT], json:/POINTER[:UNIT], id, none; UNIT s, ms, us, ns for numbers"),
    Default::Value("record"),
    "The event's own time, the same in every copy: it says in which week an event counts once. Never a time that a \
     retry renews.",
)
.in_pipe_as("none")
.written_in_pipe("json:/POINTER[:UNIT], id, none; UNIT s, ms, us, ns for numbers")
.told_in_pipe(
    "The event's own time, the same in every copy: it says in which week an event counts once. Without one it counts \
     once for ever.",
);

pub const ACCEPT_RECIPE: Setting = Setting::new(
    "SEMEL_ACCEPT_RECIPE",
    Kind::Text,
    Default::Absent("a change is refused"),
    "Digest of the way ids and times are extracted (`semel validate` shows it), where that was changed on purpose.",
)
.in_pipe()
.told_in_pipe(
    "Digest of the way ids and times are extracted (the refusal of another way shows it), where that was changed on \
     purpose.",
);

pub const SETTINGS: &[&Setting] = &[&EVENT_ID, &EVENT_TIME, &ACCEPT_RECIPE];

/// How keys are made, and the digest of it that the operator accepts in place of another.
#[derive(Debug, Clone)]
pub struct Keys {
    pub extraction: Extraction,
    /// The present way was acknowledged as a change.
    pub accept_change: bool,
}

impl Keys {
    pub(super) fn read(reader: &Reader<'_>) -> Option<Keys> {
        let recipe = reader.parsed(&EVENT_ID, Recipe::parse);
        let time = reader.parsed(&EVENT_TIME, TimeRecipe::parse);
        let accepted = reader.optional(&ACCEPT_RECIPE, || reader.text(&ACCEPT_RECIPE));
        let (recipe, time) = (recipe?, time?);
        if time == TimeRecipe::Id && recipe.ends_in_digest() {
            reader.problem_with(&EVENT_TIME, "there is no time inside a digest");
        }
        let extraction = Extraction::new(recipe, time);
        let present = extraction.digest();
        let accepted = accepted?;
        if accepted.as_ref().is_some_and(|accepted| *accepted != present) {
            reader.problem_with(&ACCEPT_RECIPE, format!("it accepts another recipe; the present one is {present}"));
        }
        Some(Keys { extraction, accept_change: accepted.is_some() })
    }
}
