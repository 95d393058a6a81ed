-- $1 stream, $2 token, $3 lane, $4 scope, $5 recipe.
UPDATE semel_streams
SET owner = $2, open_lane = $3, drained = NULL, scope = $4, recipe = $5
WHERE stream = $1
RETURNING stream
