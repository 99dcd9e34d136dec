"""Code generation for loop plans: loops over macro instances, and register tiles inside each of them.

A macro instance is the set of a statement's points with equal dates (``memopt.ir.plan.Leaf``): a tile of the iteration
domain. isl makes the loops that visit the macro instances; the code inside one, the leaf, is made here.

In: a ``Region``, a ``LoopPlan`` for it, the frame slots of the symbols, the address of the scratch memory, an emitter.
Out: instruction objects for the iterations 0 <= outer < H in the emitter. A plan that cannot be coded is
Rejected(NO_PLAN or NO_SCHEDULE); a plan that contradicts the region is a ``VerifyError``.

May be touched: the integer sets and syntax trees of ``memopt.polyhedral``, the instruction selection of
``passes.vector``, the instruction objects of ``memopt.x86``. No process, no file, no clock. The emitted code uses
neither the stack nor rbp, which holds the frame.

Modules, from the whole nest inwards:

- ``nest_code``: the code of a whole loop plan; lays out private arrays and constants.
- ``macro_instances``: the schedule of the macro instances as an isl relation, and isl's loops for it.
- ``ast_code``: isl's loops, conditions and bounds as machine code; integer arithmetic on ``Linear`` expressions.
- ``subroutine``: subroutines that do without the stack.
- ``leaf_shape``: the iteration domain and the addresses of a leaf, affine in row, vector and sequential number.
- ``collapsing``: loop collapsing of short contiguous rows into one vector dimension.
- ``narrowing``: type narrowing of integer expressions.
- ``fma``: products and sums contracted to fused multiply-adds, under ``--fp fast``.
- ``leaf_code``: the loops over row blocks, vectors and steps inside a macro instance.
- ``partial_tiles``: the steps that only some rows or lanes of a tile have.
- ``ranges``: the loop bounds of one axis as machine code.
- ``tile_run``: the size of the register tiles, and the loop around one.
- ``tile_body``: the loads, operations and stores of one register tile, and its register allocation.
- ``value_numbering``: value numbering over a register tile, so that equal values are computed once.
- ``pointers``: accesses that differ by a constant share a pointer.

Tested by: ``tests/unit/passes/loop_code``: ``test_narrowing`` covers ``narrowing``. ``test_nest_code`` runs the code of
whole nests and compares all bytes and exception flags with scalar code; so it covers ``nest_code``, ``ast_code``,
``collapsing``, ``fma``, ``leaf_code``, ``leaf_shape``, ``macro_instances``, ``partial_tiles``, ``pointers``,
``ranges``, ``subroutine``, ``tile_body``, ``tile_run`` and ``value_numbering``; it also calls ``collapsing`` and
``leaf_shape`` directly. ``tests/property/test_loop_code.py`` does the same with random plans.
``test_conditional_accesses`` and ``tests/property/test_conditional_nests.py`` run loads and stores under conditions
next to pages that must not be touched.
"""
