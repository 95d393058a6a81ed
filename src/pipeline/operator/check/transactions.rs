//! Whether this client may run transactions: Describe and Write on its transactional ids, and on the source's groups.
//!
//! Kafka tells nobody what one may do with a transactional id; the only question is to use one. Using an instance's own
//! would fence it, so one is used that no instance can have: `semel.<pipeline>.<instance>.check`, which needs the same
//! privileges where they are given on the prefix, as they are to be. The broker forgets it after a week.

use std::time::Duration;

use super::{ASK, Brokers, Facts};
use crate::config::Config;
use crate::pipeline::chain;
use crate::pipeline::transactional::wiring;
use crate::sink::kafka::probe;

pub(super) fn check(facts: &mut Facts, config: &Config, brokers: &Brokers) {
    if brokers.ids.is_empty() {
        return;
    }
    let own = config.identity.transactional_id(0);
    let prefix = own.rsplit_once('.').map_or(own.as_str(), |(prefix, _)| prefix);
    let timeout = config.sink.transaction_timeout;
    let about = "transactions";
    match probe(&wiring::sink_cluster(config), &format!("{prefix}.check"), timeout, ASK.max(Duration::from_secs(10))) {
        Ok(()) => facts.ok(about, format!("transactional ids {prefix}.* may be used, {} ms each", timeout.as_millis())),
        Err(error) => facts.fail(
            about,
            format!("{}. allow Describe and Write on the transactional ids with the prefix {prefix}.", chain(&error)),
        ),
    }
}
