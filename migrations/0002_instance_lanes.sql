-- Lanes of instances, for sources without offsets: how far such a lane is settled, and until when its run has the right
-- to finish, by this database's clock. Both are null for a Kafka partition's lane.
--
-- No index is added: every statement finds its lanes by their ids.
ALTER TABLE semel_lanes
    ADD COLUMN settled     bigint,
    ADD COLUMN lease_until timestamptz;
