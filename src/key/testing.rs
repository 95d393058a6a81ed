//! Messages for the tests of this module.

use super::{Headers, View};

pub struct List<'a>(pub &'a [(&'a str, Option<&'a [u8]>)]);

impl Headers for List<'_> {
    fn last(&self, name: &str) -> Option<Option<&[u8]>> {
        self.0.iter().rfind(|(known, _)| *known == name).map(|(_, value)| *value)
    }
}

/// A message with these headers and this value.
pub fn message<'a>(headers: &'a List<'a>, value: Option<&'a str>) -> View<'a> {
    View { key: Some(b"the-key"), value: value.map(str::as_bytes), timestamp_millis: Some(1_767_787_200_000), headers }
}
