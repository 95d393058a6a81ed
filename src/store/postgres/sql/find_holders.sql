-- $1 scope, $2 event ids, $3 weeks: one a key; $4 the distinct weeks among $3, so that the plan looks at no other
-- partition.
--
-- The lateral form is an index lookup for each key whatever the statistics say; `event_id = ANY($2)` is planned as a
-- scan on a partition that was never analysed.
SELECT array_agg(u.n), array_agg(held.lane), array_agg(held.position)
FROM unnest($2, $3) WITH ORDINALITY AS u (event_id, week_start, n)
CROSS JOIN LATERAL (
    SELECT e.lane, coalesce(e.position, e."offset", 0) AS position
    FROM processed_kafka_events AS e
    WHERE e.consumer_scope_id = $1
        AND e.event_id = u.event_id
        AND e.week_start = u.week_start
        AND e.week_start = ANY ($4)
    LIMIT 1
) AS held
