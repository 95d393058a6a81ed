//! Every metric: its name, its labels and what it tells. Labels come from configuration and from closed lists only.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

pub const CLAIMS: &str = "im2be_dedup_claims_total";
pub const REDELIVERED: &str = "semel_redelivered_messages_total";
pub const READ: &str = "semel_read_messages_total";
pub const FORWARDED: &str = "semel_forwarded_messages_total";
pub const DEAD_LETTERS: &str = "semel_dead_letters_total";
pub const UNCLAIMED: &str = "semel_forwarded_unclaimed_total";
pub const WINDOWS: &str = "semel_windows_total";
pub const WINDOW_MESSAGES: &str = "semel_window_messages";
pub const PHASE_SECONDS: &str = "semel_phase_seconds";
pub const IN_FLIGHT: &str = "semel_in_flight_windows";
pub const LAG: &str = "semel_lag_messages";
pub const POSITION: &str = "semel_committed_position";
pub const RELEASED: &str = "semel_released_claims_total";
pub const DISCONTINUITIES: &str = "semel_discontinuities_total";
pub const STORE_ERRORS: &str = "semel_store_errors_total";
pub const STORE_COMMITS: &str = "semel_store_commits_total";
pub const BROKER_ERRORS: &str = "semel_broker_errors_total";
pub const REBALANCES: &str = "semel_rebalances_total";
pub const IN_DOUBT: &str = "semel_in_doubt_total";
pub const LEASES_OUTLIVED: &str = "semel_leases_outlived_total";
pub const HELD: &str = "semel_held_messages";
pub const UNCOMMITTED: &str = "semel_ingest_uncommitted_records_total";
pub const EXPIRED: &str = "semel_ingest_expired_claims_total";
pub const INGEST_REQUESTS: &str = "semel_ingest_requests_total";
pub const BUILD_INFO: &str = "semel_build_info";

/// Tells the recorder what each metric is. Called once, after the recorder is installed.
pub fn describe() {
    describe_counter!(
        CLAIMS,
        "Claims asked for, by scope and outcome: claimed counts inserts, duplicate what was dropped as one"
    );
    describe_counter!(REDELIVERED, "Messages that were read again and whose own claim stood already");
    describe_counter!(READ, "Messages read from the source");
    describe_counter!(FORWARDED, "Messages whose publication is known to have committed");
    describe_counter!(DEAD_LETTERS, "Messages sent to the dead-letter topic, by cause");
    describe_counter!(UNCLAIMED, "Messages forwarded without a claim because a policy says so, by cause");
    describe_counter!(WINDOWS, "Windows by how they ended: committed, or discarded and read again");
    describe_histogram!(WINDOW_MESSAGES, Unit::Count, "Messages of a window");
    describe_histogram!(PHASE_SECONDS, Unit::Seconds, "Time of a window's phases: gather, reserve, publish, commit");
    describe_gauge!(IN_FLIGHT, "Windows that were handed over and whose commit is not known");
    describe_gauge!(LAG, "Messages between the committed position and the end of the log, by topic and partition");
    describe_gauge!(POSITION, "Committed position by topic and partition");
    describe_counter!(RELEASED, "Claims that were released at a discontinuity");
    describe_counter!(DISCONTINUITIES, "Lanes opened anew, by reason");
    describe_counter!(STORE_ERRORS, "Failed calls to the claim store, by what is done about it");
    describe_counter!(STORE_COMMITS, "Commits that windows cost the claim store");
    describe_counter!(BROKER_ERRORS, "Errors that the brokers' clients reported, by client");
    describe_counter!(REBALANCES, "Rebalance events, by kind");
    describe_counter!(
        IN_DOUBT,
        "Messages that may have been published or not: they are published again, with the same key"
    );
    describe_counter!(
        LEASES_OUTLIVED,
        "Publishes that ended after their claims' lease: another may have published them too"
    );
    describe_gauge!(
        HELD,
        "Messages kept unacknowledged until another's claim is settled or lapses, or the sink takes them"
    );
    describe_counter!(
        UNCOMMITTED,
        "Records that were published and whose commit failed: a crash before it is mended may repeat them"
    );
    describe_counter!(EXPIRED, "Claims of ingest that were forgotten because their time was over");
    describe_counter!(INGEST_REQUESTS, "Ingest requests, by status");
    describe_gauge!(BUILD_INFO, "Always 1, with the version as a label");
    metrics::gauge!(BUILD_INFO, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
}
