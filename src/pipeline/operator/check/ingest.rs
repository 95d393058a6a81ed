//! The same for HTTP ingest, whose claims have no weeks.

use super::{ASK, Facts, store};
use crate::clock::Clock;
use crate::config::ingest::IngestConfig;
use crate::pipeline::chain;
use crate::pipeline::ingest::wiring::{self, Outlets};

/// Asks for everything. Blocks for some seconds where something does not answer. Publishes nothing.
pub fn check(config: &IngestConfig, clock: &dyn Clock) -> Facts {
    let mut facts = Facts::default();
    let digest = config.extraction.digest();
    facts.ok("settings", format!("valid; event id {}, recipe {digest}", config.extraction.recipe()));
    facts.ok("promise", wiring::promise(config));
    let claims = store::check(&mut facts, &config.store, config.lanes, None, clock);
    let about = config.sink.to_string();
    let Some(claims) = claims else {
        facts.warn(about, "it is asked once the store is there");
        return facts;
    };
    match claims.run(Outlets::find(config, &*claims.store, ASK)) {
        Ok(Ok(_)) => facts.ok(about, "it is there"),
        Ok(Err(problems)) => problems.into_iter().for_each(|problem| facts.fail(&about, problem)),
        Err(error) => facts.fail(about, chain(&error)),
    }
    facts
}
