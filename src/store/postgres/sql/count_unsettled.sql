-- $1 lane, $2 position. Reads every claim.
SELECT count(*) FROM processed_kafka_events WHERE lane = $1 AND position >= $2
