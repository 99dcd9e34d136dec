"""Symbolic execution of a loop nest in machine code: one iteration of each loop, inner loops summarised.

In: the flow graph, its loops, the operations of its blocks, and the ``Assumptions`` of this attempt (captured registers
and memory, with what earlier attempts asked for). Out: ``OuterLoop``: the loop tree with its loads and stores,
induction variables, trip counts, the state behind the loop, and obligations that must hold for all iterations.

May be touched: the assumptions, the samples and the obligations of the attempt, and no process: captured memory is
read through ``Assumptions.peek``. If one more assumption would help, code of this room raises a request
(``memopt.lifting.values.requests``), and ``memopt.lifting.lift`` starts the next attempt with it.

Read ``executor`` first, then ``iteration`` and ``induction``.

- ``assumptions``: what an attempt assumes about the program (captured values, equations), and names of locations.
- ``branches``: trip counts from exit tests, the way a branch goes, the cases in which a condition holds.
- ``copy_operators``: element size and overlap demand of modelled memcpy, memmove and memset.
- ``entry_invariants``: sums of a live-in value and R that are the same at every entry to the patched loop.
- ``executor``: the nest as a whole: executes the outermost loop and summarises inner ones.
- ``if_conversion``: joins the paths of a branch on loaded data: conditions of loads and stores, selects of values.
- ``induction``: induction variables, guessed by a trial and verified by a second execution.
- ``invariant_compares``: decides floating-point comparisons of numbers that the loop never changes.
- ``iteration_result``: the values that it returns: ``Iteration``, ``LoopExit``, ``LoopSummary``.
- ``iteration``: one iteration of a loop, from its header to the back edge or out of the loop.
- ``memory``: loads and stores: stack slots as locations, everything else as events.
- ``merge``: joins the paths of an affine branch: loops that may run zero times, guarded items, selects.
- ``parameters``: live-in values that stay symbols in bounds because they differ between entries.
- ``row_tables``: tables of row pointers that are an arithmetic progression.
- ``sqrt_exits``: exits for a negative operand of a square root, which the invalid flag replaces.

Tested by: tests/unit/memopt/lifting/execution. ``branches``, ``copy_operators``, ``entry_invariants``, ``executor``,
``if_conversion``, ``induction``, ``merge``, ``parameters``, ``row_tables`` and ``sqrt_exits`` have a test file of their
name there. ``iteration``: test_executor.py (exits, inner loops), test_branches.py (split branches) and
test_if_conversion.py (branches on data). ``memory``: test_executor.py (slots of several widths) and test_merge.py
(slots that paths leave). ``assumptions``: test_parameters.py and tests/unit/memopt/lifting/test_lift.py.
``invariant_compares``: test_lift.py. Trip counts between pointers that both advance: test_pointer_ends.py and
tests/property/test_lifted_pointer_ends.py.
"""
