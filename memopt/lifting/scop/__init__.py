"""SCoP construction: statements in loops become arrays, iteration domains, guards and live-ins: a ``Region``.

In: the statements that memopt.lifting.reroll leaves, the lifted outer loop with its obligations, the assumptions of the
attempt. Out: a ``Region`` (memopt.ir.region), or ``Rejected``, or a request for another attempt.
May be touched: ``Evidence`` collects guards; nothing else changes. This is the last room of lifting: each condition
that is still open becomes a guard that holds at the captured values, or the loop is rejected.

Evidence and guards:

- ``evidence``: answers proofs' questions about the captured state; collects the guards, lanes and requests that the
  answers rest on.
- ``obligations``: proves the conditions that symbolic execution relied on, or makes guards of them.
- ``liveness``: proves that locations which a version does not restore are dead, and tells how many iterations the
  original must run itself for that.
- ``dereferenceable``: which cells behind pointers the original reads, so that a guard may read them.
- ``progress_cells``: stores of a counter to one cell are left to the rejoin.
- ``table_guards``: guards on the words of row tables that the nest loads.
- ``pivot_guards``: guards that no write hits a cell that stays fixed (a pivot's row).

Statements and arrays:

- ``element_types``: one element type for each array; accesses of several elements are split.
- ``flatten``: statements in loops become statements with domains, positions and accesses.
- ``delinearisation``: byte addresses become arrays with strides and subscripts.
- ``symbolic_rows``: the same for rows as long as a live-in value says.
- ``reduction_unrolling``: short reductions in small nests become one statement.

The result:

- ``live_ins``: where the guard finds each live-in value, and what it checks before it reads it.
- ``region_builder``: assembles the region from all of these.

Tested by: tests/unit/memopt/lifting/scop, tests/unit/memopt/lifting/test_lift.py (``evidence``, ``live_ins``,
``obligations``, ``region_builder``), tests/unit/memopt/lifting/execution/test_row_tables.py (``table_guards``),
tests/unit/memopt/lifting/demotion/test_statement_types.py (``element_types``) and the golden tests of lifted nests
(``flatten``).
"""
