"""Loop versioning: machine code for a version of a nest, from the entry and its guards to the rejoin.

A version is new code for iterations 0 .. H-1 of a nest (ARCHITECTURE, "The contract of a version")::

    patch at the header -> entry: take the frame, save registers
                        -> guards: all hold?   no -> restore all, original code
                        -> kernel: iterations 0 <= outer < H
                        -> rejoin: the state of the header in iteration H -> original code runs the rest,
                                   or, after a chunk (``FRAME_CHUNK``), entry again

In: a ``Region``, a ``NestPlan`` for it, a ``Placement`` (addresses in the target), the machine's XCR0. Out: a
``CompiledRegion``. Errors: Rejected(NO_PLAN or NO_SCHEDULE) where the code becomes too large or numbers do not fit;
``VerifyError`` where anything breaks the contract.

May be touched: this room alone implements the contract of a version. It calls ``passes.contraction_code`` and
``passes.loop_code`` for the kernel and ``memopt.x86`` for instructions and assembly. No process, no file, no clock. The
emitted code changes the frame, the statistics, the scratch memory, the footprints that the region writes, and nothing
else that the program can see.

Modules, in the order in which a version runs:

- ``generate``: puts entry, kernel and exit together and assembles them for their place.
- ``entry``: the prologue: takes the frame, saves registers, counts; and the way back when a guard fails.
- ``file_entry``: the parts of an entry that only code for a file has: the first entry, rest after misses.
- ``guards``: loads live-ins, computes R and H, checks every guard.
- ``code_guards``: the guards on the program's own machine code: it is what was lifted.
- ``cell_scan``: loops over exactly the cells that the nest reads or writes, for guards and copies.
- ``cell_checks``: guards on many cells: words of row tables, numbers that may not be NaNs.
- ``overflow_guards``: the guards that keep loop bounds within 64-bit arithmetic.
- ``linear_code``: ``Linear`` expressions as code, for guards (overflow checked) and rejoin (modulo 2**64).
- ``kernel``: the code of the iterations: one part after the other of a distributed nest.
- ``rejoin``: the epilogue: registers, cells and modes as at the header in iteration H.
- ``rollback``: the undo log of a version that takes back its stores after an invalid square root.

Tested by: ``tests/unit/passes/version``, which executes the code, a file for each module; ``test_guards_memory`` covers
the guards on memory in ``guards`` and ``cell_checks``. ``linear_code`` and ``overflow_guards`` are covered by
``test_guards``, ``kernel`` by ``tests/unit/passes/loop_code/test_nest_code.py`` and
``tests/unit/passes/contraction_code/test_contraction_kernel.py``.
"""
