"""Profiles into the database.

In: samples, counters, traces. Out: rows of ``store/``. May be touched: changes no program.

Modules: ``affine``, ``count_rows``, ``exact``, ``images``, ``memory_rows``, ``objects``, ``path_rows``,
``profile_file``, ``sampled``, ``static_rows``, ``trace_file``, ``value_rows``.
"""
