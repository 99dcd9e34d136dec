"""Undo register promotion: registers become memory statements.

In: ``LoopNode`` of the outer loop. Out: ``StatementLoop``, private arrays, what the rejoin restores. May be touched:
never looks at code; may add obligations.

Modules: ``aliasing``, ``available``, ``case_split``, ``dead_fp``, ``demanded``, ``expressions``, ``home_cells``,
``outer_carried``, ``recover``, ``scalar_expansion``, ``split_stores``, ``statements``.
"""
