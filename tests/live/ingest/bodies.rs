//! Bodies that are wrong, too large, compressed, or break off.

use std::convert::Infallible;
use std::io::Write;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::Method;
use bytes::Bytes;
use hyper::body::Frame;
use semel::api::ingest::{Limits, OPENAPI, ROUTE};
use semel::api::server::{self, Bounds};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceExt;

use super::kit::{self, Answer, Form, KEY, ORDERS, ids, options, published, record, records, start, start_with};
use super::subjects;

/// A body whose chunks come as they are sent.
pub struct Channel(pub Box<dyn FnMut(&mut Context<'_>) -> Poll<Option<String>> + Send>);

impl HttpBody for Channel {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        (self.0)(context).map(|chunk| chunk.map(|chunk| Ok(Frame::data(chunk.into()))))
    }
}

/// A body that breaks off behind this text.
pub struct Broken(pub Option<String>);

impl HttpBody for Broken {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(Some(match self.0.take() {
            Some(text) => Ok(Frame::data(text.into())),
            None => Err(std::io::Error::other("the connection was lost")),
        }))
    }
}

fn headers(content_type: &str) -> [(&str, &str); 2] {
    [("x-api-key", KEY), ("content-type", content_type)]
}

#[test]
fn a_syntax_error_in_an_array_publishes_nothing() {
    super::run(async {
        let subject = subjects::memory().await;
        let instance = start(&subject).await;
        let mut all = records("s", 600);
        all.push("{\"id\":".to_owned());
        let not_json = Answer::failure(400, "the body is not JSON", None);
        assert_eq!(instance.post(Form::Array, &all).await, not_json);
        assert_eq!((published(&subject).await.len(), instance.store.calls()), (0, vec![]));
        let lines = instance.post(Form::Lines, &all).await;
        assert_eq!(lines.outcomes(), ["p".repeat(600), "r".to_owned()].concat(), "a line is by itself");
        for (body, right) in [("", "the body is not JSON"), ("5", "the body is neither an object nor an array")] {
            assert_eq!(instance.post_one(body).await, Answer::failure(400, right, None), "{body:?}");
        }
        let deep =
            |depth: usize| format!("{{\"id\":\"deep{depth}\",\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(instance.post_one(&deep(126)).await.outcomes(), "p");
        assert_eq!(instance.post_one(&deep(127)).await.body["results"][0]["reason"], "it is nested too deep");
    });
}

/// The open window is dropped unpublished; what was published before stays so.
#[test]
fn a_body_breaks_off() {
    super::run(async {
        let subject = subjects::memory().await;
        let instance = start(&subject).await;
        let text = Form::Lines.body(&records("b", 300));
        let broken = Body::new(Broken(Some(text)));
        let answer = instance.send(ORDERS, &headers("application/x-ndjson"), broken).await;
        assert_eq!(answer, Answer::failure(400, "the body broke off", None));
        assert_eq!(published(&subject).await, ids("b", 0..256));
        assert_eq!(instance.claimed("b", 0..300).await, (0..256).collect::<Vec<_>>());
        let again = kit::Instance::post(&instance, Form::Lines, &records("b", 300)).await;
        assert_eq!(again.counts(), (44, 256, 0));

        let text = Form::Array.body(&records("c", 300));
        let broken = Body::new(Broken(Some(text[..text.len() - 1].to_owned())));
        let answer = instance.send(ORDERS, &headers("application/json"), broken).await;
        assert_eq!(answer, Answer::failure(400, "the body broke off", None));
        assert_eq!(instance.claimed("c", 0..300).await, [0; 0]);
    });
}

#[test]
fn bounds() {
    super::run(async {
        let subject = subjects::memory().await;
        let limits = Limits {
            document_bytes_max: 20_000,
            stream_bytes_max: 40_000,
            records_max: 600,
            request_timeout: Duration::from_millis(300),
        };
        let instance = start_with(&subject, options(&subject, "a"), limits).await;
        let large = Answer::failure(413, "the body is too large", None);
        assert_eq!(instance.post(Form::Array, &records("a", 1_000)).await, large);
        assert_eq!(instance.claimed("a", 0..10).await, [0; 0], "a document is read whole");
        let many = Answer::failure(413, "too many records", None);
        assert_eq!(instance.post(Form::Lines, &records("b", 601)).await, many);
        assert_eq!(instance.post(Form::Lines, &records("b", 600)).await.counts(), (88, 512, 0));
        let long = format!("{{\"text\":\"{}\"}}", "x".repeat(60_000));
        assert_eq!(instance.post(Form::Lines, &[long]).await, large);
        let slow = Body::new(Channel(Box::new(|_| Poll::Pending)));
        let late = Answer::failure(408, "the request took too long", None);
        assert_eq!(instance.send(ORDERS, &headers("application/x-ndjson"), slow).await, late);
        for content_type in ["text/plain", "application/jsonl", ""] {
            let answer = instance.send(ORDERS, &headers(content_type), record("x")).await;
            assert_eq!(answer, Answer::failure(415, "unsupported content type", None), "{content_type}");
        }
    });
}

#[test]
fn compressed() {
    super::run(async {
        let subject = subjects::memory().await;
        let instance = start(&subject).await;
        let gzip = |text: &str| {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(text.as_bytes()).expect("memory");
            encoder.finish().expect("memory")
        };
        let zstd = |text: &str| zstd::stream::encode_all(text.as_bytes(), 3).expect("memory");
        let send = async |encoding: &'static str, form: Form, body: Vec<u8>| {
            let given = [("x-api-key", KEY), ("content-type", form.content_type()), ("content-encoding", encoding)];
            instance.send(ORDERS, &given, body).await
        };
        for form in kit::FORMS {
            let text = |prefix| form.body(&records(&format!("{prefix}{form:?}"), 300));
            assert_eq!(send("gzip", form, gzip(&text("g"))).await.counts(), (300, 0, 0));
            assert_eq!(send("zstd", form, zstd(&text("z"))).await.counts(), (300, 0, 0));
            assert_eq!(send("identity", form, text("z").into_bytes()).await.counts(), (0, 300, 0));
        }
        let bomb = "0".repeat(16 << 20);
        let large = Answer::failure(413, "the body is too large", None);
        assert_eq!(send("gzip", Form::Lines, gzip(&bomb)).await, large);
        assert_eq!(send("zstd", Form::Array, zstd(&bomb)).await, large);
        let wrong = Answer::failure(400, "the body is not in the encoding it is said to be in", None);
        assert_eq!(send("gzip", Form::Array, b"{}".to_vec()).await, wrong);
        let unsupported = Answer::failure(415, "unsupported content encoding", None);
        assert_eq!(send("br", Form::Array, b"{}".to_vec()).await, unsupported);
        assert_eq!(send("gzip, zstd", Form::Array, b"{}".to_vec()).await, unsupported);
    });
}

