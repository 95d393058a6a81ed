-- One migrator at a time, in this database.
SELECT pg_advisory_xact_lock(x'73656d656c'::bigint)
