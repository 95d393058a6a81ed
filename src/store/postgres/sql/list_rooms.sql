-- The partitions that take claims: table, first day, day after the last, claims by the server's statistics, bytes with
-- the index. Live rows are counted as they are written and forgotten in a crash; `reltuples` is from the last ANALYZE.
SELECT c.oid::regclass::text, bound[1]::date - DATE '1970-01-01', bound[2]::date - DATE '1970-01-01',
    greatest(pg_stat_get_live_tuples(c.oid), c.reltuples::bigint, 0), pg_total_relation_size(c.oid)
FROM pg_inherits AS i
JOIN pg_class AS c ON c.oid = i.inhrelid
CROSS JOIN LATERAL regexp_match(
    pg_get_expr(c.relpartbound, c.oid), $$FROM \('(\d[^']*)'\) TO \('(\d[^']*)'\)$$
) AS bound
WHERE i.inhparent = to_regclass('processed_kafka_events') AND NOT i.inhdetachpending AND bound IS NOT NULL
ORDER BY 2
