//! What only PostgreSQL has to show.
