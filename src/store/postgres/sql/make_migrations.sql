CREATE TABLE IF NOT EXISTS semel_migrations (
    version    integer PRIMARY KEY,
    name       text NOT NULL,
    digest     text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
)
