-- $1 lane, $2 positions. Without a lane a claim is settled for ever. Claims of lanes that are settled here have no offset.
UPDATE processed_kafka_events SET lane = NULL WHERE lane = $1 AND position = ANY ($2) AND "offset" IS NULL
