-- $1 lane, $2 token, $3 settled, $4 published positions, $5 the first position that is released, $6 the one after the
-- last. Claims of lanes that are settled here have no offset.
WITH owned AS MATERIALIZED (
    SELECT FROM semel_streams WHERE open_lane = $1 AND owner = $2 FOR SHARE
),
raised AS (
    UPDATE semel_lanes SET settled = greatest(settled, $3)
    WHERE lane = $1 AND settled IS NOT NULL AND (SELECT count(*) FROM owned) = 1
    RETURNING 1
),
kept AS (
    UPDATE processed_kafka_events SET lane = NULL
    WHERE lane = $1
        AND position = ANY ($4)
        AND "offset" IS NULL
        AND cardinality($4) > 0
        AND (SELECT count(*) FROM raised) = 1
    RETURNING 1
),
gone AS (
    DELETE FROM processed_kafka_events
    WHERE lane = $1
        AND position >= $5
        AND position < $6
        AND position <> ALL ($4)
        AND "offset" IS NULL
        AND (SELECT count(*) FROM raised) = 1
    RETURNING 1
)
SELECT (SELECT count(*) FROM raised), (SELECT count(*) FROM gone)
