"""Schedules one contraction: loop tiling, a register tile and packed operands.

Example: for ``C[i][j] += A[i][k] * B[k][j]`` the plan is ``tiled (j/2064, k/512, i/128, j/24, i/8)``, two operands
packed, an 8x24 register tile.

In: a ``Region`` with one statement that accumulates, and a ``Context``.
Out: a ``Plan``, or ``Rejected`` (``NO_PLAN``: no contraction, or it would not pay; ``NO_SCHEDULE``: a dependence
forbids it; ``OVERLAP``: the result is also an operand; ``TOO_SHORT``: an entry does too little work).
May be touched: the values passed in, by returning changed copies. No machine code is known here.

The passes, in the order of ``pipeline.PIPELINE``:

- ``interchange``: loop interchange; gives each dimension its role (rows, vector, reduction, outer).
- ``register_tile``: the vector length (``Vectorize``), then rows x vectors of the register tile.
- ``tiling``: cache tiles around the register tile.
- ``packing``: which operand is copied into panels, inside which loop.
- ``profitability``: refuses plans that the cost model expects not to pay.

Around them:

- ``pipeline``: the list of passes, the loop that runs and verifies them, and the second legality check as last pass.
- ``base``: what a pass is (``Pass``), and the value that passes hand on (``ScheduledRegion``).
- ``distribution``: loop distribution before the passes: one region for each statement of a nest.
- ``contraction``: after the passes: the statement seen through its plan, as ``contraction_code`` reads it.

Tested by: ``tests/unit/passes/contraction_schedule``: ``test_distribution.py``; ``test_pipeline.py`` for the passes
``contraction``, ``interchange``, ``tiling``, ``packing``, ``register_tile`` and ``profitability``, and for ``base``.
``pipeline.plan_nest`` through ``tests/unit/passes/test_planning.py``; ``contraction`` also by
``tests/unit/passes/contraction_code/test_contraction_kernel.py``; the value after each pass by
``tests/golden/test_schedules.py``.
"""
