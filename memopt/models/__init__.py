"""Analytical cost models: tile sizes and estimated cycles from a SCoP, a plan and the machine description.

In: a ``Scop`` and its statements, trip counts, a plan or a loop schedule, a ``Machine`` (``memopt.machine``). Out:
numbers: tile sizes, cycles, microseconds, work per iteration. They rank candidates and tell when nothing is to be
gained; the trial run measures, and decides.

May be touched: values of ``memopt.ir`` and ``memopt.machine`` only. Pure functions of their arguments: no process, no
file, no clock, no machine code.

- ``tile_sizes``: sizes of the register tile and of the cache tiles of a contraction.
- ``contraction_cost``: cycles of a contraction as compiled and as planned; cache lines moved between levels.
- ``loop_cost``: cycles of a statement in a loop schedule, with the best register tile; average trip counts.
- ``work``: statement instances per outer iteration, for nests whose iterations differ in length.

Tested by: ``tests/unit/memopt/models``, a file for each module. ``test_loop_cost`` covers the average trip counts of
``loop_cost``; the rest of it is covered through the schedules it chooses, by
``tests/unit/passes/loop_schedule/test_candidates.py`` and ``tests/unit/passes/test_planning.py``.
"""
