-- $1 scope, $2 the undated week, $3 the event id after which it looks, $4 how many claims it looks at, $5 the time before
-- which what goes was first seen. Answers how many went, and the last one it looked at.
--
-- The look follows the primary key, so that it needs no index by time. What somebody else has locked is left for the
-- next time: nobody waits here, and others wait for this one statement only.
WITH looked AS MATERIALIZED (
    SELECT e.event_id, e.first_seen_at FROM processed_kafka_events AS e
    WHERE e.consumer_scope_id = $1 AND e.week_start = $2 AND e.event_id > $3
    ORDER BY e.event_id
    LIMIT $4
),
over AS MATERIALIZED (
    SELECT e.event_id FROM looked
    CROSS JOIN LATERAL (
        SELECT o.event_id, o.lane, o.position FROM processed_kafka_events AS o
        WHERE o.consumer_scope_id = $1 AND o.week_start = $2 AND o.event_id = looked.event_id AND o.first_seen_at < $5
        FOR UPDATE SKIP LOCKED
    ) AS e
    LEFT JOIN semel_lanes AS l ON l.lane = e.lane
    WHERE looked.first_seen_at < $5
        AND (
            l.lane IS NULL
            OR coalesce(e.position, 0) < coalesce(
                l.settled, CASE WHEN l.closed_at IS NULL THEN 0 ELSE 9223372036854775807 END
            )
        )
),
gone AS (
    DELETE FROM processed_kafka_events AS e USING over
    WHERE e.consumer_scope_id = $1 AND e.week_start = $2 AND e.event_id = over.event_id
    RETURNING 1
)
SELECT (SELECT count(*) FROM gone), (SELECT max(event_id) FROM looked)
