SELECT to_regclass('semel_migrations') IS NOT NULL, current_setting('server_version_num')::integer
