-- $1 lane, $2 settled position or null. Locks the lane's row; answers its settled position and what is left of its
-- lease, in microseconds. No row for a lane that is not an instance's.
UPDATE semel_lanes SET settled = greatest(settled, $2)
WHERE lane = $1 AND settled IS NOT NULL
RETURNING settled, (extract(epoch FROM lease_until - clock_timestamp()) * 1000000)::bigint
