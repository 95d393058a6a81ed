-- The partitions that take claims: table, first day, day after the last, as days since 1970. The bounds are read back
-- by the session that printed them, so that its date style does not matter. One that is being detached is not there.
SELECT c.oid::regclass::text, bound[1]::date - DATE '1970-01-01', bound[2]::date - DATE '1970-01-01'
FROM pg_inherits AS i
JOIN pg_class AS c ON c.oid = i.inhrelid
CROSS JOIN LATERAL regexp_match(
    pg_get_expr(c.relpartbound, c.oid), $$FROM \('(\d[^']*)'\) TO \('(\d[^']*)'\)$$
) AS bound
WHERE i.inhparent = to_regclass('processed_kafka_events') AND NOT i.inhdetachpending AND bound IS NOT NULL
ORDER BY 2