/// The document names every route, every status that was ever seen here, and the reasons' shape.
#[test]
fn what_is_served_is_described() {
    let document: serde_json::Value = serde_json::from_str(OPENAPI).expect("JSON");
    let paths = document["paths"].as_object().expect("paths");
    let named: Vec<&String> = paths.keys().collect();
    assert_eq!(named, ["/openapi.json", ROUTE]);
    let statuses: Vec<&String> = paths[ROUTE]["post"]["responses"].as_object().expect("responses").keys().collect();
    assert_eq!(statuses, ["200", "400", "401", "403", "408", "413", "415", "500", "503"]);
    let pattern = &document["components"]["schemas"]["Name"];
    assert_eq!(pattern["maxLength"], semel::pipeline::ingest::NAME_BYTES_MAX);
    super::run(async {
        let instance = start(&subjects::memory().await).await;
        let ask = async |method: Method, path: &str| {
            let request = axum::http::Request::builder().method(method).uri(path).body(Body::empty()).expect("sound");
            let response = instance.routes.clone().oneshot(request).await.expect("an answer");
            let status = response.status().as_u16();
            (status, axum::body::to_bytes(response.into_body(), usize::MAX).await.expect("a body"))
        };
        assert_eq!(ask(Method::GET, "/openapi.json").await, (200, Bytes::from_static(OPENAPI.as_bytes())));
        assert_eq!(ask(Method::GET, ORDERS).await.0, 405);
        assert_eq!(ask(Method::POST, "/v1/ingest/acme").await.0, 404);
    });
}

