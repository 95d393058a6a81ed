//! What callers are answered, as JSON.
//!
//! Results are written out piece by piece from one byte a record, so that the answer to a million records stands nowhere
//! as a whole.

use std::convert::Infallible;
use std::fmt::Write;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::http::header::{ACCEPT_ENCODING, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{Response, StatusCode};
use bytes::Bytes;
use hyper::body::Frame;

use crate::pipeline::ingest::{Outcome, Outcomes};

/// A request that is not answered record by record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    pub status: u16,
    pub error: &'static str,
    pub retry_after_s: Option<u64>,
}

impl Refusal {
    pub const fn new(status: u16, error: &'static str) -> Refusal {
        Refusal { status, error, retry_after_s: None }
    }
}

/// `{"error":"…"}`.
pub fn refused(refusal: &Refusal) -> Response<Body> {
    let mut response = json(Body::from(format!("{{\"error\":\"{}\"}}", refusal.error)));
    *response.status_mut() = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    if let Some(seconds) = refusal.retry_after_s {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    match refusal.status {
        401 => drop(headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
        415 => drop(headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip, zstd, identity"))),
        _ => {}
    }
    response
}

/// Counts, and one result per record in the order of the body.
pub fn results(outcomes: Outcomes) -> Response<Body> {
    let mut results = Results { outcomes, next: 0, next_misfit: 0, is_over: false };
    let first = results.piece();
    // The usual answer is one piece, and has a length.
    if results.is_over { json(Body::from(first)) } else { json(Body::new(Pieces { first: Some(first), results })) }
}

fn json(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

const PIECE_BYTES: usize = 64 << 10;

struct Results {
    outcomes: Outcomes,
    next: usize,
    next_misfit: usize,
    is_over: bool,
}

impl Results {
    fn piece(&mut self) -> String {
        let mut piece = String::new();
        if self.next == 0 {
            let count = |is: fn(&Outcome) -> bool| self.outcomes.list.iter().filter(|outcome| is(outcome)).count();
            let published = count(|outcome| matches!(outcome, Outcome::Published));
            let duplicate = count(|outcome| matches!(outcome, Outcome::Duplicate));
            let rejected = self.outcomes.list.len() - published - duplicate;
            let counts = format!("\"published\":{published},\"duplicate\":{duplicate},\"rejected\":{rejected}");
            let _ = write!(piece, "{{{counts},\"results\":[");
        }
        while self.next < self.outcomes.list.len() && piece.len() < PIECE_BYTES {
            let (comma, index) = (if self.next > 0 { "," } else { "" }, self.next);
            let _ = write!(piece, "{comma}{{\"index\":{index},\"status\":");
            let _ = match self.outcomes.list[index] {
                Outcome::Published => write!(piece, "\"published\"}}"),
                Outcome::Duplicate => write!(piece, "\"duplicate\"}}"),
                Outcome::Rejected(reason) => write!(piece, "\"rejected\",\"reason\":\"{reason}\"{}}}", self.misfit()),
            };
            self.next += 1;
        }
        if self.next == self.outcomes.list.len() {
            piece.push_str("]}");
            self.is_over = true;
        }
        piece
    }
}

impl Results {
    /// Where and why the next record does not fit, if that is known.
    fn misfit(&mut self) -> String {
        let misfit = self.outcomes.misfits.get(self.next_misfit).filter(|(place, _)| *place == self.next);
        let Some((_, misfit)) = misfit else { return String::new() };
        self.next_misfit += 1;
        let text = |text: &str| serde_json::Value::from(text).to_string();
        format!(",\"path\":{},\"detail\":{}", text(&misfit.path), text(&misfit.why))
    }
}

struct Pieces {
    first: Option<String>,
    results: Results,
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = match self.first.take() {
            Some(first) => first,
            None if self.results.is_over => return Poll::Ready(None),
            None => self.results.piece(),
        };
        Poll::Ready(Some(Ok(Frame::data(piece.into()))))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::pipeline::ingest::{Misfit, Reason};

    fn whole(list: Vec<Outcome>) -> Value {
        whole_with(Outcomes { list, misfits: Vec::new() })
    }

    fn whole_with(outcomes: Outcomes) -> Value {
        let mut results = Results { outcomes, next: 0, next_misfit: 0, is_over: false };
        let mut text = String::new();
        while !results.is_over {
            let piece = results.piece();
            assert!(piece.len() <= PIECE_BYTES + 256, "a piece of {}", piece.len());
            text += &piece;
        }
        serde_json::from_str(&text).expect("JSON")
    }

    #[test]
    fn results_in_order_and_counted() {
        let outcomes = vec![Outcome::Published, Outcome::Rejected(Reason::NotJson), Outcome::Duplicate];
        let right = serde_json::json!({
            "published": 1, "duplicate": 1, "rejected": 1,
            "results": [
                {"index": 0, "status": "published"},
                {"index": 1, "status": "rejected", "reason": "it is not JSON"},
                {"index": 2, "status": "duplicate"},
            ],
        });
        assert_eq!(whole(outcomes), right);
        assert_eq!(whole(Vec::new())["results"], serde_json::json!([]));
    }

    #[test]
    fn a_long_answer_is_the_same_in_pieces() {
        let outcomes: Vec<Outcome> = (0..20_000)
            .map(
                |n| if n % 3 == 0 { Outcome::Rejected(Reason::ALL[n % Reason::ALL.len()]) } else { Outcome::Published },
            )
            .collect();
        let shown = whole(outcomes);
        let results = shown["results"].as_array().expect("an array");
        assert_eq!((results.len(), shown["rejected"].as_u64()), (20_000, Some(6_667)));
        assert!(results.iter().enumerate().all(|(n, result)| result["index"] == n));
    }

    #[test]
    fn misfits_stand_where_they_belong() {
        let misfit = |path: &str, why: &str| Misfit { path: path.into(), why: why.into() };
        let schema = Outcome::Rejected(Reason::Schema);
        let shown = whole_with(Outcomes {
            list: vec![Outcome::Published, schema, Outcome::Rejected(Reason::NotJson), schema, schema],
            misfits: vec![(1, misfit("/a\"b", "it is\n\"odd\"")), (3, misfit("", "why"))],
        });
        let of = |n: usize| (shown["results"][n]["path"].as_str(), shown["results"][n]["detail"].as_str());
        assert_eq!(of(1), (Some("/a\"b"), Some("it is\n\"odd\"")));
        assert_eq!([of(0), of(2), of(4)], [(None, None); 3], "no room was left for the last one's");
        assert_eq!(of(3), (Some(""), Some("why")));
    }

    #[test]
    fn an_outcome_is_one_byte() {
        assert_eq!(size_of::<Option<Outcome>>(), 1);
    }
}
