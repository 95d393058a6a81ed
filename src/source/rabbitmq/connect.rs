//! A connection with a channel on which nothing is consumed yet, and what an error means.

use std::io;

use lapin::options::BasicQosOptions;
use lapin::protocol::{AMQPErrorKind, AMQPHardError, AMQPSoftError};
use lapin::tcp::OwnedTLSConfig;
use lapin::types::ShortString;
use lapin::uri::{AMQPAuthority, AMQPScheme, AMQPUri, AMQPUserInfo};
use lapin::{Channel, Connection, ConnectionProperties, Error, ErrorKind, runtime};

use super::RabbitMqSourceOptions;
use crate::source::SourceError;

/// In seconds: a broker that is silent for twice as long is gone.
const HEARTBEAT: u16 = 10;

/// The first host that lets us in, with the prefetch set.
pub(super) async fn connect(options: &RabbitMqSourceOptions) -> Result<(Connection, Channel), SourceError> {
    let mut failure = SourceError::Lost("there is no host".into());
    for host in &options.hosts {
        let made = tokio::time::timeout(options.timeout, open(options, host)).await;
        failure = match made {
            Ok(Ok(made)) => return Ok(made),
            Ok(Err(error)) => fate(error),
            Err(_) => SourceError::Lost(format!("{host} does not answer").into()),
        };
    }
    Err(failure)
}

async fn open(options: &RabbitMqSourceOptions, host: &str) -> Result<(Connection, Channel), Error> {
    let properties = ConnectionProperties::default().with_connection_name(format!("semel {}", options.client).into());
    let tls = OwnedTLSConfig { identity: None, cert_chain: options.tls.then(certificates).transpose()? };
    let uri = uri(options, host)?;
    let runtime = runtime::default_runtime()?;
    let connection = lapin::Connect::connect_with_config(uri, properties, tls, runtime).await?;
    let channel = connection.create_channel().await?;
    channel.basic_qos(options.prefetch, BasicQosOptions { global: false }).await?;
    Ok((connection, channel))
}

fn uri(options: &RabbitMqSourceOptions, host: &str) -> Result<AMQPUri, Error> {
    let parts = host.rsplit_once(':').and_then(|(name, port)| Some((name, port.parse().ok()?)));
    let (name, port) = parts.ok_or_else(|| io::Error::other(format!("{host} is not host:port")))?;
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let guest = AMQPUserInfo::default;
    let user = options.user.clone().map_or_else(guest, |(username, password)| AMQPUserInfo { username, password });
    let mut uri = AMQPUri {
        scheme: if options.tls { AMQPScheme::AMQPS } else { AMQPScheme::AMQP },
        authority: AMQPAuthority { userinfo: user, host: name.to_owned(), port },
        vhost: options.vhost.clone(),
        ..AMQPUri::default()
    };
    uri.query.heartbeat = Some(HEARTBEAT);
    Ok(uri)
}

/// Those of the system: the TLS library is built in and does not know where they are.
fn certificates() -> io::Result<String> {
    let file = openssl_probe::probe().cert_file;
    let path = file.ok_or_else(|| io::Error::other("this system has no certificates of authorities"))?;
    std::fs::read_to_string(path)
}

/// Refused is what an operator has to mend. A queue whose node is down is as little *not found* as a limit is a right
/// that is missing, though the broker answers with the same codes.
pub(super) fn fate(error: Error) -> SourceError {
    let ErrorKind::ProtocolError(told) = error.kind() else { return SourceError::Lost(error.into()) };
    let text = told.get_message().as_str().to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let refused = match told.kind() {
        AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND) => !says(&["down", "inaccessible"]),
        AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED) => !says(&["exclusive"]),
        AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED) => {
            !says(&["timeout", "timed out", "unknown delivery tag"])
        }
        AMQPErrorKind::Soft(_) => false,
        AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED) => !says(&["limit", "down"]),
        AMQPErrorKind::Hard(AMQPHardError::NOTIMPLEMENTED) => true,
        AMQPErrorKind::Hard(_) => false,
    };
    if refused { SourceError::Refused(error.into()) } else { SourceError::Lost(error.into()) }
}

/// What AMQP takes as a short string.
pub(super) fn short(text: &str) -> ShortString {
    const BYTES_MAX: usize = 255;
    let end = (0..=text.len().min(BYTES_MAX)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text[..end].into()
}
