"""Working sets of lifted nests, without running or replacing them (``profile --affine``).

In: a ``LoopNode`` tree (memopt.lifting.values.loop_tree), values of its live-in symbols; for the iterations that are
over also the flow graph and the operations of its blocks. Out: working-set curves, a number of iterations.
May be touched: nothing; all functions are pure.

- ``elapsed_iterations``: how many iterations of a loop are over when a sample meets it.
- ``footprints``: cache lines and pages that the first 1, 2, 4, ... iterations of each loop touch.

Tested by: tests/unit/memopt/lifting/survey.
"""
