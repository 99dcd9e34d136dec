"""Helpers shared by tests: regions and plans built by hand, machine code run in this process."""
