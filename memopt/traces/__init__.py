"""What is learned from a trace of memory accesses; nothing here knows where the trace comes from."""
