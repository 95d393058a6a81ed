//! How a broker is reached, and where messages go on it.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use lapin::tcp::OwnedTLSConfig;
use lapin::uri::{AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo};
use lapin::{Connection, ConnectionProperties, Error};
use tokio::time::timeout;

use crate::sink::Destination;

#[derive(Debug, Clone)]
pub struct RabbitOptions {
    pub server: Server,
    pub forward: Route,
    pub dead_letter: Option<Route>,
    pub duplicates: Option<Route>,
    /// Longest that one call of publish takes, a new connection included; what is unconfirmed then is in doubt.
    pub timeout: Duration,
    /// Most messages that are sent and not confirmed.
    pub unconfirmed_max: usize,
    /// Most bytes of a body. The broker closes the channel at a longer one, and does not say before how long it may be.
    pub message_bytes_max: usize,
}

impl RabbitOptions {
    pub fn new(server: Server, forward: Route) -> RabbitOptions {
        RabbitOptions {
            server,
            forward,
            dead_letter: None,
            duplicates: None,
            timeout: Duration::from_secs(10),
            unconfirmed_max: 1_000,
            message_bytes_max: 16 << 20,
        }
    }

    pub fn route(&self, destination: Destination) -> Option<&Route> {
        match destination {
            Destination::Forward => Some(&self.forward),
            Destination::DeadLetter => self.dead_letter.as_ref(),
            Destination::Duplicates => self.duplicates.as_ref(),
        }
    }

    pub(super) fn routes(&self) -> impl Iterator<Item = &Route> {
        [Some(&self.forward), self.dead_letter.as_ref(), self.duplicates.as_ref()].into_iter().flatten()
    }
}

/// At most 255 bytes each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Empty: the default exchange, which routes to the queue that the key names.
    pub exchange: String,
    pub routing_key: String,
}

impl Route {
    pub fn to_queue(queue: &str) -> Route {
        Route { exchange: String::new(), routing_key: queue.to_owned() }
    }

    /// Its queue is known, and is the only one.
    pub(super) fn is_one_queue(&self) -> bool {
        self.exchange.is_empty()
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_one_queue() {
            write!(f, "queue {}", self.routing_key)
        } else {
            write!(f, "exchange {} with routing key {:?}", self.exchange, self.routing_key)
        }
    }
}

#[derive(Clone)]
pub struct Server {
    /// `host:port` each, an IPv6 address in brackets; tried in their order.
    pub hosts: Vec<String>,
    /// Certificate and name are checked, by the system's authorities or those of `ca_file`.
    pub tls: bool,
    /// Authorities to trust, as PEM.
    pub ca_file: Option<PathBuf>,
    pub user: String,
    pub password: String,
    pub vhost: String,
    /// The connection's name, as the broker shows it.
    pub name: String,
    /// A silent broker is given up after twice this time. Whole seconds, at least one.
    pub heartbeat: Duration,
    /// For each host.
    pub connect_timeout: Duration,
}

impl Server {
    pub fn new(hosts: Vec<String>, user: &str, password: &str, vhost: &str) -> Server {
        Server {
            hosts,
            tls: false,
            ca_file: None,
            user: user.to_owned(),
            password: password.to_owned(),
            vhost: vhost.to_owned(),
            name: "semel".to_owned(),
            heartbeat: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
        }
    }

    /// A connection to the first host that answers; the last one's error where none does. lapin would make a lost one
    /// anew by itself only if asked to, and is not.
    pub(super) async fn connect(&self) -> Result<Connection, Error> {
        let trusted = self.trusted()?;
        let mut problem = std::io::Error::other("no host is named").into();
        for host in &self.hosts {
            let tls = OwnedTLSConfig { identity: None, cert_chain: trusted.clone() };
            let name = ConnectionProperties::default().with_connection_name(self.name.as_str().into());
            let runtime = lapin::runtime::default_runtime()?;
            let connecting = Connection::connect_uri_with_config(self.uri(host), name, tls, runtime);
            problem = match timeout(self.connect_timeout, connecting).await {
                Ok(Ok(connection)) => return Ok(connection),
                Ok(Err(error)) => error,
                Err(_) => std::io::Error::from(std::io::ErrorKind::TimedOut).into(),
            };
        }
        Err(problem)
    }

    /// Built by hand: of a text lapin takes an IPv6 address for `localhost`.
    fn uri(&self, host: &str) -> AMQPUri {
        let scheme = if self.tls { AMQPScheme::AMQPS } else { AMQPScheme::AMQP };
        let (name, port) = match host.rsplit_once(':').map(|(name, port)| (name, port.parse())) {
            Some((name, Ok(port))) => (name, port),
            _ => (host, scheme.default_port()),
        };
        let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        AMQPUri {
            authority: AMQPAuthority {
                userinfo: AMQPUserInfo { username: self.user.clone(), password: self.password.clone() },
                host: name.to_owned(),
                port,
            },
            scheme,
            vhost: self.vhost.clone(),
            query: AMQPQueryString {
                heartbeat: Some(self.heartbeat.as_secs().clamp(1, u16::MAX.into()) as u16),
                ..AMQPQueryString::default()
            },
        }
    }

    fn trusted(&self) -> Result<Option<String>, Error> {
        if !self.tls {
            return Ok(None);
        }
        // The TLS library is built in and does not know where this system keeps its certificates.
        let file = self.ca_file.clone().or_else(|| openssl_probe::probe().cert_file);
        let read = |path: PathBuf| {
            let named = |error: std::io::Error| {
                std::io::Error::new(error.kind(), format!("cannot read {}: {error}", path.display()))
            };
            std::fs::read_to_string(&path).map_err(named)
        };
        Ok(file.map(read).transpose()?)
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Server { hosts, tls, ca_file, user, vhost, name, heartbeat, connect_timeout, password: _ } = self;
        f.debug_struct("Server")
            .field("hosts", hosts)
            .field("tls", tls)
            .field("ca_file", ca_file)
            .field("user", user)
            .field("vhost", vhost)
            .field("name", name)
            .field("heartbeat", heartbeat)
            .field("connect_timeout", connect_timeout)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_as_the_client_takes_them() {
        let cases = [
            ("h:1", false, ("h", 1), "name and port"),
            ("h", false, ("h", 5672), "the usual port"),
            ("h", true, ("h", 5671), "the usual port of TLS"),
            ("[::1]:7", false, ("::1", 7), "an IPv6 address"),
        ];
        for (host, tls, right, why) in cases {
            let server = Server { tls, ..Server::new(Vec::new(), "u", "secret/@", "/") };
            let uri = server.uri(host);
            assert_eq!((uri.authority.host.as_str(), uri.authority.port), right, "{host}: {why}");
            assert_eq!((uri.vhost.as_str(), uri.query.heartbeat), ("/", Some(10)), "{why}");
            assert_eq!(uri.authority.userinfo.password, "secret/@", "{why}");
            assert!(!format!("{server:?}").contains("secret"), "{why}");
        }
    }
}
