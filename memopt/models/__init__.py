"""Cost and cache models over the machine description."""
