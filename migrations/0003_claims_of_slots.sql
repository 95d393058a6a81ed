-- Claims of lanes that are settled in the store, by lane and position, so that taking a slot, releasing and sweeping need
-- not read every claim. They are those without an offset: claims from Kafka to Kafka are not in this index, and their
-- inserts do not pay for it.
--
-- On the parent alone, which is instant: it waits up to 5 s for the inserts that are under way and holds up new ones no
-- longer than that. Weeks that are made later get it with their table. For those that are there `semel migrate` makes it
-- next, one by one and CONCURRENTLY, so that no claim waits for it (src/store/postgres/indexes.rs).
CREATE INDEX processed_kafka_events_of_slots ON ONLY processed_kafka_events (lane, position)
WHERE lane IS NOT NULL AND "offset" IS NULL;
