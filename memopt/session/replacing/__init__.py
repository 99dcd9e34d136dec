"""The stages of one loop: it is replaced by a faster version, or refused for a typed reason.

In: a loop of a running ``Process``, and the ``History`` of its loops. Out: ``Installed``, or
``Rejected``; a stage that fails leaves nothing in the process.
May be touched: the process. It is stopped for moments, forked into shadows, and gets new code and five changed bytes at
a loop header. This is the only room that imports ``passes`` and ``runtime.patching`` together.

The stages, in their order:

- ``stages``: the list of stages, as one function that replaces one loop.
- ``site``: find: the code around a hot address, its loops, and the refusals that follow from the code alone.
- ``callees``: find: the target of a call in a hot loop, for inlining.
- ``capture``: capture and lift: a shadow runs to the loop header; registers and code become a ``Region``.
- ``recurrence``: capture: whether sizes come again, before one more version is made for them.
- ``kept_shadow``: the shadow in which loops are captured, kept from one loop to the next.
- ``others``: loops that others may wait for, and how often their versions come back to their guards.
- ``one_thread_guards``: guards that the program has one thread.
- ``compilation``: schedule and generate: plans for the region, and machine code for each.
- ``stored_plan``: schedule: the plan of an earlier run, proved again.
- ``constant_text``: reserve: whether the program can change its code, for loops that have to move.
- ``reservation``: reserve: room for the patch, and memory for a version in the process.
- ``validation``: validate: the original and the versions run the same iterations in shadows, and must agree.
- ``installation``: install: the code into its memory, then the jump at the loop header.
- ``versions``: several versions of one loop, for different sizes.

Shared by the stages:

- ``process``: the process as the stages see it: how to stop it, how to copy it.
- ``stage_times``: the time of each stage, and limits on processor time.
- ``history``: decisions, refusals and live-in values of the loops of a process so far.
- ``known``: what earlier runs found out about the loops, and what later ones will be told.
- ``decision``: the decision about a loop, up to its line in the report.
- ``source``: what the source says about the loops: their lines, and the statement behind a refusal.

Tested by: tests/unit/memopt/session/replacing, a file for each module; ``stages``, ``compilation``, ``reservation``
and ``installation`` by tests/equivalence/test_random_nests.py and tests/live/test_exec_*.py; ``stored_plan`` by
tests/live/test_plans.py and tests/unit/passes/test_proved_again.py; ``callees`` by tests/live/test_calls.py;
``process``, ``history``, ``decision`` and ``source`` by test_in_service.py and test_improver.py.
"""
