SELECT version, digest FROM semel_migrations ORDER BY version
