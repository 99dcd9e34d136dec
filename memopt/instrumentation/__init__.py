"""Instrumentation planning: where probes stand in a function, what they record, which registers they may use.

In: the ``FlowGraph`` of a function, its loop nesting (memopt.cfg), decoded instructions. Out: places of counters and
how to solve for the other counts, path numbers, memory accesses, probe points of values, free registers.
May be touched: nothing; all functions are pure. The code of the probes is made by ``runtime/recording/translation``.

Counts:

- ``edge_counters``: places the fewest counters from which all block and edge counts follow.
- ``induction_registers``: finds registers that count a loop's iterations themselves.
- ``path_numbering``: numbers the acyclic paths of a function (Ball and Larus).

Memory and values:

- ``memory_operands``: the memory accesses of an instruction by its operands.
- ``hyperblocks``: groups blocks whose accesses one probe records together.
- ``value_probes``: which arguments, loop invariants and trip counts are recorded, and where.

Probes:

- ``scratch_registers``: registers and flags that a probe may change without saving them.

Tested by: tests/unit/memopt/instrumentation, a file for each module.
"""
