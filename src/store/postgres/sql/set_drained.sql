-- $1 stream, $2 token, $3 lane, $4 settled position or null.
UPDATE semel_streams SET drained = $4
WHERE stream = $1 AND owner = $2 AND open_lane = $3
RETURNING stream
