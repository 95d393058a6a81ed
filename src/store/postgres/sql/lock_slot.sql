-- $1 stream. Waits for the reserves that hold the row FOR SHARE.
SELECT owner, open_lane FROM semel_streams WHERE stream = $1 FOR UPDATE
