"""Schedules any affine statements: distribution, fusion, strip-mining, time tiling, blocking, vectorisation.

Example: ``for t { for i S0(t, i); for i S1(t, i) }`` becomes ``S0 at (t, 0), vectors along i`` and
``S1 at (t, 1), vectors along i``.

A *date* is one dimension of a schedule (Feautrier's term): an affine expression of a statement's counters, perhaps
divided by a tile size and rounded down. Instances run in the lexicographic order of their dates. Inside one value of
all dates runs a *leaf*, the register tile of a statement.

In: a ``Scop``, facts about its symbols, a ``Context``.
Out: ``LoopPlan``s, best first by the cost model. They are NOT proved here: ``passes.legality.loops`` does that.
May be touched: nothing but the arguments. Imports no code generator.

- ``candidates``: makes a plan of every alternative, ranks them, and gives private arrays their storage.
- ``rebasing``: before scheduling: counters start where the subscripts do.
- ``carried_dependences``: which dependences a date carries, leaves or violates.
- ``components``: strongly connected components of the dependence graph, in topological order.
- ``allen_kennedy``: the recursion over components and loops that gives every statement its dates.
- ``leaf_options``: at the end of the recursion: rows, vector and sequential dimension of one statement.
- ``row_alignment``: loop alignment: dates that are equal where statements touch the same row.
- ``index_set_splitting``: alternative: a statement in pieces before, on and after a hyperplane.
- ``time_tiling``: alternative for stencils: several time steps behind a skewed front.
- ``blocking``: alternative for factorisations: most of the work waits for the end of a block.
- ``storage_mapping``: after scheduling: how much memory private arrays need.

Tested by: ``tests/unit/passes/loop_schedule/test_candidates.py``, through ``candidates``: ``allen_kennedy``,
``blocking``, ``carried_dependences``, ``components``, ``leaf_options``, ``rebasing``, ``row_alignment``,
``storage_mapping`` and ``time_tiling``; beside it ``test_index_set_splitting.py``; generated code by
``tests/property/test_loop_families.py``.
"""
