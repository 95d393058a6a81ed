//! NATS by requests to its own interface: what is stored is read as the server's raw bytes.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::Stored;
use super::subjects::login;

#[derive(Debug, Clone)]
pub struct Streams {
    client: async_nats::Client,
}

impl Streams {
    pub async fn connect(url: &str) -> Streams {
        assert!(!url.is_empty(), "NATS was not started: run tests/run");
        let (user, password, host) = login(url);
        let options = async_nats::ConnectOptions::with_user_and_password(user, password);
        Streams { client: options.connect(host).await.expect("a connection") }
    }

    pub async fn create(&self, name: &str, settings: Value) {
        let mut config = json!({
            "name": name, "subjects": [name], "retention": "limits", "discard": "new", "max_consumers": -1,
            "max_msgs": -1, "max_bytes": -1, "storage": "file", "num_replicas": 1,
            "duplicate_window": 120_000_000_000_u64,
        });
        config.as_object_mut().expect("an object").extend(settings.as_object().expect("an object").clone());
        self.ask(&format!("STREAM.CREATE.{name}"), config).await;
    }

    pub async fn delete(&self, name: &str) {
        self.ask(&format!("STREAM.DELETE.{name}"), json!({})).await;
    }

    pub async fn info(&self, name: &str) -> Value {
        self.ask(&format!("STREAM.INFO.{name}"), json!({})).await
    }

    pub async fn take(&self, name: &str) -> Vec<Stored> {
        let state = &self.info(name).await["state"];
        let [first, last] = ["first_seq", "last_seq"].map(|name| state[name].as_u64().expect("a number"));
        let mut messages = Vec::new();
        for seq in first.max(1)..=last {
            let answer = self.ask(&format!("STREAM.MSG.GET.{name}"), json!({ "seq": seq })).await;
            messages.push(stored(&answer["message"]));
        }
        self.ask(&format!("STREAM.PURGE.{name}"), json!({})).await;
        messages
    }

    async fn ask(&self, what: &str, request: Value) -> Value {
        let answer = self.client.request(format!("$JS.API.{what}"), request.to_string().into()).await;
        let answer: Value = serde_json::from_slice(&answer.expect("an answer").payload).expect("JSON");
        assert!(answer.get("error").is_none(), "{what}: {answer}");
        answer
    }
}

fn stored(message: &Value) -> Stored {
    let decoded = |name: &str| STANDARD.decode(message[name].as_str().unwrap_or_default()).expect("base64");
    let (body, raw) = (decoded("data"), decoded("hdrs"));
    let mut headers = raw_headers(&raw);
    let mut one = |name: &str| {
        let values: Vec<Option<Vec<u8>>> = headers.remove(name)?;
        let [Some(value)] = &values[..] else { panic!("{name}: {values:?}") };
        Some(value.clone())
    };
    let text = |value: Vec<u8>| String::from_utf8(value).expect("text");
    let stored = Stored {
        id: one("Nats-Msg-Id").map(text),
        key: one("semel-key"),
        timestamp_millis: one("semel-timestamp-millis").map(|value| text(value).parse().expect("a number")),
        value: match one("semel-null") {
            None => Some(body),
            Some(null) => {
                assert_eq!((&null[..], body.len()), (&b"1"[..], 0));
                None
            }
        },
        headers: BTreeMap::new(),
    };
    Stored { headers, ..stored }
}

fn raw_headers(raw: &[u8]) -> BTreeMap<String, Vec<Option<Vec<u8>>>> {
    let mut headers: BTreeMap<String, Vec<Option<Vec<u8>>>> = BTreeMap::new();
    if raw.is_empty() {
        return headers;
    }
    let text = std::str::from_utf8(raw).expect("headers are text");
    let lines = text.strip_prefix("NATS/1.0\r\n").and_then(|text| text.strip_suffix("\r\n\r\n")).expect("headers");
    for line in lines.split("\r\n") {
        let (name, value) = line.split_once(": ").expect("name and value");
        let (name, value) = match (name, value.split_once('=')) {
            ("semel-header", Some((name, value))) => (unescaped(name), Some(unescaped(value))),
            ("semel-header", None) => (unescaped(value), None),
            _ => (name.as_bytes().to_vec(), Some(value.as_bytes().to_vec())),
        };
        headers.entry(String::from_utf8(name).expect("text")).or_default().push(value);
    }
    headers
}

fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        if let (b'%', Some((digits, behind))) = (first, behind.split_first_chunk::<2>()) {
            let digits = std::str::from_utf8(digits).expect("digits");
            bytes.push(u8::from_str_radix(digits, 16).expect("two digits"));
            rest = behind;
        } else {
            bytes.push(*first);
            rest = behind;
        }
    }
    bytes
}
