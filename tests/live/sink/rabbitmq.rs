//! RabbitMQ by its management interface: another client, in another language.

use std::io::{Read, Write};
use std::net::TcpStream;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::Stored;

/// How it shows bytes that are no text, and nothing.
const NO_TEXT: &str = "Not UTF-8, base64 is: ";
const VOID: &str = "undefined";
/// What a quorum queue adds.
const DELIVERIES: &str = "x-delivery-count";

#[derive(Debug, Clone)]
pub struct Management {
    /// `http://USER:PASSWORD@HOST:PORT`
    url: String,
}

impl Management {
    pub fn new(url: &str) -> Management {
        assert!(!url.is_empty(), "RabbitMQ was not started: run tests/run");
        Management { url: url.to_owned() }
    }

    pub async fn declare(&self, queue: &str, arguments: Value) {
        let body = json!({"durable": true, "auto_delete": false, "arguments": arguments});
        self.done("PUT", &format!("queues/%2F/{queue}"), &body).await;
    }

    pub async fn delete(&self, queue: &str) {
        self.done("DELETE", &format!("queues/%2F/{queue}"), &Value::Null).await;
    }

    pub async fn declare_exchange(&self, exchange: &str, kind: &str, queues: &[&str]) {
        let body = json!({"type": kind, "durable": true, "auto_delete": false, "arguments": {}});
        self.done("PUT", &format!("exchanges/%2F/{exchange}"), &body).await;
        for queue in queues {
            let bound = json!({"routing_key": "", "arguments": {}});
            self.done("POST", &format!("bindings/%2F/e/{exchange}/q/{queue}"), &bound).await;
        }
    }

    pub async fn delete_exchange(&self, exchange: &str) {
        self.done("DELETE", &format!("exchanges/%2F/{exchange}"), &Value::Null).await;
    }

    /// Takes all messages out of a queue, with their properties as the interface shows them.
    pub async fn take_raw(&self, queue: &str) -> Vec<Value> {
        const AT_ONCE: usize = 5_000;
        let body = json!({"count": AT_ONCE, "ackmode": "ack_requeue_false", "encoding": "base64"});
        let mut messages = Vec::new();
        loop {
            let answer = self.done("POST", &format!("queues/%2F/{queue}/get"), &body).await;
            let Value::Array(some) = answer else { panic!("messages: {answer}") };
            let is_last = some.len() < AT_ONCE;
            messages.extend(some);
            if is_last {
                return messages;
            }
        }
    }

    pub async fn take(&self, queue: &str) -> Vec<Stored> {
        self.take_raw(queue).await.iter().map(stored).collect()
    }

    async fn done(&self, method: &str, path: &str, body: &Value) -> Value {
        let (url, method, path, body) = (self.url.clone(), method.to_owned(), path.to_owned(), body.to_string());
        let call = tokio::task::spawn_blocking(move || {
            let (status, answer) = ask(&url, &method, &path, &body);
            assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
            if answer.trim().is_empty() { Value::Null } else { serde_json::from_str(&answer).expect("JSON") }
        });
        call.await.expect("no panic")
    }
}

fn ask(url: &str, method: &str, path: &str, body: &str) -> (u16, String) {
    let (login, host) = url.strip_prefix("http://").and_then(|rest| rest.rsplit_once('@')).expect("a URL");
    let mut connection = TcpStream::connect(host).expect("the management interface listens");
    let request = format!(
        "{method} /api/{path} HTTP/1.0\r\nHost: {host}\r\nAuthorization: Basic {}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        STANDARD.encode(login),
        body.len(),
    );
    connection.write_all(request.as_bytes()).expect("it is sent");
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer).expect("an answer");
    let answer = String::from_utf8(answer).expect("text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, body.to_owned())
}

fn stored(message: &Value) -> Stored {
    let properties = &message["properties"];
    assert_eq!(properties["delivery_mode"], 2, "persistent");
    let mut stored = Stored {
        id: properties["message_id"].as_str().map(str::to_owned),
        timestamp_millis: properties["timestamp"].as_i64().map(|seconds| seconds * 1000),
        ..Stored::default()
    };
    let body = STANDARD.decode(message["payload"].as_str().expect("a payload")).expect("base64");
    for (name, value) in properties["headers"].as_object().into_iter().flatten() {
        let values = match value {
            Value::Array(values) => values.iter().map(bytes).collect(),
            value => vec![bytes(value)],
        };
        stored.headers.insert(name.clone(), values);
    }
    stored.headers.remove(DELIVERIES);
    if let Some(null) = stored.headers.remove("semel-null") {
        assert_eq!((null, body.len()), (vec![Some(b"1".to_vec())], 0));
    } else {
        stored.value = Some(body);
    }
    stored.key = stored.headers.remove("semel-key").and_then(|mut values| values.remove(0));
    stored
}

fn bytes(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(void) if void == VOID => None,
        Value::String(text) => Some(match text.strip_prefix(NO_TEXT) {
            Some(encoded) => STANDARD.decode(encoded).expect("base64"),
            None => text.clone().into_bytes(),
        }),
        other => Some(other.to_string().into_bytes()),
    }
}
