-- $1 scope, $2 event ids, $3 weeks: one a key; $4 the distinct weeks among $3, so that the plan looks at no other
-- partition.
--
-- Claims and their lanes, as this one statement finds them. What is left of a lease is in microseconds. The form is that
-- of find_holders.sql, for its reasons.
SELECT array_agg(u.n), array_agg(held.lane), array_agg(held.position), array_agg(held.known), array_agg(held.settled),
    array_agg(held.open), array_agg(held.lease_left)
FROM unnest($2, $3) WITH ORDINALITY AS u (event_id, week_start, n)
CROSS JOIN LATERAL (
    SELECT e.lane, coalesce(e.position, e."offset", 0) AS position, l.lane IS NOT NULL AS known, l.settled,
        l.closed_at IS NULL AS open,
        (extract(epoch FROM l.lease_until - clock_timestamp()) * 1000000)::bigint AS lease_left
    FROM processed_kafka_events AS e
    LEFT JOIN semel_lanes AS l ON l.lane = e.lane
    WHERE e.consumer_scope_id = $1
        AND e.event_id = u.event_id
        AND e.week_start = u.week_start
        AND e.week_start = ANY ($4)
    LIMIT 1
) AS held
