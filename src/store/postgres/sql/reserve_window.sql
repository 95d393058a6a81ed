-- $1 scope, $2 first seen at, $3 origin, $4 lane, $5 token, $6 settled, $7 lease in microseconds; a row each: $8 event
-- ids, $9 weeks, $10 positions; $11 the partition whose offsets the positions are, or null. Without an
-- offset of their own they are in the index of lanes that are settled here.
--
-- In this order, since each counts the one before: the stream's lock, the lane's row, the inserts. Where the lane is not
-- open or not this token's nothing is written, and the count in the answer says so. The lease runs from before the
-- inserts, which may wait. Rows arrive sorted by key and are inserted in that order.
WITH owned AS MATERIALIZED (
    SELECT FROM semel_streams WHERE open_lane = $4 AND owner = $5 FOR SHARE
),
raised AS (
    UPDATE semel_lanes
    SET settled = greatest(settled, $6), lease_until = clock_timestamp() + $7 * INTERVAL '1 microsecond'
    WHERE lane = $4 AND settled IS NOT NULL AND (SELECT count(*) FROM owned) = 1
    RETURNING 1
),
made AS (
    INSERT INTO processed_kafka_events
        (consumer_scope_id, first_seen_at, topic, lane, event_id, week_start, position, "partition")
    SELECT $1, $2, $3, $4, u.event_id, u.week_start, u.position, $11
    FROM unnest($8, $9, $10) WITH ORDINALITY AS u (event_id, week_start, position, n)
    WHERE (SELECT count(*) FROM raised) = 1
    ORDER BY u.n
    ON CONFLICT DO NOTHING
    RETURNING position
)
SELECT (SELECT count(*) FROM raised), array_agg(position) FROM made
