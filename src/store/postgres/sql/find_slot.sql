-- $1 lane.
SELECT stream FROM semel_lanes WHERE lane = $1
