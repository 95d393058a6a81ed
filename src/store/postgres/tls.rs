//! TLS with libpq's meanings. Without a named root certificate the system's are trusted.

use std::path::{Path, PathBuf};

use openssl::ssl::{SslConnector, SslConnectorBuilder, SslFiletype, SslMethod, SslVerifyMode};
use postgres_openssl::MakeTlsConnector;

use crate::store::StoreError;

#[derive(Debug, Default, Clone)]
pub struct TlsSettings {
    pub root_cert: Option<PathBuf>,
    /// The client's own certificate and key, in PEM.
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
}

/// How much of the server's certificate is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verify {
    Nothing,
    Chain,
    ChainAndName,
}

pub fn connector(settings: &TlsSettings, verify: Verify) -> Result<MakeTlsConnector, StoreError> {
    let mut builder = SslConnector::builder(SslMethod::tls_client()).map_err(|error| rejected("TLS", error))?;
    if verify == Verify::Nothing {
        builder.set_verify(SslVerifyMode::NONE);
    } else {
        builder.set_verify(SslVerifyMode::PEER);
        trust(&mut builder, settings.root_cert.as_deref().filter(|path| *path != Path::new("system")))?;
    }
    if let Some(cert) = &settings.cert {
        let key = settings.key.as_ref().unwrap_or(cert);
        builder.set_certificate_chain_file(cert).map_err(|error| rejected(&shown("sslcert", cert), error))?;
        builder.set_private_key_file(key, SslFiletype::PEM).map_err(|error| rejected(&shown("sslkey", key), error))?;
    }
    let mut connector = MakeTlsConnector::new(builder.build());
    if verify != Verify::ChainAndName {
        connector.set_callback(|connection, _| {
            connection.set_verify_hostname(false);
            Ok(())
        });
    }
    Ok(connector)
}

fn trust(builder: &mut SslConnectorBuilder, root_cert: Option<&Path>) -> Result<(), StoreError> {
    if let Some(path) = root_cert {
        return builder.set_ca_file(path).map_err(|error| rejected(&shown("sslrootcert", path), error));
    }
    // The TLS library is built in and does not know where this system keeps its certificates.
    let found = openssl_probe::probe();
    if let Some(file) = &found.cert_file {
        builder.set_ca_file(file).map_err(|error| rejected(&shown("system certificates", file), error))?;
    }
    for folder in &found.cert_dir {
        builder
            .load_verify_locations(None, Some(folder))
            .map_err(|error| rejected(&shown("system certificates", folder), error))?;
    }
    Ok(())
}

fn shown(what: &str, path: &Path) -> String {
    format!("{what} {}", path.display())
}

#[derive(Debug, thiserror::Error)]
#[error("cannot use {what}")]
struct TlsProblem {
    what: String,
    source: openssl::error::ErrorStack,
}

fn rejected(what: &str, source: openssl::error::ErrorStack) -> StoreError {
    StoreError::Rejected(TlsProblem { what: what.to_owned(), source }.into())
}
