-- $1 lane, $2 its cut or null, $3 now. Below the cut an instance's lane is settled; a partition's has no such position.
UPDATE semel_lanes
SET closed_at = $3, cut = $2, settled = CASE WHEN settled IS NOT NULL THEN greatest(settled, $2) END
WHERE lane = $1 AND closed_at IS NULL
RETURNING lane
