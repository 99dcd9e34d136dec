"""One function -> its instrumented copy.

In: ``FlowGraph``, ``Recording``. Out: ``Unit``, bytes. May be touched: knows no process.

Modules: ``code_map``, ``encode``, ``layout``, ``probe_routines``, ``relocated``, ``trace_probes``, ``translate``,
``unit``, ``writer``.
"""
