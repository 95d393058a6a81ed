//! Headers in which a sink of Semel's puts what its protocol has no place for, undone by the sources that meet them.

use bytes::Bytes;

use crate::message::{Header, Message};

/// The message's key.
pub const KEY: &str = "semel-key";
/// `1`: the body is empty because the value is null (a tombstone).
pub const NULL: &str = "semel-null";

/// Puts key and value back in their places, and takes their headers away.
pub(super) fn undo(message: &mut Message) {
    if let Some(key) = take(&mut message.headers, KEY, |_| true) {
        message.key = Some(key);
    }
    let is_empty = message.value.as_ref().is_some_and(Bytes::is_empty);
    if is_empty && take(&mut message.headers, NULL, |value| value == b"1").is_some() {
        message.value = None;
    }
}

/// The last header of this name whose value is meant.
fn take(headers: &mut Vec<Header>, name: &str, is_meant: impl Fn(&[u8]) -> bool) -> Option<Bytes> {
    let meant = |header: &Header| &*header.name == name && header.value.as_deref().is_some_and(&is_meant);
    let at = headers.iter().rposition(meant)?;
    headers.remove(at).value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_and_null_come_back() {
        let header = |name: &str, value: &'static str| Header::new(name, value.as_bytes());
        let message = |value: &'static str, headers: &[Header]| {
            let value = Some(Bytes::from_static(value.as_bytes()));
            let mut message = Message { value, headers: headers.to_vec(), ..Message::default() };
            undo(&mut message);
            let names: Vec<String> = message.headers.iter().map(|header| header.name.to_string()).collect();
            (message.key.is_some(), message.value.is_some(), names.join(","))
        };
        let cases = [
            (message("v", &[]), (false, true, ""), "nothing"),
            (message("v", &[header("a", "1"), header(KEY, "k")]), (true, true, "a"), "a key"),
            (message("", &[header(NULL, "1")]), (false, false, ""), "a tombstone"),
            (message("", &[header(NULL, "0")]), (false, true, NULL), "somebody else's word"),
            (message("v", &[header(NULL, "1")]), (false, true, NULL), "there is a value"),
        ];
        for (found, (key, value, names), why) in cases {
            assert_eq!(found, (key, value, names.to_owned()), "{why}");
        }
    }
}
