"""Generates the kernel of a contraction: tile loops, packing and the micro-kernel.

In: a ``Contraction`` (statement and plan), the frame layout, an ``Emitter``.
Out: instruction objects in the emitter.
May be touched: every register but ``rbp`` and ``rsp``, frame slots, the version's scratch memory (panels and one ragged
tile), and the result array. Never the stack.

The code has this shape::

    for each tile loop of the plan                  tile_loops
        pack the operands due inside this loop      packing_code
    for each register tile                          contraction_kernel
        copy a ragged tile in                       ragged
        load accumulators, loop over k, store       micro_kernel
        copy a ragged tile out                      ragged

- ``contraction_kernel``: the kernel as a whole, with the values that do not change in its loops.
- ``tile_loops``: the loops over tiles around what the caller puts inside.
- ``packing_code``: copies a block of an operand into panels, and computes there what depends on one element alone.
- ``micro_kernel``: one full register tile, reduction innermost.
- ``ragged``: tiles at the edges, copied to and from a full tile in scratch memory.

Tested by: ``tests/unit/passes/contraction_code``: ``test_contraction_kernel.py`` runs kernels and so covers
``packing_code``, ``ragged`` and ``tile_loops``, too; ``test_micro_kernel.py`` looks at the micro-kernel's code and has
golden listings of whole kernels.
"""
