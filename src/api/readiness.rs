//! What has to be there before the daemon counts as ready, and what of it is not.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Parts by name, each with why it is not ready. A part that was never told of is no part.
#[derive(Debug, Default)]
pub struct Readiness {
    parts: Mutex<BTreeMap<&'static str, Option<String>>>,
}

impl Readiness {
    pub fn set(&self, part: &'static str, state: Result<(), String>) {
        self.parts().insert(part, state.err());
    }

    /// Part and reason, by part.
    pub fn missing(&self) -> Vec<(&'static str, String)> {
        self.parts().iter().filter_map(|(part, why)| Some((*part, why.clone()?))).collect()
    }

    fn parts(&self) -> MutexGuard<'_, BTreeMap<&'static str, Option<String>>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::Readiness;

    #[test]
    fn ready_when_nothing_is_missing() {
        let readiness = Readiness::default();
        readiness.set("store", Err("no answer".to_owned()));
        readiness.set("kafka", Err("no partitions yet".to_owned()));
        let missing = |readiness: &Readiness| readiness.missing().into_iter().map(|(part, _)| part).collect::<Vec<_>>();
        assert_eq!(missing(&readiness), ["kafka", "store"]);
        readiness.set("store", Ok(()));
        assert_eq!(missing(&readiness), ["kafka"]);
        readiness.set("kafka", Ok(()));
        assert_eq!(missing(&readiness), [""; 0]);
    }
}
