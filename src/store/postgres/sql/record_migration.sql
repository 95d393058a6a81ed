-- $1 version, $2 name, $3 digest.
INSERT INTO semel_migrations (version, name, digest) VALUES ($1, $2, $3) RETURNING version
