//! Who may write which tenants' tables: keys from a file.
//!
//! ```json
//! [{"name": "shop", "sha256": "9f86d0…", "tenants": ["acme"], "tables": ["orders", "returns"]},
//!  {"name": "operator", "key": "…", "tenants": ["*"], "tables": ["*"]}]
//! ```
//!
//! A key is sent as `Authorization: Bearer KEY` or `X-Api-Key: KEY`. It is looked up by its digest, so neither the time
//! that this takes nor a copy of the memory tells of it. The file is read again when it has changed; one that cannot be
//! read leaves the keys as they were, and is told.
//!
//! Without a known key nothing is said but that, whatever was asked for; with one, whether the tenant or the table are
//! not its own is not told, nor whether they exist.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;

use axum::http::header::{AUTHORIZATION, HeaderMap};
use serde::Deserialize;
use sha2::{Digest, Sha256};

const LOOK_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    /// No key, or an unknown one.
    Unknown,
    Forbidden,
}

#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    #[error("{0} cannot be read")]
    File(PathBuf, #[source] std::io::Error),
    /// Its words hold no key.
    #[error("{0}: {1}")]
    Content(PathBuf, String),
}

type KeyDigest = [u8; 32];
type Keys = HashMap<KeyDigest, Rights>;

#[derive(Debug, Clone)]
struct Rights {
    tenants: Names,
    tables: Names,
}

#[derive(Debug, Clone)]
enum Names {
    Any,
    These(BTreeSet<String>),
}

impl Names {
    fn of(names: Vec<String>) -> Names {
        if names.iter().any(|name| name == "*") { Names::Any } else { Names::These(names.into_iter().collect()) }
    }

    fn has(&self, name: &str) -> bool {
        match self {
            Names::Any => true,
            Names::These(names) => names.contains(name),
        }
    }
}

pub struct Access {
    path: PathBuf,
    keys: RwLock<Arc<Keys>>,
    /// What was last read, well or not.
    read: Mutex<Vec<u8>>,
}

impl Access {
    pub fn open(path: &Path) -> Result<Access, AccessError> {
        let text = std::fs::read(path).map_err(|source| AccessError::File(path.to_owned(), source))?;
        let keys = keys(&text).map_err(|why| AccessError::Content(path.to_owned(), why))?;
        let read = Mutex::new(text);
        Ok(Access { path: path.to_owned(), keys: RwLock::new(Arc::new(keys)), read })
    }

    /// Whether the key that is sent may write there.
    pub fn may(&self, headers: &HeaderMap, tenant: &str, table: &str) -> Result<(), Denied> {
        let key = sent(headers).ok_or(Denied::Unknown)?;
        let keys = Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner));
        let digest: KeyDigest = Sha256::digest(key).into();
        let rights = keys.get(&digest).ok_or(Denied::Unknown)?;
        if rights.tenants.has(tenant) && rights.tables.has(table) { Ok(()) } else { Err(Denied::Forbidden) }
    }

    /// Reads the file again and takes what has changed. Blocks.
    pub fn refresh(&self) {
        let error = match std::fs::read(&self.path) {
            Ok(text) => {
                let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
                if *read == text {
                    return;
                }
                let changed = keys(&text);
                *read = text;
                match changed {
                    Ok(keys) => {
                        tracing::info!(path = %self.path.display(), keys = keys.len(), "read the changed keys");
                        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
                        return;
                    }
                    Err(why) => why,
                }
            }
            Err(error) => error.to_string(),
        };
        tracing::error!(path = %self.path.display(), error, "the keys stay as they were");
    }
}

/// Looks for changes for as long as somebody asks for rights.
pub async fn watch(access: Weak<Access>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(access) = access.upgrade() else { return };
        // It ends well or not at all.
        let _ = tokio::task::spawn_blocking(move || access.refresh()).await;
    }
}

fn sent(headers: &HeaderMap) -> Option<&[u8]> {
    if let Some(key) = headers.get("x-api-key") {
        return Some(key.as_bytes());
    }
    let (scheme, key) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim().as_bytes())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    key: Option<String>,
    /// Of the key, in hexadecimal.
    sha256: Option<String>,
    tenants: Vec<String>,
    tables: Vec<String>,
}

fn keys(text: &[u8]) -> Result<Keys, String> {
    let entries: Vec<Entry> = serde_json::from_slice(text)
        .map_err(|error| format!("at line {}, column {} it is no list of keys", error.line(), error.column()))?;
    let mut keys = Keys::new();
    for entry in entries {
        let Entry { name, key, sha256, tenants, tables } = entry;
        let digest: KeyDigest = match (key, sha256) {
            (Some(key), None) if !key.trim().is_empty() => Sha256::digest(key).into(),
            (Some(_), None) => return Err(format!("the key of `{name}` is blank")),
            (None, Some(sha256)) => {
                let mut digest = KeyDigest::default();
                hex::decode_to_slice(&sha256, &mut digest)
                    .map_err(|_| format!("the sha256 of `{name}` is not 64 hexadecimal digits"))?;
                digest
            }
            _ => return Err(format!("`{name}` has either a key or its sha256")),
        };
        let rights = Rights { tenants: Names::of(tenants), tables: Names::of(tables) };
        if keys.insert(digest, rights).is_some() {
            return Err(format!("the key of `{name}` is another's too"));
        }
    }
    Ok(keys)
}

#[cfg(test)]
#[path = "access_tests.rs"]
mod tests;
