"""Instruction selection for expressions: one call for each vector operation, the same for SSE2, AVX2 and AVX-512.

Example: ``Lowering(...).into("zmm0", a + b * c, leaf)`` emits ``vmulpd`` and ``vaddpd`` (and moves or loads that the
operands need).

In: expressions of a statement, and a function that says in which register or memory cell a value is.
Out: instruction objects, written to an ``Emitter``.
May be touched: vector registers and mask registers of the pools, one spare general-purpose register, frame slots. Knows
no plan and no loop.

- ``emitter``: the code buffer: instructions, labels, frame slots, and a few general-purpose helpers.
- ``registers``: how many lanes a statement has (``VectorUnit``), and the pools of free registers.
- ``instructions``: single vector instructions (``VectorCode``): loads, stores, broadcasts, operators with 1 or 2
  operands.
- ``masks``: mask registers of AVX-512F, and vectors such as 0, 1, 2, ...
- ``strided``: loads and stores of elements that are not neighbours: gathers, reversed and interleaved vectors.
- ``conditional``: loads and stores of the lanes where a condition holds: masks, or a branch around each lane.
- ``lowering``: expression trees to instructions; chooses among the operator modules below.
- ``floating``: floating-point arithmetic, fused operations, bitwise operators.
- ``integers``: integer arithmetic and shifts.
- ``comparisons``: comparisons, connectives of truth values, selection.
- ``conditional``: loads and stores under a condition: mask registers, vmaskmov, or a branch around each lane.
- ``conversions``: extension, truncation, integer <-> floating point.
- ``calls``: calls of library functions, for one lane.

Tested by: ``tests/unit/passes/vector``: ``test_lowering.py`` (also ``registers``, ``instructions``, ``floating``),
``test_strided.py`` (also ``masks``), ``test_calls.py``, ``test_requirements.py``. ``conditional``:
``tests/unit/passes/loop_code/test_conditional_accesses.py``, ``tests/property/test_conditional_nests.py``.
``integers``, ``comparisons`` and ``conversions``, every operator on every instruction set:
``tests/property/test_lowered_expressions.py`` and ``test_random_expressions.py``. ``emitter``:
``tests/unit/passes/contraction_code/test_contraction_kernel.py``.
"""
