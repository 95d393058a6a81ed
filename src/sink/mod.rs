//! Where messages go. A sink knows nothing of stores and sources.

pub mod kafka;
