"""The transformation engine: finds a better schedule for a lifted nest and generates machine code for it.

In: a ``Region`` (statements, guards, rejoin), the machine description, the instruction set.
Out: a ``NestPlan``, then a ``CompiledRegion`` (the version: entry, guards, kernel, rejoin), or ``Rejected``.
May be touched: its arguments alone. Passes are pure functions: no process, no file, no clock. They import ``memopt``,
never ``runtime``.

A nest goes through the rooms in this order::

    planning                                   asks the schedulers for plans and has each proved legal
        contraction_schedule | loop_schedule   find the plan: ``Plan`` or ``LoopPlan``
        legality                               proves a finished plan; shares no code with the schedulers
    version                                    puts entry, guards, kernel and rejoin around the plan's parts
        contraction_code | loop_code           generate the kernel of one part
            vector                             emits the operators of an expression on SSE2, AVX2 or AVX-512

Why there are two of everything. There are two schedulers (``contraction_schedule``, ``loop_schedule``), two cost models
(``memopt/models/contraction_cost``, ``loop_cost``), two legality checks (``legality/contractions``, ``loops``) and two
generators (``contraction_code``, ``loop_code``). One of each is for contractions such as
``C[i][j] += A[i][k]*B[k][j]``, the other for loop plans, which schedule any affine statements. Contractions reuse their
operands so often that copying these pays, and the copies decide everything: the register tile reads operands from
packed panels, so tile sizes follow from the panels that fit a cache, the cost model counts the copies, the legality
check asks that nobody writes a packed operand, and the generator fills and pads the panels. The leaf of a loop plan
reads its operands in place, by strides. A leaf that could read packed operands would end the fork: a contraction would
then be one more loop plan.

- ``planning``: chooses the scheduler and yields proved plans, best first.
- ``context``: the target description for every scheduler: machine, instruction set, original loop.
- ``contraction_schedule``: tiles one contraction and packs its operands.
- ``loop_schedule``: schedules any affine statements: fusion, distribution, tiling, time tiling, blocking.
- ``legality``: the second, independent proof that a plan keeps every dependence.
- ``version``: the contract of a version (``ARCHITECTURE.md``) as code.
- ``contraction_code``: the kernel of a contraction.
- ``loop_code``: the kernel of a loop plan.
- ``vector``: instruction selection for expressions.

Tested by: ``tests/unit/passes`` (a folder for each room, ``test_planning.py`` for ``planning``); whole nests by
``tests/equivalence`` and ``tests/property``.
"""
