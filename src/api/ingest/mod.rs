//! `POST /v1/ingest/{tenant}/{table}`: records in, each published once.
//!
//! ```text
//! who may? ─▶ what is it? ─▶ body, decoded, within bounds ─▶ records ─▶ windows ─▶ one answer
//! ```
//!
//! A JSON document (one object, or an array) is read whole and checked before anything of it is published, so that a
//! syntax error publishes nothing. NDJSON is read as it comes: what stands in memory is a window and one byte for each
//! record so far. Since a later window may fail, status and body are known only at the end.
//!
//! Nothing in an answer depends on anything but the caller's right, the request, and the claims of the very tenant and
//! table: ids of others cannot be learnt.
//!
//! | module | does |
//! | --- | --- |
//! | [`access`] | who may write what, by a file that is read again when it changes |
//! | [`body`] | chunks of the body, decompressed, within the bounds |
//! | [`records`] | cuts chunks into records |
//! | [`answer`] | results and errors as JSON |

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Request as HttpRequest, State};
use axum::http::header::{CONTENT_TYPE, HeaderMap};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use metrics::counter;
use tokio::time::{Instant, timeout};

use crate::key::{Headers, NoHeaders};
use crate::metrics as names;
use crate::pipeline::ingest::{Ingest, Outcomes, Reason, Request, Stopped, Target};

pub mod access;
pub mod answer;
mod body;
mod records;

use access::{Access, Denied};
use answer::{Refusal, refused};
use body::{BodyError, Chunks, Encoding};
use records::Lines;

pub const ROUTE: &str = "/v1/ingest/{tenant}/{table}";
/// What is served is described here.
pub const OPENAPI: &str = include_str!("openapi.json");

/// A request keeps its lane for so long when its next window is not at hand.
const KEEP_LANE: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Of a JSON document, before and after decompression.
    pub document_bytes_max: u64,
    /// Of NDJSON.
    pub stream_bytes_max: u64,
    pub records_max: usize,
    /// For reading the body, the windows before its end included.
    pub request_timeout: Duration,
}

/// What the routes answer from.
#[derive(Clone)]
pub struct IngestApi {
    pub ingest: Ingest,
    pub access: Arc<Access>,
    pub limits: Limits,
}

pub fn routes(api: IngestApi) -> Router {
    let openapi = || async { ([(CONTENT_TYPE, "application/json")], OPENAPI) };
    Router::new().route(ROUTE, post(ingest)).route("/openapi.json", get(openapi)).with_state(api)
}

async fn ingest(
    State(api): State<IngestApi>,
    Path((tenant, table)): Path<(String, String)>,
    request: HttpRequest,
) -> Response {
    let response = match outcomes(&api, &tenant, &table, request).await {
        Ok(outcomes) => answer::results(outcomes).into_response(),
        Err(refusal) => refused(&refusal).into_response(),
    };
    counter!(names::INGEST_REQUESTS, "status" => response.status().as_str().to_owned()).increment(1);
    response
}

async fn outcomes(api: &IngestApi, tenant: &str, table: &str, request: HttpRequest) -> Result<Outcomes, Refusal> {
    let (parts, body) = request.into_parts();
    match api.access.may(&parts.headers, tenant, table) {
        Ok(()) => {}
        Err(Denied::Unknown) => return Err(Refusal::new(401, "unauthorized")),
        Err(Denied::Forbidden) => return Err(Refusal::new(403, "forbidden")),
    }
    let options = api.ingest.options();
    let target = Target::new(&options.scope, tenant, table, &options.undeduped)
        .map_err(|_| Refusal::new(400, "bad name of a tenant or table"))?;
    let form = Form::of(&parts.headers).ok_or(Refusal::new(415, "unsupported content type"))?;
    let encoding = Encoding::of(&parts.headers).ok_or(Refusal::new(415, "unsupported content encoding"))?;
    let bytes_max = match form {
        Form::Document => api.limits.document_bytes_max,
        Form::Lines => api.limits.stream_bytes_max,
    };
    let deadline = Instant::now() + api.limits.request_timeout;
    let chunks = Chunks::new(body, encoding, bytes_max, deadline).map_err(refusal)?;
    let mut request = Request::new(&api.ingest, target);
    let read = match form {
        Form::Document => document(api, &mut request, chunks, &parts.headers).await,
        Form::Lines => lines(api, &mut request, chunks).await,
    };
    if let Err(refusal) = read {
        // What was published stays so, and a retry is to find it.
        request.rest().await;
        return Err(refusal);
    }
    request.finish().await.map_err(stopped)
}

