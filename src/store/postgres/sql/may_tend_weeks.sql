-- ATTACH and DETACH are the owner's; the new table is made in the claims table's schema.
SELECT pg_has_role(relowner, 'USAGE') AND has_schema_privilege(relnamespace, 'CREATE')
FROM pg_class WHERE oid = to_regclass('processed_kafka_events')
