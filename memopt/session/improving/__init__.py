"""The stages of one loop, and which loop is next.

In: hot addresses, a process. Out: installed versions, ``Decision``s. May be touched: the only room that imports
``passes`` and ``runtime/patching`` together.

Modules: ``ab_measurement``, ``callees``, ``decision``, ``hotness``, ``improver``, ``kept_shadow``, ``prefilter``,
``service``, ``single_thread``, ``site``, ``stages``, ``versions``, ``worker``.
"""
