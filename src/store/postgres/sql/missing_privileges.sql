-- What claims and lanes need and this role lacks. Locking a row FOR SHARE needs UPDATE.
SELECT need.privilege || ' on ' || need.name
FROM (VALUES
    ('processed_kafka_events', 'SELECT'), ('processed_kafka_events', 'INSERT'), ('processed_kafka_events', 'UPDATE'),
    ('processed_kafka_events', 'DELETE'),
    ('semel_streams', 'SELECT'), ('semel_streams', 'INSERT'), ('semel_streams', 'UPDATE'),
    ('semel_lanes', 'SELECT'), ('semel_lanes', 'INSERT'), ('semel_lanes', 'UPDATE'),
    ('semel_store', 'SELECT'), ('semel_migrations', 'SELECT')
) AS need (name, privilege)
WHERE NOT has_table_privilege(to_regclass(need.name), need.privilege)
ORDER BY 1
