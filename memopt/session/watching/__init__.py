"""Looking after a program.

In: options, a target. Out: the report. May be touched: never busy for long.

Modules: ``attached``, ``followed``, ``launched``, ``sampling_rate``, ``stop_sampling``.
"""
