"""Polyhedral analysis: integer sets and relations, memory-based dependences, the loop AST of a schedule.

In: a ``Scop`` (memopt.ir.scop), ``Linear`` constraints, schedules. Out: isl sets and relations behind types of ours,
dependences (as isl maps or as convex pieces), a loop AST.
May be touched: nothing is changed. Only ``isl`` imports islpy. No module here knows machine code or a plan.

- ``isl``: integer sets, relations and polyhedra, with budgets for isl operations and for time.
- ``dependences``: flow, anti and output dependences of a SCoP as exact isl maps (contractions, legality checks).
- ``dependence_pieces``: the same dependences as a list of convex pieces (schedulers of loop plans).
- ``loop_ast``: the loops that scan a schedule, from isl's AST generator.

Tested by: tests/unit/memopt/polyhedral, a file for each module; tests/property/test_schedules.py. The loops of
``loop_ast`` are also run by tests/unit/passes/loop_code/test_nest_code.py.
"""
