-- $1 stream. What is left of the lease is in microseconds. Claims of lanes that are settled here have no offset.
SELECT s.owner, s.open_lane, l.settled, (extract(epoch FROM l.lease_until - clock_timestamp()) * 1000000)::bigint,
    EXISTS (
        SELECT FROM processed_kafka_events AS e
        WHERE e.lane = s.open_lane AND e.position >= coalesce(l.settled, 0) AND e."offset" IS NULL
    )
FROM semel_streams AS s
LEFT JOIN semel_lanes AS l ON l.lane = s.open_lane
WHERE s.stream = $1
