"""Frozen values that pass between the stages; each has one stable text form."""
