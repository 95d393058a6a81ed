-- $1 stream, $2 token. Waits for the claims that hold the row FOR SHARE.
INSERT INTO semel_streams AS s (stream, owner)
VALUES ($1, $2)
ON CONFLICT (stream) DO UPDATE SET owner = excluded.owner
RETURNING s.open_lane, s.drained, s.scope, s.recipe
