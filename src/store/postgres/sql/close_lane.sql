-- $1 lane, $2 its cut or null, $3 now.
UPDATE semel_lanes SET closed_at = $3, cut = $2
WHERE lane = $1 AND closed_at IS NULL
RETURNING lane
