"""The second legality check: does a finished plan keep every dependence of the SCoP? It shares no code with schedulers.

In: a ``Scop`` and a finished plan for it. Out: nothing if the plan is legal; else ``Rejected(NO_SCHEDULE)`` with the
first violation. A plan about which isl cannot decide within its budget of operations is rejected, too.

May be touched: nothing; the functions are pure. The room imports memopt.ir and memopt.polyhedral alone (import-linter
checks it). So a fault in a scheduler cannot hide itself: dates, conflicts and storage are derived anew.

- ``contractions``: plans with tiles, packed operands and a register tile, of one statement.
- ``loops``: loop plans with dates, leaves, rebased counters and storage mappings, of any statements; and sequences of
  parts.

Tested by: tests/unit/passes/legality; tests/property/test_schedules.py compares both with enumerated instances;
tests/golden/passes/legality-*.txt has examples; tests/mutation seeds faults.
"""
