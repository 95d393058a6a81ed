-- $1 lane, $2 position, $3 positions in doubt. Claims of lanes that are settled here have no offset.
WITH gone AS (
    DELETE FROM processed_kafka_events
    WHERE lane = $1 AND position >= $2 AND position <> ALL ($3) AND "offset" IS NULL
    RETURNING 1
)
SELECT count(*) FROM gone
