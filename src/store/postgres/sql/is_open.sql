-- $1 lane.
SELECT EXISTS (SELECT FROM semel_streams WHERE open_lane = $1)
