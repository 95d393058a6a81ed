-- $1 event id, $2 scope.
SELECT e.consumer_scope_id, e.week_start - DATE '1970-01-01', e.lane, coalesce(e.position, e."offset", 0),
    coalesce(e.topic, ''), e."partition",
    coalesce(e."offset", CASE WHEN e."partition" IS NOT NULL THEN e.position END), e.first_seen_at, l.stream
FROM processed_kafka_events AS e
LEFT JOIN semel_lanes AS l ON l.lane = e.lane
WHERE e.consumer_scope_id = $2 AND e.event_id = $1
ORDER BY e.week_start
