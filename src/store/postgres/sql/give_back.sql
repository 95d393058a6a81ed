-- $1 lane, $2 token, $3 scope; a claim each: $4 event ids, $5 weeks, $6 positions; $7 the distinct weeks.
WITH owned AS MATERIALIZED (
    SELECT FROM semel_streams WHERE open_lane = $1 AND owner = $2 FOR SHARE
),
gone AS (
    DELETE FROM processed_kafka_events AS e
    USING unnest($4, $5, $6) AS r (event_id, week_start, position)
    WHERE e.consumer_scope_id = $3
        AND e.event_id = r.event_id
        AND e.week_start = r.week_start
        AND e.week_start = ANY ($7)
        AND e.lane = $1
        AND e.position = r.position
        AND (SELECT count(*) FROM owned) = 1
    RETURNING 1
)
SELECT (SELECT count(*) FROM owned), (SELECT count(*) FROM gone)
