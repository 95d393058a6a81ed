-- $1 lane, $2 stream, $3 scope, $4 recipe, $5 now, $6 lease in microseconds, $7 settled position. No row where this lane was opened before.
INSERT INTO semel_lanes (lane, stream, scope, recipe, opened_at, settled, lease_until)
VALUES ($1, $2, $3, $4, $5, $7, clock_timestamp() + $6 * INTERVAL '1 microsecond')
ON CONFLICT (lane) DO NOTHING
RETURNING lane
