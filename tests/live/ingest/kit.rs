//! An instance of ingest over a store and a sink, and what a caller sees of it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use semel::api::ingest::access::Access;
use semel::api::ingest::{IngestApi, Limits, routes};
use semel::clock::SystemClock;
use semel::key::{Extraction, Recipe, TimeRecipe};
use semel::pipeline::ingest::{Ingest, Options, Retention, Schemas, Undeduped};
use semel::pipeline::leased::Outlet;
use semel::protocol::event::{EventId, Scope};
use semel::protocol::lane::StreamId;
use semel::store::ClaimStore;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::Subject;
use super::scripted::{Scripted, Scripts};
use super::watched::Watched;

pub const ORDERS: &str = "/v1/ingest/acme/orders";
/// Of the key that may write everything.
pub const KEY: &str = "k-operator";

const KEYS: &str = r#"[
    {"name": "operator", "key": "k-operator", "tenants": ["*"], "tables": ["*"]},
    {"name": "shop", "key": "k-shop", "tenants": ["acme"], "tables": ["orders"]}
]"#;

pub fn options(subject: &Subject, instance: &str) -> Options {
    Options {
        pipeline: subject.pipeline.clone(),
        instance: instance.into(),
        lanes: 3,
        scope: Scope::new("s").expect("a scope"),
        extraction: Extraction::new(
            Recipe::parse("header:Idempotency-Key|json:/id").expect("a recipe"),
            TimeRecipe::None,
        ),
        accept_recipe: None,
        undeduped: Undeduped::of("acme/logs").expect("a list"),
        schemas: Schemas::default(),
        retention: Retention::default(),
        window_records_max: 256,
        window_bytes_max: 8 << 20,
        record_bytes_max: 1_000,
        lease: subject.lease,
        publish_timeout: subject.lease / 2,
    }
}

pub const LIMITS: Limits = Limits {
    document_bytes_max: 1 << 20,
    stream_bytes_max: 8 << 20,
    records_max: 100_000,
    request_timeout: Duration::from_secs(20),
};

/// For Kafka, at a time.
const PATIENCE: Duration = Duration::from_secs(15);

/// One instance.
pub struct Instance {
    pub ingest: Ingest,
    pub routes: Router,
    pub store: Arc<Watched>,
    pub scripts: Scripts,
}

pub async fn start(subject: &Subject) -> Instance {
    start_with(subject, options(subject, "a"), LIMITS).await
}

pub async fn start_with(subject: &Subject, options: Options, limits: Limits) -> Instance {
    let store = Watched::new(subject.store.clone());
    let scripts = Scripts::default();
    let outlet = |name: &str| match &subject.kafka {
        Some(into) => {
            let (mut outlet, slot) = into.outlet(&subject.pipeline, name);
            if let Outlet::Kafka(kafka) = &mut outlet {
                kafka.patience = PATIENCE;
            }
            (outlet, slot)
        }
        None => {
            let sink = Scripted { inner: (subject.sink)(), scripts: scripts.clone() };
            (Outlet::Plain(Box::new(sink)), StreamId::slot(&subject.pipeline, name))
        }
    };
    let ingest = Ingest::start(options, store.clone(), Arc::new(SystemClock), outlet).await.expect("it starts");
    store.calls();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("keys.json");
    std::fs::write(&path, KEYS).expect("a file");
    let access = Arc::new(Access::open(&path).expect("keys"));
    let routes = routes(IngestApi { ingest: ingest.clone(), access, limits });
    Instance { ingest, routes, store, scripts }
}

#[derive(Debug, PartialEq)]
pub struct Answer {
    pub status: u16,
    pub retry_after: Option<u64>,
    pub body: Value,
}

impl Answer {
    /// Published, duplicate, rejected. A failure is shown instead.
    pub fn counts(&self) -> (u64, u64, u64) {
        assert_eq!(self.status, 200, "{self:?}");
        let count = |name: &str| self.body[name].as_u64().expect("a count");
        let counts = (count("published"), count("duplicate"), count("rejected"));
        let results = self.body["results"].as_array().expect("results");
        assert_eq!(results.len() as u64, counts.0 + counts.1 + counts.2);
        counts
    }

