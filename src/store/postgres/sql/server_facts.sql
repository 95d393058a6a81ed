SELECT current_setting('server_version'), current_database()::text, current_user::text, clock_timestamp(),
    pg_is_in_recovery(), current_setting('fsync')::boolean, current_setting('synchronous_commit'),
    current_setting('synchronous_standby_names'), (SELECT count(*) FROM pg_stat_replication),
    current_setting('max_connections')::bigint
