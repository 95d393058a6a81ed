//! Where the database is and how it is reached: the URL, and libpq's environment variables where the URL is silent.

use std::fmt;
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use postgres_openssl::MakeTlsConnector;
use tokio_postgres::Config;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};

use super::tls::{TlsSettings, Verify, connector};
use crate::store::StoreError;

/// What is needed to reach the store. Debug shows neither the password nor the URL that may hold it.
#[derive(Clone)]
pub struct PostgresOptions {
    /// `postgres://user:password@host:port/database?sslmode=…`, several hosts allowed. Every part may be missing.
    pub url: String,
    /// Most connections at a time.
    pub pool_size: usize,
    /// Longest wait for a connection to be made, its TLS and log-in included.
    pub connect_timeout: Duration,
    /// Longest time that sent data may stay unacknowledged before the kernel gives the connection up.
    pub tcp_user_timeout: Duration,
    /// Longest wait for one lock, and longest run of one statement of a claim or a takeover.
    pub lock_timeout: Duration,
    pub statement_timeout: Duration,
    /// Longest run of the statements that may have to read every claim: a lane's cut, `semel release`.
    pub scan_timeout: Duration,
}

impl PostgresOptions {
    pub fn new(url: impl Into<String>) -> PostgresOptions {
        PostgresOptions {
            url: url.into(),
            pool_size: 8,
            connect_timeout: Duration::from_secs(5),
            tcp_user_timeout: Duration::from_secs(10),
            lock_timeout: Duration::from_secs(10),
            statement_timeout: Duration::from_secs(30),
            scan_timeout: Duration::from_secs(240),
        }
    }
}

impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresOptions")
            .field("pool_size", &self.pool_size)
            .field("connect_timeout", &self.connect_timeout)
            .field("tcp_user_timeout", &self.tcp_user_timeout)
            .field("lock_timeout", &self.lock_timeout)
            .field("statement_timeout", &self.statement_timeout)
            .field("scan_timeout", &self.scan_timeout)
            .finish_non_exhaustive()
    }
}

/// The client's own form of it. `tls` None: plain text.
pub struct Connect {
    pub config: Config,
    pub tls: Option<MakeTlsConnector>,
}

