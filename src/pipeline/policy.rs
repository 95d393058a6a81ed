//! What is done with messages that are not simply claimed and forwarded. No policy forwards, by default, what was not
//! claimed.

/// What to do with a message that cannot be claimed: it has no id or no time, or its time is out of bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unclaimable {
    /// To the dead-letter topic.
    Reject,
    /// On to the sink, unclaimed and marked.
    Forward,
    /// End the pipeline with an error that names the message.
    Stop,
}

/// What to do with a duplicate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duplicates {
    Drop,
    /// To a topic of their own.
    Route,
    /// On to the sink, with a header that says so.
    Mark,
}

/// What to do while the claim store is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreAway {
    /// Wait, and catch up.
    Block,
    /// On to the sink, unclaimed and marked.
    Forward,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policies {
    pub missing_id: Unclaimable,
    pub missing_time: Unclaimable,
    pub old_event: Unclaimable,
    pub future_event: Unclaimable,
    pub duplicates: Duplicates,
    pub store_away: StoreAway,
    /// Claim, judge and count, but forward everything, duplicates marked.
    pub observe: bool,
}
