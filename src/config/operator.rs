//! What the operator's commands are told: the store, and of the rest what is there.

use super::ConfigError;
use super::extraction::Keys;
use super::kafka::Clients;
use super::outside::Log;
use super::reader::{Command, Reader};
use super::retention::Retention;
use super::source::Source;
use super::store::Store;
use super::values::Given;
use crate::protocol::event::Scope;

#[derive(Debug, Clone)]
pub struct OperatorConfig {
    pub store: Store,
    pub retention: Retention,
    pub log: Log,
    pub scope: Option<Scope>,
    pub keys: Option<Keys>,
    pub source: Option<Source>,
    pub oauth_token_file: Option<std::path::PathBuf>,
}

impl OperatorConfig {
    pub fn of(given: Given) -> Result<OperatorConfig, ConfigError> {
        super::read_all(given, Command::Operator, OperatorConfig::parts)
    }

    fn parts(reader: &Reader<'_>) -> Option<OperatorConfig> {
        let clients = Clients::read(reader);
        let source = Source::read(reader, clients.as_ref());
        let scope = super::identity::scope(reader);
        let keys = Keys::read(reader);
        let store = Store::read(reader);
        let retention = Retention::read(reader);
        let log = Log::read(reader);
        let oauth_token_file = clients?.oauth_token_file;
        Some(OperatorConfig { store: store?, retention: retention?, log: log?, scope, keys, source, oauth_token_file })
    }
}
