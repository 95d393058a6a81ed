-- $1 stream, $2 token, $3 the token that it takes the place of. The new one stands there where this was done before.
UPDATE semel_streams AS s
SET owner = $2
WHERE s.stream = $1 AND s.owner IN ($3, $2)
RETURNING s.open_lane, s.drained, s.scope, s.recipe
