-- $1 stream, $2 the lane that is to be closed, or null. Sorted, as claims lock them too.
SELECT s.stream, s.owner, s.open_lane
FROM semel_streams AS s
WHERE s.stream = $1 OR s.open_lane = $2
ORDER BY s.stream
FOR UPDATE
