//! How keys are made, which must not change under a scope's claims.

use super::PipeError;
use crate::config::pipe::PipeConfig;
use crate::store::embedded::EmbeddedStore;

/// Kept in the store, for each scope.
pub struct Recipe<'a> {
    config: &'a PipeConfig,
    pub text: String,
    pub digest: String,
}

impl<'a> Recipe<'a> {
    /// What the configuration says.
    pub fn of(config: &'a PipeConfig) -> Recipe<'a> {
        let extraction = &config.keys.extraction;
        let text = format!("{} with time {}", extraction.recipe(), extraction.time());
        Recipe { config, text, digest: extraction.digest() }
    }

    /// The name of its record.
    pub fn name(&self) -> Vec<u8> {
        [b"recipe\0", self.config.scope.as_str().as_bytes()].concat()
    }

    pub fn record(&self) -> Vec<u8> {
        format!("{} {}", self.digest, self.text).into_bytes()
    }

    pub fn check(&self, store: &EmbeddedStore) -> Result<(), PipeError> {
        let Some(recorded) = store.note(&self.name())? else { return Ok(()) };
        if recorded == self.record() || self.config.keys.accept_change {
            return Ok(());
        }
        let recorded = String::from_utf8_lossy(&recorded).into_owned();
        Err(PipeError::OtherRecipe {
            scope: self.config.scope.to_string(),
            recorded: recorded.split_once(' ').map_or(recorded.as_str(), |(_, text)| text).into(),
            given: self.text.clone(),
            digest: self.digest.clone(),
        })
    }
}
