//! How servers are reached, and which subjects messages go to.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::{Auth, AuthError, Client, ConnectError, ConnectOptions};

use crate::sink::Destination;

#[derive(Debug, Clone)]
pub struct NatsOptions {
    pub servers: Servers,
    pub forward: String,
    pub dead_letter: Option<String>,
    pub duplicates: Option<String>,
    /// The only stream that may hold these subjects; none where any may.
    pub stream: Option<String>,
    /// Name of the stream that is made for the subjects that none holds; none where they must be there.
    pub create: Option<String>,
    /// Longest that one call of publish takes, a new connection included; what is unconfirmed then is in doubt.
    pub timeout: Duration,
    /// Of the pipeline: what was in doubt is sent again when it has lapsed, and must be recognised then.
    pub lease: Duration,
    /// Most messages that are sent and not confirmed.
    pub unconfirmed_max: usize,
}

impl NatsOptions {
    pub fn new(servers: Servers, forward: &str) -> NatsOptions {
        NatsOptions {
            servers,
            forward: forward.to_owned(),
            dead_letter: None,
            duplicates: None,
            stream: None,
            create: None,
            timeout: Duration::from_secs(10),
            lease: Duration::from_secs(30),
            unconfirmed_max: 256,
        }
    }

    pub fn subject(&self, destination: Destination) -> Option<&str> {
        match destination {
            Destination::Forward => Some(&self.forward),
            Destination::DeadLetter => self.dead_letter.as_deref(),
            Destination::Duplicates => self.duplicates.as_deref(),
        }
    }

    pub(super) fn subjects(&self) -> impl Iterator<Item = &str> {
        [Some(self.forward.as_str()), self.dead_letter.as_deref(), self.duplicates.as_deref()].into_iter().flatten()
    }

    /// How long a stream has to remember keys: a message in doubt is sent again one lease later, by a run that may take
    /// another, and clocks are not exact.
    pub fn duplicate_window_min(&self) -> Duration {
        2 * self.lease + Duration::from_secs(1)
    }
}

#[derive(Clone)]
pub struct Servers {
    /// `host:port` each, an IPv6 address in brackets.
    pub hosts: Vec<String>,
    pub tls: bool,
    /// Authorities to trust instead of the system's, as PEM.
    pub ca_file: Option<PathBuf>,
    pub user: Option<String>,
    /// Without a user it is a token.
    pub password: Option<String>,
    /// The connection's name, as the server shows it.
    pub name: String,
    /// For each host.
    pub connect_timeout: Duration,
}

impl Servers {
    pub fn new(hosts: Vec<String>) -> Servers {
        Servers {
            hosts,
            tls: false,
            ca_file: None,
            user: None,
            password: None,
            name: "semel".to_owned(),
            connect_timeout: Duration::from_secs(5),
        }
    }

    /// A client of one connection. By itself the client makes a lost connection anew, for ever, and then sends what it
    /// still holds: long after its messages were given up as in doubt. So once connected it is given no log-in any
    /// more, and ends with its connection; who waits for an answer learns it at once.
    pub(super) async fn connect(&self) -> Result<Client, ConnectError> {
        let connected = Arc::new(AtomicBool::new(false));
        let mut options = ConnectOptions::with_auth_callback(self.log_in(connected.clone()))
            .name(&self.name)
            .connection_timeout(self.connect_timeout)
            .require_tls(self.tls)
            .ignore_discovered_servers()
            .retain_servers_order()
            .max_reconnects(self.hosts.len());
        if let Some(file) = &self.ca_file {
            options = options.add_root_certificates(file.clone());
        }
        let scheme = if self.tls { "tls" } else { "nats" };
        let hosts: Vec<String> = self.hosts.iter().map(|host| format!("{scheme}://{host}")).collect();
        let client = options.connect(&hosts[..]).await?;
        connected.store(true, Ordering::SeqCst);
        Ok(client)
    }

    fn log_in(
        &self,
        connected: Arc<AtomicBool>,
    ) -> impl Fn(Vec<u8>) -> std::future::Ready<Result<Auth, AuthError>> + Send + Sync + 'static {
        let (user, password) = (self.user.clone(), self.password.clone());
        move |_nonce| {
            std::future::ready(if connected.load(Ordering::SeqCst) {
                Err(AuthError::new("a lost connection is not made anew by the client"))
            } else {
                let mut auth = Auth::new();
                match &user {
                    Some(user) => (auth.username, auth.password) = (Some(user.clone()), password.clone()),
                    None => auth.token = password.clone(),
                }
                Ok(auth)
            })
        }
    }
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Servers { hosts, tls, ca_file, user, password: _, name, connect_timeout } = self;
        f.debug_struct("Servers")
            .field("hosts", hosts)
            .field("tls", tls)
            .field("ca_file", ca_file)
            .field("user", user)
            .field("name", name)
            .field("connect_timeout", connect_timeout)
            .finish_non_exhaustive()
    }
}
