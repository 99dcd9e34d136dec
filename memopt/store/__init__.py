"""The profile on disk: one SQLite file, with a schema that has a version, and queries that have names."""
