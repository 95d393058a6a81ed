-- Partitions that have no part in the index of slots' claims yet: table, and the name of the index that is made for it,
-- with its schema and without; whether that is there, and whole.
SELECT c.oid::regclass::text, quote_ident(n.nspname) || '.' || quote_ident(name), quote_ident(name),
    made.indexrelid IS NOT NULL, coalesce(made.indisvalid, false)
FROM pg_inherits AS i
JOIN pg_class AS c ON c.oid = i.inhrelid
JOIN pg_namespace AS n ON n.oid = c.relnamespace
CROSS JOIN LATERAL (SELECT left(c.relname, 40) || '_' || c.oid || '_of_slots') AS named (name)
LEFT JOIN pg_index AS made ON made.indexrelid = to_regclass(quote_ident(n.nspname) || '.' || quote_ident(name))
WHERE i.inhparent = to_regclass('processed_kafka_events')
    AND NOT i.inhdetachpending
    AND NOT EXISTS (
        SELECT FROM pg_inherits AS part
        JOIN pg_index AS of ON of.indexrelid = part.inhrelid
        WHERE part.inhparent = to_regclass('processed_kafka_events_of_slots') AND of.indrelid = c.oid
    )
ORDER BY 1
