"""The intermediate representations: frozen values that pass between the stages, each with one stable text form.

In: nothing; the other rooms make these values. Out: SCoPs, regions and plans, the operations that machine code is
lifted to, control-flow graphs, reasons for refusals. ``memopt.ir.parse`` reads SCoPs, regions and plans back from
their text, so that one pass runs alone (``memopt.opt``).

May be touched: nothing. All values are immutable; the functions are pure. The room imports no other one.

What the machine code is:

- ``operations``: about forty scalar operations that machine code is lifted to.
- ``evaluate``: the integer ones of these operators on numbers.
- ``graph``: instructions, basic blocks, flow graphs and natural loops.

What the nest computes:

- ``linear``: affine expressions over named symbols, with floor divisions.
- ``scop``: static control parts: arrays, statements, iteration domains, expressions.
- ``cells``: the exact cells that an access touches over an iteration domain.
- ``region``: a SCoP with its live-ins, guards, rejoin and footprints.

What is to be done:

- ``isa``: the instruction sets that new code is made for.
- ``plan``: schedules: tiles and register tile of a contraction, or dates and leaves of any statements.
- ``code``: the machine code of a version, where it lies, and the layout of its statistics and frame pages.

Text forms:

- ``cursor``: scanner: a position in a text, names, numbers, affine expressions, and ``ParseError``.
- ``parse``: recursive-descent parsers for SCoPs, regions and plans.

For all:

- ``reasons``: why a loop or a program is left alone (``Rejected``), and broken invariants (``VerifyError``).
- ``frozen``: makes frozen dataclasses in a fraction of the time.
- ``identity``: memoisation of pure functions by the identity of their arguments.

Tested by: tests/unit/memopt/ir (``cells``, ``frozen``, ``identity``, ``linear``, ``reasons``; test_parse.py covers
``cursor``, ``parse`` and the text forms of ``scop``, ``region`` and ``plan``); ``operations`` and ``evaluate`` by
tests/property/test_semantics.py; ``graph`` by tests/unit/memopt/cfg; text forms of lifted regions and schedules by
tests/golden; ``code`` by tests/unit/passes/version; the others by the rooms that use them.
"""
