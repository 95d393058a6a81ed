-- $1 stream. What is left of the lease is in microseconds.
SELECT s.open_lane, s.drained, s.scope, s.recipe, s.owner, l.settled,
    (extract(epoch FROM l.lease_until - clock_timestamp()) * 1000000)::bigint
FROM semel_streams AS s
LEFT JOIN semel_lanes AS l ON l.lane = s.open_lane
WHERE s.stream = $1
