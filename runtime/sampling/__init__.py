"""perf events.

In: a pid. Out: samples, mappings, forks. May be touched: never changes the program.

Modules: ``perf_events``, ``samples``.
"""
