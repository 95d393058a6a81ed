-- $1 stream, $2 token.
INSERT INTO semel_streams (stream, owner) VALUES ($1, $2)
ON CONFLICT (stream) DO NOTHING
RETURNING stream
