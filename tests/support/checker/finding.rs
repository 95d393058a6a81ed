use semel::protocol::event::EventId;

use super::Place;

/// What of a copy differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Key,
    Value,
    Headers,
    Timestamp,
}

/// Something that is wrong with a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// The event has a copy in the input and none in the output.
    Lost {
        event: EventId,
        copies: Vec<Place>,
        claimed: bool,
    },
    /// The event came out more than once; `from` are the places of the copies that did.
    Doubled {
        event: EventId,
        from: Vec<Place>,
    },
    /// Came out after a copy that lies behind it in the same input partition.
    Reordered {
        copy: u64,
        at: Place,
        after: i64,
        output_partition: i32,
    },
    /// Came out changed.
    Altered {
        copy: u64,
        part: Part,
    },
    /// Came out in a partition where its key does not belong.
    WrongPartition {
        copy: u64,
        is: i32,
        belongs: i32,
    },
    /// The copy that came out is not the one that owns the claim.
    WrongCopy {
        event: EventId,
        forwarded: Place,
        claimed: (i32, i64),
    },
    /// Came out and never went in.
    NeverSent {
        output_partition: i32,
        offset: i64,
    },
    /// Came out without an event id.
    ForwardedWithoutId {
        copy: u64,
    },
    /// A read_committed reader cannot get to the end of the output.
    OpenTransaction {
        topic: String,
        partition: i32,
        stable_end: i64,
        end: i64,
    },

    /// Came out, and nothing says that it was claimed.
    OutputWithoutClaim {
        event: EventId,
    },
    /// Claimed, and never came out.
    ClaimWithoutOutput {
        event: EventId,
    },
    /// Claimed in more than one week.
    ClaimedTwice {
        event: EventId,
        weeks: Vec<String>,
    },
    /// The claim names a place where its event does not lie.
    ClaimMisplaced {
        event: EventId,
    },
    /// A claim at or above the settled position of the open lane.
    Unsettled {
        event: EventId,
        partition: i32,
        position: i64,
        settled: i64,
    },

    /// The group, or the settled group, has no offset.
    NoOffset {
        topic: String,
        partition: i32,
        settled: bool,
    },
    /// The settled offset's metadata is not Semel's.
    SettledForeign {
        topic: String,
        partition: i32,
    },
    /// The settled offset names another lane than the store has open.
    OtherLaneOpen {
        topic: String,
        partition: i32,
        settled: i64,
        open: Option<i64>,
    },
    /// The two groups stand at different offsets.
    OffsetsApart {
        topic: String,
        partition: i32,
        committed: i64,
        settled: i64,
    },
    /// Input is left unread, or offsets lie beyond the input's end.
    Lag {
        topic: String,
        partition: i32,
        committed: i64,
        end: i64,
    },

    /// Without an id and not in the dead letters.
    DeadLetterMissing {
        copy: u64,
    },
    DeadLetterDoubled {
        copy: u64,
    },
    /// A dead letter that has an event id, or that was never sent.
    DeadLetterUnexpected {
        offset: i64,
    },
    DeadLetterAltered {
        copy: u64,
        part: Part,
    },

    /// The test's own input is not what it meant to send.
    InputBad {
        copy: u64,
        why: &'static str,
    },
}

impl Finding {
    /// The event that is lost, if that is the finding.
    pub fn lost(&self) -> Option<&EventId> {
        match self {
            Finding::Lost { event, .. } => Some(event),
            _ => None,
        }
    }

    /// The finding's name, which groups findings in a report.
    pub fn kind(&self) -> &'static str {
        match self {
            Finding::Lost { .. } => "lost",
            Finding::Doubled { .. } => "doubled",
            Finding::Reordered { .. } => "reordered",
            Finding::Altered { .. } => "altered",
            Finding::WrongPartition { .. } => "in the wrong partition",
            Finding::WrongCopy { .. } => "by the wrong copy",
            Finding::NeverSent { .. } => "never sent",
            Finding::ForwardedWithoutId { .. } => "forwarded without an id",
            Finding::OpenTransaction { .. } => "open transaction",
            Finding::OutputWithoutClaim { .. } => "output without a claim",
            Finding::ClaimWithoutOutput { .. } => "claim without an output",
            Finding::ClaimedTwice { .. } => "claimed twice",
            Finding::ClaimMisplaced { .. } => "claim misplaced",
            Finding::Unsettled { .. } => "unsettled claim",
            Finding::NoOffset { .. } => "no offset",
            Finding::SettledForeign { .. } => "settled offset is foreign",
            Finding::OtherLaneOpen { .. } => "another lane is open",
            Finding::OffsetsApart { .. } => "offsets apart",
            Finding::Lag { .. } => "lag",
            Finding::DeadLetterMissing { .. } => "dead letter missing",
            Finding::DeadLetterDoubled { .. } => "dead letter doubled",
            Finding::DeadLetterUnexpected { .. } => "dead letter unexpected",
            Finding::DeadLetterAltered { .. } => "dead letter altered",
            Finding::InputBad { .. } => "bad input",
        }
    }
}
