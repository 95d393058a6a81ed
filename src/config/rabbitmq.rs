//! RabbitMQ's URLs: a queue to read, or an exchange or queue to write to.

use super::servers::{Scheme, Servers, ServersUrl};

const SCHEMES: &[Scheme] =
    &[Scheme { begins: "amqp://", tls: false, port: 5672 }, Scheme { begins: "amqps://", tls: true, port: 5671 }];
const DEFAULT_VHOST: &str = "/";
/// Most deliveries that are out at a time. Enough to fill windows, and what a consumer of a quorum queue may have.
const DEFAULT_PREFETCH: u16 = 2_000;
/// AMQP's short strings.
const NAME_BYTES_MAX: usize = 255;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    pub servers: Servers,
    pub vhost: String,
    pub queue: String,
    pub prefetch: u16,
}

impl Source {
    pub(super) fn parse(text: &str) -> Result<Source, String> {
        let url = ServersUrl::parse(text, SCHEMES, &["queue", "prefetch"])?;
        if url.servers.hosts.is_empty() {
            return Err("it names no host".to_owned());
        }
        let queue = url.needed("queue")?;
        check_queue(&queue)?;
        let prefetch = url.count("prefetch", DEFAULT_PREFETCH)?;
        Ok(Source {
            vhost: url.path.unwrap_or_else(|| DEFAULT_VHOST.to_owned()),
            servers: url.servers,
            queue,
            prefetch,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sink {
    pub servers: Servers,
    pub vhost: String,
    /// Empty: the default exchange, which routes to the queue that the routing key names.
    pub exchange: String,
    pub routing_key: String,
}

impl Sink {
    /// Without a host it is the source's broker, and without a path then the source's virtual host.
    pub(super) fn parse(text: &str, source: Option<&Source>) -> Result<Sink, String> {
        let url = ServersUrl::parse(text, SCHEMES, &["queue", "exchange", "routing_key"])?;
        let (exchange, routing_key) = match (url.parameter("queue"), url.parameter("exchange")) {
            (Some(queue), None) if url.parameter("routing_key").is_none() => (String::new(), queue.to_owned()),
            (None, Some(exchange)) => {
                (exchange.to_owned(), url.parameter("routing_key").unwrap_or_default().to_owned())
            }
            (Some(_), _) => return Err("beside `queue` neither `exchange` nor `routing_key` is taken".to_owned()),
            (None, None) => return Err("it names neither queue nor exchange (`?queue=…`, `?exchange=…`)".to_owned()),
        };
        check_name(&exchange)?;
        check_name(&routing_key)?;
        let (servers, vhost) = match (url.servers.hosts.is_empty(), source) {
            (false, _) => (url.servers, DEFAULT_VHOST),
            (true, Some(source)) => (source.servers.clone(), source.vhost.as_str()),
            (true, None) => return Err("it names no host, and the source is no queue of RabbitMQ".to_owned()),
        };
        let vhost = url.path.unwrap_or_else(|| vhost.to_owned());
        Ok(Sink { servers, vhost, exchange, routing_key })
    }

    /// The queue, where it is named.
    pub fn queue(&self) -> Option<&str> {
        self.exchange.is_empty().then_some(self.routing_key.as_str())
    }

    /// Whether a queue of this name is the source's.
    pub(super) fn feeds(&self, queue: &str, source: &Source) -> bool {
        queue == source.queue && self.vhost == source.vhost && self.servers.meet(&source.servers)
    }
}

pub(super) fn check_queue(name: &str) -> Result<(), String> {
    if name.trim().is_empty() {
        return Err("the queue's name is blank".to_owned());
    }
    check_name(name)
}

fn check_name(name: &str) -> Result<(), String> {
    match name {
        _ if name.len() > NAME_BYTES_MAX => Err(format!("a name in RabbitMQ has at most {NAME_BYTES_MAX} bytes")),
        _ if name.chars().any(char::is_control) => Err("a name has a control character in it".to_owned()),
        _ => Ok(()),
    }
}