/// Reads the options. `env` looks up `PG*` variables, which hold where the URL is silent.
pub fn connect_settings(
    options: &PostgresOptions,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Connect, StoreError> {
    let (base, query) = options.url.split_once('?').unwrap_or((&options.url, ""));
    let mut settings = Settings::default();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        settings.set(name, &percent_decode_str(value).decode_utf8_lossy());
    }
    settings.fill_in(env);
    let mut url = with_port(base, env);
    for (n, (name, value)) in settings.other.iter().enumerate() {
        let separator = if n == 0 { '?' } else { '&' };
        url.push_str(&format!("{separator}{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC)));
    }
    let mut config: Config = url.parse().map_err(|error: tokio_postgres::Error| rejected(url_error(&error)))?;
    fill_in(&mut config, env)?;
    let named_target = settings.other.iter().any(|(name, _)| name == "target_session_attrs");
    if !named_target {
        // A demoted primary still answers, but takes no claim.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    config.connect_timeout(options.connect_timeout).tcp_user_timeout(options.tcp_user_timeout);
    config.keepalives_idle(Duration::from_secs(30));
    let (mode, verify) = settings.tls_mode()?;
    config.ssl_mode(mode);
    let tls = match mode {
        SslMode::Disable => None,
        _ => Some(connector(&settings.tls, verify)?),
    };
    Ok(Connect { config, tls })
}

/// Gives PGPORT to hosts that name no port: the client library would take them for 5432.
fn with_port(base: &str, env: &dyn Fn(&str) -> Option<String>) -> String {
    let Some(port) = env("PGPORT").filter(|port| !port.is_empty() && !port.contains(',')) else {
        return base.to_owned();
    };
    let authority = base.find("://").map_or(0, |at| at + 3);
    let end = base[authority..].find('/').map_or(base.len(), |at| authority + at);
    let hosts = base[authority..end].rfind('@').map_or(authority, |at| authority + at + 1);
    let named = |host: &str| host.is_empty() || host.rsplit(']').next().is_some_and(|rest| rest.contains(':'));
    let hosts_with_port = base[hosts..end].split(',').map(|host| match named(host) {
        true => host.to_owned(),
        false => format!("{host}:{port}"),
    });
    format!("{}{}{}", &base[..hosts], hosts_with_port.collect::<Vec<_>>().join(","), &base[end..])
}

/// What the client library does not know, apart from what it knows.
#[derive(Default)]
struct Settings {
    mode: Option<String>,
    tls: TlsSettings,
    other: Vec<(String, String)>,
}

impl Settings {
    fn set(&mut self, name: &str, value: &str) {
        match name {
            "sslmode" => self.mode = Some(value.to_owned()),
            "sslrootcert" => self.tls.root_cert = Some(value.into()),
            "sslcert" => self.tls.cert = Some(value.into()),
            "sslkey" => self.tls.key = Some(value.into()),
            _ => self.other.push((name.to_owned(), value.to_owned())),
        }
    }

    fn fill_in(&mut self, env: &dyn Fn(&str) -> Option<String>) {
        let set = |name: &str| env(name).filter(|value| !value.is_empty());
        self.mode = self.mode.take().or_else(|| set("PGSSLMODE"));
        self.tls.root_cert = self.tls.root_cert.take().or_else(|| set("PGSSLROOTCERT").map(Into::into));
        self.tls.cert = self.tls.cert.take().or_else(|| set("PGSSLCERT").map(Into::into));
        self.tls.key = self.tls.key.take().or_else(|| set("PGSSLKEY").map(Into::into));
        for (name, variable) in [("options", "PGOPTIONS"), ("target_session_attrs", "PGTARGETSESSIONATTRS")] {
            if !self.other.iter().any(|(there, _)| there == name)
                && let Some(value) = set(variable)
            {
                self.other.push((name.to_owned(), value));
            }
        }
    }

    fn tls_mode(&self) -> Result<(SslMode, Verify), StoreError> {
        Ok(match self.mode.as_deref() {
            Some("disable") => (SslMode::Disable, Verify::Nothing),
            None | Some("prefer" | "allow") => (SslMode::Prefer, Verify::Nothing),
            // As libpq does: whoever names a root certificate wants it checked.
            Some("require") if self.tls.root_cert.is_some() => (SslMode::Require, Verify::Chain),
            Some("require") => (SslMode::Require, Verify::Nothing),
            Some("verify-ca") => (SslMode::Require, Verify::Chain),
            Some("verify-full") => (SslMode::Require, Verify::ChainAndName),
            Some(other) => {
                let known = "disable, prefer, require, verify-ca or verify-full";
                return Err(rejected(format!("sslmode is {other:?}, not {known}")));
            }
        })
    }
}

/// Host, port, user, password and database, where the URL names none.
fn fill_in(config: &mut Config, env: &dyn Fn(&str) -> Option<String>) -> Result<(), StoreError> {
    let set = |name: &str| env(name).filter(|value| !value.is_empty());
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        for host in set("PGHOST").as_deref().unwrap_or("localhost").split(',') {
            config.host(host);
        }
    }
    if config.get_ports().is_empty()
        && let Some(ports) = set("PGPORT")
    {
        for port in ports.split(',') {
            config.port(port.parse().map_err(|_| rejected(format!("PGPORT is {port:?}, not a port")))?);
        }
    }
    if config.get_user().is_none()
        && let Some(user) = set("PGUSER")
    {
        config.user(user);
    }
    if config.get_password().is_none()
        && let Some(password) = set("PGPASSWORD")
    {
        config.password(password);
    }
    if config.get_dbname().is_none()
        && let Some(database) = set("PGDATABASE")
    {
        config.dbname(database);
    }
    if config.get_application_name().is_none() {
        config.application_name(set("PGAPPNAME").unwrap_or_else(|| "semel".into()));
    }
    Ok(())
}

/// The parser's words name the parameter and never its value.
fn url_error(error: &tokio_postgres::Error) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("the database URL is not valid: {cause}"),
        None => "the database URL is not valid".into(),
    }
}

fn rejected(problem: String) -> StoreError {
    StoreError::Rejected(problem.into())
}

#[cfg(test)]
mod tests {
    use tokio_postgres::config::Host;

    use super::*;

