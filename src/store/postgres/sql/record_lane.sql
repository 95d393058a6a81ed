-- $1 lane, $2 stream, $3 scope, $4 recipe, $5 now. No row where this lane was opened before.
INSERT INTO semel_lanes (lane, stream, scope, recipe, opened_at)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (lane) DO NOTHING
RETURNING lane
