//! URLs of NATS JetStream: a stream and a durable consumer to read with, or a subject to write to.

use std::time::Duration;

use super::servers::{Scheme, Servers, ServersUrl};
use super::units;

const SCHEMES: &[Scheme] = &[Scheme { begins: "nats://", tls: false, port: 4222 }];
/// Most deliveries that are out at a time, those of all instances together.
const DEFAULT_PREFETCH: u16 = 2_000;
const DEFAULT_ACK_WAIT: Duration = Duration::from_secs(30);
const ACK_WAIT: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3_600);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    pub servers: Servers,
    pub stream: String,
    pub consumer: String,
    pub prefetch: u16,
    /// What is out for longer is delivered again, unless it is asked for more time.
    pub ack_wait: Duration,
}

impl Source {
    pub(super) fn parse(text: &str) -> Result<Source, String> {
        let url = ServersUrl::parse(text, SCHEMES, &["stream", "consumer", "prefetch", "ack_wait"])?;
        check_servers(&url)?;
        let [stream, consumer] = ["stream", "consumer"].map(|name| {
            let given = url.needed(name)?;
            check_name(&given).map(|()| given)
        });
        let ack_wait = match url.parameter("ack_wait") {
            None => DEFAULT_ACK_WAIT,
            Some(text) => units::duration(text)
                .ok()
                .filter(|wait| ACK_WAIT.contains(wait))
                .ok_or("`ack_wait` is not a duration between 1s and 1h")?,
        };
        let prefetch = url.count("prefetch", DEFAULT_PREFETCH)?;
        Ok(Source { servers: url.servers, stream: stream?, consumer: consumer?, prefetch, ack_wait })
    }

    /// What a pipeline is called that reads with this consumer.
    pub(super) fn pipeline(&self) -> String {
        format!("{}.{}", self.stream, self.consumer)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sink {
    pub servers: Servers,
    pub subject: String,
}

impl Sink {
    /// Without a host it is the source's servers.
    pub(super) fn parse(text: &str, source: Option<&Source>) -> Result<Sink, String> {
        let url = ServersUrl::parse(text, SCHEMES, &["subject"])?;
        let subject = url.needed("subject")?;
        check_subject(&subject)?;
        let servers = match (url.servers.hosts.is_empty(), source) {
            (true, None) => return Err("it names no host, and the source is no stream of NATS".to_owned()),
            (true, Some(source)) if url.path.is_none() => source.servers.clone(),
            _ => {
                check_servers(&url)?;
                url.servers
            }
        };
        Ok(Sink { servers, subject })
    }
}

fn check_servers(url: &ServersUrl) -> Result<(), String> {
    match (url.servers.hosts.is_empty(), &url.path) {
        (true, _) => Err("it names no host".to_owned()),
        (false, Some(_)) => Err("it has no path: streams and subjects are named behind `?`".to_owned()),
        (false, None) => Ok(()),
    }
}

/// What JetStream takes as the name of a stream or a consumer.
fn check_name(name: &str) -> Result<(), String> {
    let sound =
        |char: char| !char.is_whitespace() && !char.is_control() && !matches!(char, '.' | '*' | '>' | '/' | '\\');
    match name.chars().all(sound) {
        true => Ok(()),
        false => {
            Err(format!("`{name}` is no name for a stream or consumer (no white space, `.`, `*`, `>`, `/`, `\\`)"))
        }
    }
}

/// A subject to publish to: no wildcards.
pub(super) fn check_subject(subject: &str) -> Result<(), String> {
    let sound = |token: &str| {
        let bad = |char: char| char.is_whitespace() || char.is_control() || matches!(char, '*' | '>');
        !token.is_empty() && !token.contains(bad)
    };
    match subject.split('.').all(sound) {
        true => Ok(()),
        false => Err(format!("`{subject}` is no subject to write to (words between dots, no wildcards)")),
    }
}
