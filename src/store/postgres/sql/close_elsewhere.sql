-- $1 stream, $2 lane, $3 token. A topic that was made anew leaves its lane open on the stream of its former id: whoever
-- owned that one must not go on.
UPDATE semel_streams
SET owner = $3, open_lane = NULL, drained = NULL, scope = NULL, recipe = NULL
WHERE open_lane = $2 AND stream <> $1
RETURNING stream
