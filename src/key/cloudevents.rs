//! CloudEvents 1.0: an event is identified by its source and its id together.
//!
//! Binary mode keeps them in headers (`ce_` in Kafka's binding, `ce-` where a message came by way of HTTP), structured
//! mode in a JSON body of the type `application/cloudevents+json`. The type decides, as the binding says.

use std::borrow::Cow;

use super::View;
use super::json::Pointer;

/// Source and id.
const HEADERS: [[&str; 2]; 2] = [["ce_source", "ce_id"], ["ce-source", "ce-id"]];
const CONTENT_TYPES: [&str; 2] = ["content-type", "Content-Type"];

/// Source and id in a structured event.
pub(super) fn pointers() -> [Pointer; 2] {
    ["/source", "/id"].map(|place| Pointer::parse(place).expect("a pointer"))
}

/// Whether the body is the event, in JSON.
pub(super) fn is_structured(view: &View<'_>) -> bool {
    let declared = CONTENT_TYPES.iter().find_map(|name| view.headers.last(name).flatten());
    let media_type = declared.unwrap_or_default().split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
    [&b"application/cloudevents+json"[..], b"application/cloudevents"]
        .iter()
        .any(|known| media_type.eq_ignore_ascii_case(known))
}

/// Source and id of a binary event.
pub(super) fn from_headers<'a>(view: &View<'a>) -> [Option<Cow<'a, [u8]>>; 2] {
    let value = |name| view.headers.last(name).flatten();
    let names = HEADERS.iter().find(|[_, id]| value(id).is_some()).unwrap_or(&HEADERS[0]);
    names.map(|name| value(name).map(Cow::Borrowed))
}
