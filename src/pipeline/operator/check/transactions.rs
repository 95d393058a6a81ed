//! Whether this client may run transactions: Describe and Write on its transactional ids, and on the source's groups.
//!
//! Kafka tells nobody what one may do with a transactional id; the only question is to use one. Using an instance's own
//! would fence it, so one is used that no instance can have: `semel.<pipeline>.<instance>.check`, which needs the same
//! privileges where they are given on the prefix, as they are to be. The broker forgets it after a week.

use super::{ASK, Facts};
use crate::config::Config;
use crate::pipeline::transactional::wiring;
use crate::sink::kafka::probe;

pub(super) fn check(facts: &mut Facts, config: &Config) {
    let own = config.identity.transactional_id(0);
    let prefix = own.rsplit_once('.').map_or(own.as_str(), |(prefix, _)| prefix);
    let timeout = config.sink.transaction_timeout;
    let about = "transactions";
    match probe(&wiring::sink_cluster(config), &format!("{prefix}.check"), timeout, ASK) {
        Ok(()) => facts.ok(about, format!("transactional ids {prefix}.* may be used, {} ms each", timeout.as_millis())),
        Err(error) => {
            let cause = cause(&error);
            let todo = match cause.contains("authorization") {
                true => format!(". allow Describe and Write on the transactional ids with the prefix {prefix}."),
                false => String::new(),
            };
            facts.fail(about, format!("{cause}{todo}"));
        }
    }
}

/// The innermost words. What an error means for a window, as its outer ones say, is of no interest where there is none.
fn cause(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