    /// `p`, `d` or `r` for each record.
    pub fn outcomes(&self) -> String {
        let results = self.body["results"].as_array().unwrap_or_else(|| panic!("{self:?}"));
        results
            .iter()
            .enumerate()
            .map(|(n, result)| {
                assert_eq!(result["index"], n);
                let status = result["status"].as_str().expect("a status");
                assert_eq!(result.get("reason").is_some(), status == "rejected", "{result}");
                &status[..1]
            })
            .collect()
    }

    pub fn failure(status: u16, error: &str, retry_after: Option<u64>) -> Answer {
        Answer { status, retry_after, body: json!({ "error": error }) }
    }
}

/// How records are handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Array,
    Lines,
}

pub const FORMS: [Form; 2] = [Form::Array, Form::Lines];

impl Form {
    pub fn content_type(self) -> &'static str {
        match self {
            Form::Array => "application/json",
            Form::Lines => "application/x-ndjson",
        }
    }

    pub fn body(self, records: &[String]) -> String {
        match self {
            Form::Array => format!("[{}]", records.join(",")),
            Form::Lines => records.iter().map(|record| format!("{record}\n")).collect(),
        }
    }
}

pub fn record(id: &str) -> String {
    format!("{{\"id\":\"{id}\",\"amount\":1}}")
}

pub fn records(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| record(&format!("{prefix}{n}"))).collect()
}

impl Instance {
    pub async fn send(&self, path: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> Answer {
        let mut request = Request::post(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(body.into()).expect("a request");
        let response = self.routes.clone().oneshot(request).await.expect("an answer");
        let status = response.status().as_u16();
        let retry_after = response.headers().get("retry-after");
        let retry_after = retry_after.map(|value| value.to_str().expect("text").parse().expect("seconds"));
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.expect("a body");
        Answer { status, retry_after, body: serde_json::from_slice(&body).unwrap_or(Value::Null) }
    }

    pub async fn post(&self, form: Form, records: &[String]) -> Answer {
        self.send_as(ORDERS, form.content_type(), form.body(records)).await
    }

    pub async fn post_one(&self, record: &str) -> Answer {
        self.send_as(ORDERS, "application/json", record.to_owned()).await
    }

    pub async fn send_as(&self, path: &str, content_type: &str, body: String) -> Answer {
        self.send(path, &[("authorization", &format!("Bearer {KEY}")), ("content-type", content_type)], body).await
    }

    /// Whether the store has a claim of this id, in acme's orders.
    pub async fn is_claimed(&self, id: &str) -> bool {
        let scope = Scope::new("s+acme+orders").expect("a scope");
        let id = EventId::encode(id.as_bytes()).expect("an id");
        let claims = self.store.find(Some(&scope), &id).await.expect("an answer");
        assert!(claims.len() <= 1, "{claims:?}");
        !claims.is_empty()
    }

    /// Which of these ids the store has claims of: the first so many, and no others?
    pub async fn claimed(&self, prefix: &str, numbers: std::ops::Range<usize>) -> Vec<usize> {
        let mut claimed = Vec::new();
        for n in numbers {
            if self.is_claimed(&format!("{prefix}{n}")).await {
                claimed.push(n);
            }
        }
        claimed
    }
}

pub type Later<T> = Pin<Box<dyn Future<Output = T>>>;

/// Ids of what was published, in order.
pub async fn published(subject: &Subject) -> Vec<String> {
    (subject.published)().await.iter().map(|value| id_of(value)).collect()
}

pub fn id_of(value: &[u8]) -> String {
    let value: Value = serde_json::from_slice(value).expect("JSON");
    value["id"].as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// In order, each once.
pub fn ids(prefix: &str, numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|n| format!("{prefix}{n}")).collect()
}
