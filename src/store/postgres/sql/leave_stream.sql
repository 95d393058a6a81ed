-- $1 stream, $2 token. No lane is open on it from now on.
UPDATE semel_streams SET open_lane = NULL, drained = NULL, scope = NULL, recipe = NULL
WHERE stream = $1 AND owner = $2
RETURNING stream
