"""Forked copies: capture, race, timing.

In: stopped target. Out: ``Measurement``. May be touched: copies only.

Modules: ``memory_budget``, ``shadow``, ``timing``, ``trial``.
"""
