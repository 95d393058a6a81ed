//! Whether this client may run transactions: Describe and Write on its transactional ids, and on the source's groups.
//!
//! Kafka tells nobody what one may do with a transactional id; the only question is to use one. Using an instance's own
//! would fence it, so one is used that no instance can have: `semel.<pipeline>.<instance>.check`, which needs the same
//! privileges where they are given on the prefix, as they are to be. The broker forgets it after a week.

use std::time::Duration;

use super::{ASK, Facts};
use crate::kafka::client::ClusterOptions;
use crate::sink::kafka::probe;

pub(super) fn check(facts: &mut Facts, cluster: &ClusterOptions, own: &str, timeout: Duration) {
    let prefix = own.rsplit_once('.').map_or(own, |(prefix, _)| prefix);
    let about = "transactions";
    match probe(cluster, &format!("{prefix}.check"), timeout, ASK) {
        Ok(()) => facts.ok(about, format!("transactional ids {prefix}.* may be used, {} ms each", timeout.as_millis())),
        Err(error) => facts.fail(about, refusal(prefix, &error)),
    }
}

/// What a refused probe means, and what to do about it.
fn refusal(prefix: &str, error: &dyn std::error::Error) -> String {
    let cause = cause(error);
    let todo = match cause.contains("authorization") {
        true => format!(". allow Describe and Write on the transactional ids with the prefix {prefix}."),
        false => String::new(),
    };
    format!("{cause}{todo}")
}

/// The innermost words. What an error means for a window, as its outer ones say, is of no interest where there is none.
fn cause(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

#[cfg(test)]
mod tests {
    use rdkafka::types::RDKafkaErrorCode as Code;

    use super::refusal;
    use crate::kafka::native::NativeError;
    use crate::kafka::transaction::TransactionError;
    use crate::sink::kafka::SinkError;

    #[test]
    fn who_may_not_is_told_what_to_allow() {
        // With the client's own words for a code.
        let cases = [
            (Code::TransactionalIdAuthorizationFailed, true),
            (Code::ClusterAuthorizationFailed, true),
            (Code::InvalidTransactionTimeout, false),
            (Code::OperationTimedOut, false),
        ];
        for (code, is_about_rights) in cases {
            let native =
                NativeError { code, text: code.to_string(), retriable: false, fatal: true, requires_abort: false };
            let told = refusal("semel.g.one", &SinkError::from(TransactionError::Unknown(native)));
            assert_eq!(told.contains("allow Describe and Write"), is_about_rights, "{told}");
            assert!(!told.contains("outcome of the transaction"), "{told}");
        }
    }
}