const BOUNDS: Bounds = Bounds {
    connections_max: 4,
    head_timeout: Duration::from_secs(2),
    head_bytes_max: 16 << 10,
    headers_max: 20,
    life: Duration::from_secs(60),
    last_request: Duration::from_secs(10),
};

fn head(length: usize, more: &str) -> String {
    format!(
        "POST {ORDERS} HTTP/1.1\r\nHost: s\r\nConnection: close\r\nX-Api-Key: {KEY}\r\n\
         Content-Type: application/x-ndjson\r\nContent-Length: {length}\r\n{more}\r\n"
    )
}

/// A connection that is lost in the middle of a body leaves what was published settled, and nothing else.
#[test]
fn a_connection_is_lost() {
    super::run(async {
        let subject = subjects::memory().await;
        let instance = start(&subject).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let serving = tokio::spawn(server::serve(listener, instance.routes.clone(), BOUNDS, std::future::pending()));
        let text = Form::Lines.body(&records("t", 300));
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        stream.write_all(head(text.len() + 1_000, "").as_bytes()).await.expect("sent");
        stream.write_all(text.as_bytes()).await.expect("sent");
        let begun = std::time::Instant::now();
        while published(&subject).await.len() < 256 {
            assert!(
                begun.elapsed() < Duration::from_secs(10),
                "the first window is published while the second is read"
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        drop(stream);
        tokio::time::sleep(Duration::from_millis(600)).await;
        assert_eq!(instance.post(Form::Lines, &records("t", 256)).await.counts(), (0, 256, 0));
        assert_eq!(instance.claimed("t", 0..300).await, (0..256).collect::<Vec<_>>());
        serving.abort();
    });
}

/// A request that has begun is answered although the end is asked for; heads beyond the bounds are refused.
#[test]
fn an_end_waits_for_requests() {
    super::run(async {
        let subject = subjects::memory().await;
        let instance = start(&subject).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let ended = async move { drop(ended.await) };
        let serving = tokio::spawn(server::serve(listener, instance.routes.clone(), BOUNDS, ended));
        let ask = async |text: String| {
            let mut stream = TcpStream::connect(address).await.expect("it listens");
            stream.write_all(text.as_bytes()).await.expect("sent");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.expect("an answer");
            answer
        };
        let many: String = (0..30).map(|n| format!("X-{n}: 1\r\n")).collect();
        assert!(ask(head(0, &many)).await.starts_with("HTTP/1.1 431"), "too many headers");
        let long = format!("X-Long: {}\r\n", "x".repeat(20_000));
        assert!(ask(head(0, &long)).await.starts_with("HTTP/1.1 431"), "headers that are too long");
        instance.scripts.fault(0, super::scripted::Fault::Slow(Duration::from_millis(400)));
        let one = record("e");
        let slow = ask([head(one.len(), ""), one].concat());
        let ending = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            end.send(()).expect("it serves");
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert!(!serving.is_finished(), "it waits for the request");
        };
        let (answer, ()) = tokio::join!(slow, ending);
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"published\":1"), "{answer}");
        tokio::time::timeout(Duration::from_secs(5), serving).await.expect("it ends").expect("no panic");
        assert!(TcpStream::connect(address).await.is_err(), "nobody listens any more");
    });
}
