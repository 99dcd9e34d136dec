"""Learns from a trace what a program does to memory: access patterns, working sets, reuse distances, paths, values.

Each analysis is one module and reads the trace of one thread, buffer by buffer, with kernels that numba compiles. It is
a class with the methods ``know`` (more code is described), ``feed`` (the trace goes on) and ``all`` (the results). No
analysis imports another one (``streams`` and ``notation`` are made of ``patterns``); what they share lies in ``core``.

In: words of a thread's trace (``core/format.py``), the shapes of its blocks, the nodes of its calling contexts.

Out: one dataclass for each result: ``Stream``, ``WorkingSet``, ``Reuse``, ``Value``, ``Allocation``, and others.

May be touched: nothing outside the arrays of each analysis. The code here knows no process and no database, and does
not know where a trace comes from. All sources of the kernels lie in this folder, since compiled kernels are kept under
a hash of its files.

- ``allocations``: blocks that malloc and the like returned: address, size, calling context.
- ``allocators``: which functions allocate memory, by name, and which arguments give the size.
- ``notation``: writes access patterns as text, and expands the text to the exact addresses.
- ``paths``: how often each acyclic path of each function was taken.
- ``patterns``: compresses the addresses of an access to runs, runs of runs, and repeated sequences.
- ``pattern_levels``: the kernels that build them: levels of runs and sequences.
- ``reuse_distance``: how many other cache lines were touched between two touches of a line.
- ``streams``: bounds, strides, alignment, cache banks and patterns of each access.
- ``values``: arguments, trip counts and cycles of functions and loops, as distributions.
- ``working_sets``: how many cache lines and pages an entry of a loop touches.
- ``core``: the format of traces, and what all analyses stand on.
- ``dependences``: data dependences through memory, by the loop that carries them.

Tested by: tests/unit/memopt/traces, a file for each module of this folder. ``notation`` is tested by test_patterns.py,
``pattern_levels`` too, ``allocators`` by test_allocations.py.
"""
