-- $1 scope, $2 first seen at; a row each: $3 event ids, $4 weeks, $5 lanes, $6 positions, $7 topics, $8 partitions,
-- $9 offsets; a guard each: $10 lanes, $11 tokens.
--
-- The locks come first: the insert's one-time filter counts them. Where one is missing nothing is inserted, and the
-- count in the answer says so. Rows arrive sorted by key and are inserted in that order.
WITH owned AS MATERIALIZED (
    SELECT FROM semel_streams AS s
    JOIN unnest($10, $11) AS g (lane, token) ON s.open_lane = g.lane AND s.owner = g.token
    ORDER BY s.stream
    FOR SHARE OF s
),
made AS (
    INSERT INTO processed_kafka_events
        (consumer_scope_id, first_seen_at, event_id, week_start, lane, position, topic, "partition", "offset")
    SELECT $1, $2, u.event_id, u.week_start, u.lane, u.position, u.topic, u."partition", u."offset"
    FROM unnest($3, $4, $5, $6, $7, $8, $9)
        WITH ORDINALITY AS u (event_id, week_start, lane, position, topic, "partition", "offset", n)
    WHERE (SELECT count(*) FROM owned) = cardinality($10)
    ORDER BY u.n
    ON CONFLICT DO NOTHING
    RETURNING lane, position
)
SELECT (SELECT count(*) FROM owned), array_agg(lane), array_agg(position) FROM made
