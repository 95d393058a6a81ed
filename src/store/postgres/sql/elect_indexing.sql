-- Whether this transaction is the one that makes indexes on this table's partitions. Takes no lock on the table itself.
SELECT pg_try_advisory_xact_lock(x'73656d67'::bigint << 32 | to_regclass('processed_kafka_events')::oid::bigint)