/// What a body is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// One object, or an array.
    Document,
    Lines,
}

impl Form {
    fn of(headers: &HeaderMap) -> Option<Form> {
        let text = headers.get(CONTENT_TYPE)?.to_str().ok()?;
        let essence = text.split(';').next().unwrap_or_default().trim();
        let is = |name: &str| essence.eq_ignore_ascii_case(name);
        if is("application/json") { Some(Form::Document) } else { is("application/x-ndjson").then_some(Form::Lines) }
    }
}

async fn document(
    api: &IngestApi,
    request: &mut Request,
    mut chunks: Chunks,
    headers: &HeaderMap,
) -> Result<(), Refusal> {
    let mut text = Vec::new();
    while let Some(chunk) = chunks.next().await.map_err(refusal)? {
        text.extend_from_slice(&chunk);
    }
    match records::document(&text).map_err(|error| Refusal::new(400, error))? {
        None => request.add(&text, &RequestHeaders(headers)),
        Some(array) if array.len() > api.limits.records_max => return Err(TOO_MANY),
        Some(array) => {
            for record in array {
                close_if_full(request).await?;
                request.add(record.get().as_bytes(), &NoHeaders);
            }
        }
    }
    Ok(())
}

async fn lines(api: &IngestApi, request: &mut Request, mut chunks: Chunks) -> Result<(), Refusal> {
    let mut lines = Lines::new(api.ingest.options().record_bytes_max);
    loop {
        let chunk = match timeout(KEEP_LANE, chunks.next()).await {
            Ok(chunk) => chunk,
            Err(_) => {
                request.rest().await;
                chunks.next().await
            }
        };
        let chunk = chunk.map_err(refusal)?;
        let is_end = chunk.is_none();
        lines.push(chunk.unwrap_or_default());
        while let Some(line) = lines.next(is_end) {
            close_if_full(request).await?;
            if request.len() >= api.limits.records_max {
                return Err(TOO_MANY);
            }
            match line {
                Ok(line) => request.add(&line, &NoHeaders),
                Err(records::Overlong) => request.reject(Reason::Large),
            }
        }
        if is_end {
            return Ok(());
        }
    }
}

const TOO_MANY: Refusal = Refusal::new(413, "too many records");

async fn close_if_full(request: &mut Request) -> Result<(), Refusal> {
    if request.is_full() { request.close_window().await.map_err(stopped) } else { Ok(()) }
}

fn stopped(stopped: Stopped) -> Refusal {
    match stopped {
        Stopped::Answer(answer) => {
            Refusal { status: answer.status, error: answer.error, retry_after_s: answer.retry_after_s }
        }
        // Nobody reads it.
        Stopped::CallerGone => Refusal::new(400, "the caller went away"),
    }
}

fn refusal(error: BodyError) -> Refusal {
    match error {
        BodyError::Broken => {
            tracing::debug!("the body broke off");
            Refusal::new(400, "the body broke off")
        }
        BodyError::Large => Refusal::new(413, "the body is too large"),
        BodyError::Encoding => Refusal::new(400, "the body is not in the encoding it is said to be in"),
        BodyError::Late => Refusal::new(408, "the request took too long"),
    }
}

/// For an event id in a header.
struct RequestHeaders<'a>(&'a HeaderMap);

impl Headers for RequestHeaders<'_> {
    fn last(&self, name: &str) -> Option<Option<&[u8]>> {
        self.0.get_all(name).iter().next_back().map(|value| Some(value.as_bytes()))
    }
}
