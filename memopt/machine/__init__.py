"""The memory-hierarchy description of a machine, detected or measured."""
