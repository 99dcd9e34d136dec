"""Data dependences through memory.

In: words of a thread. Out: ``Dependence`` rows by carrying loop. May be touched: shadow memory is private to the
room.

Modules: ``accesses``, ``carrier``, ``chains``, ``clusters``, ``dependences``, ``prefetch``, ``scan``,
``shadow_lines``, ``shadow_memory``, ``shadow_strips``, ``state``, ``steady_iterations``, ``steady_runs``,
``strip_access``, ``touch``.
"""
