"""Pure analyses: control flow, loops, lifting, dependences, access patterns."""
