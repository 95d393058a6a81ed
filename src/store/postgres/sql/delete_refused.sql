-- $1 scope; a refused record each: $2 event ids, $3 weeks, $4 lanes, $5 positions; $6 the distinct weeks.
WITH gone AS (
    DELETE FROM processed_kafka_events AS e
    USING unnest($2, $3, $4, $5) AS r (event_id, week_start, lane, position)
    WHERE e.consumer_scope_id = $1
        AND e.event_id = r.event_id
        AND e.week_start = r.week_start
        AND e.week_start = ANY ($6)
        AND e.lane = r.lane
        AND e.position = r.position
    RETURNING 1
)
SELECT count(*) FROM gone
