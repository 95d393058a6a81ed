-- $1 scope, $2 event id, $3 week or null.
SELECT count(*) FROM processed_kafka_events
WHERE consumer_scope_id = $1 AND event_id = $2 AND ($3 IS NULL OR week_start = $3)
