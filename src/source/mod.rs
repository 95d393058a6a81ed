//! Where messages come from. A source knows nothing of stores and sinks.

pub mod kafka;
