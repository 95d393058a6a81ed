-- The tables that a retirement marked and did not drop: table, whether its detachment is still pending, first day, day
-- after the last. One that was marked and is still an ordinary partition is not among them.
SELECT c.oid::regclass::text, i.inhdetachpending IS TRUE, mark[1]::integer, mark[2]::integer
FROM pg_class AS parent
JOIN pg_class AS c ON c.relnamespace = parent.relnamespace AND c.relkind = 'r'
LEFT JOIN pg_inherits AS i ON i.inhrelid = c.oid
CROSS JOIN LATERAL regexp_match(
    obj_description(c.oid, 'pg_class'), '^semel retires days (-?\d+) to (-?\d+)$'
) AS mark
WHERE parent.oid = to_regclass('processed_kafka_events')
    AND mark IS NOT NULL
    AND (i.inhparent IS NULL OR (i.inhparent = parent.oid AND i.inhdetachpending))
ORDER BY 3