    /// URL, environment, and what comes of them: hosts with ports, user, password, database, TLS, application.
    #[test]
    fn what_is_connected_to() {
        let all: &[(&str, &str)] = &[
            ("PGHOST", "e1,e2"),
            ("PGPORT", "1,2"),
            ("PGUSER", "eu"),
            ("PGPASSWORD", "ep"),
            ("PGDATABASE", "ed"),
            ("PGAPPNAME", "ea"),
            ("PGSSLMODE", "disable"),
        ];
        let cases = [
            (
                "everything in the URL",
                "postgres://u:p@h:7/d?sslmode=require&application_name=a",
                all,
                "h:7 u p d Require a",
            ),
            ("nothing in the URL", "postgres://", all, "e1:1,e2:2 eu ep ed Disable ea"),
            ("nothing anywhere", "postgresql://", &[], "localhost - - - Prefer semel"),
            (
                "empty variables are none",
                "postgres://",
                &[("PGHOST", ""), ("PGUSER", "")],
                "localhost - - - Prefer semel",
            ),
            ("several hosts", "postgres://u@a:1,b:2/d", &[], "a:1,b:2 u - d Prefer semel"),
            ("a port alone", "postgres://u@a,b:2,[::1]/d", &[("PGPORT", "9")], "a:9,b:2,::1:9 u - d Prefer semel"),
            ("escaped", "postgres://u%40x:p%2Fq%3F@h/d%20e?sslmode=disable", &[], "h:5432 u@x p/q? d e Disable semel"),
            (
                "verify-full is not the client's word",
                "postgres://h?sslmode=verify-full",
                &[],
                "h:5432 - - - Require semel",
            ),
        ];
        for (why, url, env, expected) in cases {
            let env = |name: &str| env.iter().find(|(there, _)| *there == name).map(|(_, value)| (*value).to_owned());
            let config =
                connect_settings(&PostgresOptions::new(url), &env).unwrap_or_else(|e| panic!("{why}: {e:?}")).config;
            let host = |host: &Host| match host {
                Host::Tcp(name) => name.clone(),
                Host::Unix(path) => path.display().to_string(),
            };
            let hosts: Vec<String> = config.get_hosts().iter().map(host).collect();
            let ports = config.get_ports();
            let hosts: Vec<String> = match ports.len() {
                0 => hosts,
                _ => hosts.iter().zip(ports).map(|(host, port)| format!("{host}:{port}")).collect(),
            };
            let password = config.get_password().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            let found = format!(
                "{} {} {} {} {:?} {}",
                hosts.join(","),
                config.get_user().unwrap_or("-"),
                password.as_deref().unwrap_or("-"),
                config.get_dbname().unwrap_or("-"),
                config.get_ssl_mode(),
                config.get_application_name().unwrap_or("-"),
            );
            assert_eq!(found, expected, "{why}");
            assert_eq!(config.get_target_session_attrs(), TargetSessionAttrs::ReadWrite, "{why}");
        }
    }

    /// Refused in words that name the setting, and nothing that may be secret.
    #[test]
    fn what_is_refused() {
        let cases = [
            ("postgres://u:hush@h?sslmode=verified", "sslmode"),
            ("postgres://u:hush@h?sslrootcert=/none", "ok"),
            ("postgres://u:hush@h?sslmode=verify-ca&sslrootcert=/none", "sslrootcert /none"),
            ("postgres://u:hush@h?sslcert=/none", "sslcert /none"),
            ("postgres://u:hush@h?connect_timeout=hush", "connect_timeout"),
            ("postgres://u:hush@h?unheard_of=hush", "unheard_of"),
            ("mysql://u:hush@h", "database URL"),
            ("postgres://u:hush@h:port", "port"),
        ];
        for (url, expected) in cases {
            let options = PostgresOptions::new(url);
            assert!(!format!("{options:?}").contains("hush"));
            let told = match connect_settings(&options, &|_| None) {
                Ok(_) => "ok".to_owned(),
                Err(error) => {
                    assert!(!format!("{error:?}").contains("hush"), "{error:?}");
                    std::error::Error::source(&error).expect("a cause").to_string()
                }
            };
            assert!(told.contains(expected), "{url}: {told}");
        }
        let env = |name: &str| (name == "PGPORT").then(|| "many".to_owned());
        for url in ["postgres://", "postgres://h"] {
            let error = connect_settings(&PostgresOptions::new(url), &env).err().expect("a refusal");
            assert!(std::error::Error::source(&error).expect("a cause").to_string().contains("port"), "{error:?}");
        }
    }
}
