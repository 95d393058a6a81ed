-- $1 lane, $2 position. Reads every claim: those of partitions are in no index for this, since every insert would pay for
-- it.
WITH gone AS (
    DELETE FROM processed_kafka_events WHERE lane = $1 AND position >= $2 RETURNING 1
)
SELECT count(*) FROM gone
