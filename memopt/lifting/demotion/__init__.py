"""Demotion of registers to memory: a loop nest with carried registers becomes statements on memory cells.

It undoes scalar promotion, store-to-load forwarding and packed stores, so that every dependence of the nest is one
between memory accesses.

In: the ``LoopNode`` of the patched loop from ``memopt.lifting.execution``, aliasing over the ranges of its counters.
Out: ``Recovered``: a ``StatementLoop``, and the cells (of the program, or private) that stand for registers which the
outermost loop carries, for the guard and the rejoin.

May be touched: the list of obligations and the assumptions of ``Aliasing`` grow; code and captured memory are never
looked at.

Read ``recover`` first, then ``available`` and ``home_cells``.

- ``aliasing``: may two accesses touch the same byte, in one iteration or in two?
- ``available``: which cells hold a value at a point of the program.
- ``case_split``: a value chosen by an affine condition as one conditional value for each outcome.
- ``dead_fp``: unused floating-point operations, kept for the exception flags they raise.
- ``demanded``: which parts of loaded and carried values the stores depend on.
- ``expressions``: the typed expression tree of a statement.
- ``home_cells``: the cell of the program that takes the place of a carried register.
- ``outer_carried``: registers carried by the patched loop itself: the guard compares them with their cells.
- ``recover``: the whole conversion, item by item, with further attempts when a value is in no cell.
- ``scalar_expansion``: private arrays for values that no cell of the program holds.
- ``split_stores``: one store for each element of a packed store.
- ``statements``: the statement form that comes out.

Tested by: tests/unit/memopt/lifting/demotion. ``aliasing``, ``case_split``, ``dead_fp`` and ``statements`` have a test
file of their name there. ``recover``, ``available``, ``home_cells``, ``outer_carried``, ``demanded``,
``scalar_expansion`` and ``split_stores``: test_statements.py. ``expressions``, and ``case_split`` in whole nests:
test_statement_types.py.
"""
