"""The format of a trace and what all readers stand on.

In: words of a trace. Out: tables, compiled kernels, the active loops. May be touched: ``compiler.py`` alone touches
numba's cache; ``format.py``, ``sources.py`` import no numba.

Modules: ``active_loops``, ``compiler``, ``file``, ``format``, ``frequent``, ``reader``, ``sources``, ``tables``.
"""
