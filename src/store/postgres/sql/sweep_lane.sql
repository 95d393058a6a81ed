-- $1 lane. One statement is enough: a closed lane gets no claim any more, so that whoever sees it closed sees its claims.
-- Claims of lanes that are settled here have no offset.
WITH swept AS MATERIALIZED (
    SELECT settled FROM semel_lanes
    WHERE lane = $1 AND closed_at IS NOT NULL AND lease_until <= clock_timestamp()
    FOR UPDATE
),
gone AS (
    DELETE FROM processed_kafka_events AS e USING swept
    WHERE e.lane = $1 AND e.position >= swept.settled AND e."offset" IS NULL
    RETURNING 1
)
SELECT (SELECT count(*) FROM swept), (SELECT count(*) FROM gone)
