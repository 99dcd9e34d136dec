"""x86-64 machine code: decoding, semantics, instruction objects, assembly, relocation, the frame of a version.

In: bytes of machine code and their address; or instruction objects and a base address. Out: decoded instructions;
blocks of operations over 64-bit locations (``memopt.ir.operations``); bytes that were decoded again and compared. Code
that is outside the model is Rejected(UNSUPPORTED_INSTRUCTION, ATOMIC or NO_ROOM) with its address; a wrong encoding is
a ``VerifyError``.

May be touched: values only. Code of a process comes in through a ``read(address, size)`` argument; nothing is written.
Capstone, Keystone and pyvex are imported by one module each, and none of their types leaves it (but for
``decoder.capstone_detail``).

From bytes to operations:

- ``decoder``: bytes to decoded instructions, with their kind of control flow (Capstone).
- ``semantics``: the operations of a basic block (pyvex).
- ``operators``: VEX's scalar operators, conversions and rounding modes as operators of ``memopt.ir.operations``.
- ``vector_operators``: VEX's packed operators, element by element.
- ``predicates``: the 32 predicates of floating-point comparisons, by the immediate.
- ``lanes``: vector values as tuples of 64-bit lanes; what the rules of both share.
- ``conditions``: condition codes over a lazy flag state, as comparisons.
- ``block_builder``: builds a block: constant folding, value numbering, dead code elimination.
- ``dead_operations``: removes dead stores and unused values from one block.

From instruction objects to bytes:

- ``instructions``: instruction objects, labels, raw bytes, padding.
- ``assembler``: instruction objects to bytes for a base address (Keystone).
- ``verify``: decodes what was assembled and compares the meaning.
- ``frame``: the layout of the frame page of a version.

The program's own code, moved:

- ``relocate``: original instructions and loops moved as bytes; branches into a range of code.
- ``code_pointers``: where addresses of instructions are named: tables of indirect jumps, words, operands.
- ``displacement``: what moves to make room for a patch: the instructions under it, or the whole loop.

Tested by: ``tests/unit/memopt/x86``, by module. ``semantics`` covers ``operators``, ``vector_operators``,
``predicates``, ``lanes`` and ``conditions`` (``test_semantics``, and ``tests/property/test_semantics.py`` against the
processor); ``assembler`` covers ``instructions`` and ``verify`` (``test_assembler``, and
``tests/property/test_assembler.py`` against GNU as); ``test_block_builder`` covers ``dead_operations``.
"""
