"""What is learned from a trace of memory accesses. One reader a module; a reader knows no other reader.

In: the words of a thread's trace (``core/format``). Out: streams, access patterns, working sets, reuse
distances, paths, values, allocations; dependences from their own room. May be touched: nothing here knows where a
trace comes from.

Modules: ``allocations``, ``allocators``, ``notation``, ``paths``, ``patterns``, ``reuse_distance``, ``streams``,
``values``, ``working_sets``.
"""
