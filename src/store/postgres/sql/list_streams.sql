SELECT stream, owner, open_lane, drained, scope, recipe FROM semel_streams ORDER BY stream
