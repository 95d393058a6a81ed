SELECT id FROM semel_store
