//! What the operator's commands are told: the store, and of the rest what is there.

use super::extraction::Keys;
use super::kafka::Clients;
use super::outside::Log;
use super::reader::{Command, Reader};
use super::retention::Retention;
use super::route::{self, Kind};
use super::source::{SOURCE, Source};
use super::store::Store;
use super::values::Given;
use super::{ConfigError, ends};
use crate::protocol::event::Scope;

#[derive(Debug, Clone)]
pub struct OperatorConfig {
    pub store: Store,
    pub retention: Retention,
    pub log: Log,
    pub scope: Option<Scope>,
    pub keys: Option<Keys>,
    /// Only Kafka's.
    pub source: Option<Source>,
    pub oauth_token_file: Option<std::path::PathBuf>,
}

impl OperatorConfig {
    pub fn of(given: Given) -> Result<OperatorConfig, ConfigError> {
        super::read_all(given, Command::Operator, OperatorConfig::parts)
    }

    fn parts(reader: &Reader<'_>) -> Option<OperatorConfig> {
        let clients = Clients::read(reader);
        let source = match route::kind_of(reader, &SOURCE) {
            None | Some(Kind::Kafka) => Source::read(reader, clients.as_ref()),
            // It has no group that these commands could ask for; what is wrong with it is told all the same.
            Some(_) => ends::Source::read(reader).and(None),
        };
        let scope = super::identity::scope(reader);
        let keys = Keys::read(reader);
        let store = Store::read(reader);
        let retention = Retention::read(reader);
        let log = Log::read(reader);
        let oauth_token_file = clients?.oauth_token_file;
        Some(OperatorConfig { store: store?, retention: retention?, log: log?, scope, keys, source, oauth_token_file })
    }
}
