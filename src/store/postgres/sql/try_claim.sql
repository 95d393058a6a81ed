-- $1 first seen at; a row each, sorted by key: $2 scopes, $3 event ids, $4 weeks, $5 topics, $6 partitions, $7 offsets.
WITH made AS (
    INSERT INTO processed_kafka_events
        (first_seen_at, consumer_scope_id, event_id, week_start, topic, "partition", "offset", position)
    SELECT $1, u.scope, u.event_id, u.week_start, u.topic, u."partition", u."offset", u."offset"
    FROM unnest($2, $3, $4, $5, $6, $7)
        WITH ORDINALITY AS u (scope, event_id, week_start, topic, "partition", "offset", n)
    ORDER BY u.n
    ON CONFLICT DO NOTHING
    RETURNING consumer_scope_id, event_id, week_start
)
SELECT consumer_scope_id, event_id, week_start - DATE '1970-01-01' FROM made
