-- Every scope that has a claim, by one index look-up a scope and partition: the key has no order by event id alone.
WITH RECURSIVE scopes (scope) AS (
    SELECT min(consumer_scope_id) FROM processed_kafka_events
    UNION ALL
    SELECT (SELECT min(e.consumer_scope_id) FROM processed_kafka_events AS e WHERE e.consumer_scope_id > s.scope)
    FROM scopes AS s
    WHERE s.scope IS NOT NULL
)
SELECT scope FROM scopes WHERE scope IS NOT NULL
