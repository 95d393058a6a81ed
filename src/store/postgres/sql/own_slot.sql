-- $1 stream, $2 token.
UPDATE semel_streams SET owner = $2 WHERE stream = $1 RETURNING stream
