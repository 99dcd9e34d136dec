"""The read-only view of an executable: symbols, function ranges, source lines."""
