//! Picks event id and event time out of a message.
//!
//! Both are pure functions of the message and the recipe: the same message read again by anybody gives the same key.

/// A message as extraction sees it, whatever source it came from. Borrowed, nothing is copied.
#[derive(Clone, Copy)]
pub struct View<'a> {
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    /// The record's own timestamp in milliseconds since the epoch, where the source has one.
    pub timestamp_millis: Option<i64>,
    pub headers: &'a dyn Headers,
}

/// Access to headers by name.
pub trait Headers {
    /// The value of the last header of this name. Outer None: no such header; inner None: its value is null.
    fn last(&self, name: &str) -> Option<Option<&[u8]>>;
}

/// For sources that have no headers.
pub struct NoHeaders;

impl Headers for NoHeaders {
    fn last(&self, _name: &str) -> Option<Option<&[u8]>> {
        None
    }
}
