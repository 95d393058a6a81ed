-- One transaction at a time that makes weeks, for this table.
SELECT pg_advisory_xact_lock(x'73656d65'::bigint << 32 | to_regclass('processed_kafka_events')::oid::bigint)
