"""Lifting: machine code and a captured state become a ``Region``, a SCoP with its guards and live-ins.

In: ``Code`` (flow graph, loops, operations of basic blocks), the registers at the loop's header, ``peek`` for memory.
Out: ``Lifted`` (a ``Region`` and the forms that led to it), or ``Rejected`` with the reason.
May be touched: nothing outside; the program's memory is only read, through ``peek``. Other packages import ``lift``,
and ``survey`` for profiles.

- ``lift``: the entry point: views of an entry, attempts under assumptions, the passes over statements.

The rooms, in the order of the data (each imports only those before it; ``survey`` stands aside):

- ``values``: the value language, its arithmetic and bounds, the loop tree, requests.
- ``execution``: symbolic execution of one iteration of each loop.
- ``demotion``: registers become memory cells, so that statements remain.
- ``reroll``: undoes unrolling, peeling and vectorisation.
- ``scop``: arrays, domains, guards: the region.
- ``survey``: what else a lifted nest tells (``memopt profile --affine``).

Tested by: tests/unit/memopt/lifting (``lift``: test_lift.py), tests/golden/test_lifting.py, and the property tests
tests/property/test_lifted_*.py.
"""
