"""Control-flow analysis of machine code: control-flow graphs, dominators, loops, inlining, liveness of registers.

In: bytes, through a ``read(address, size)`` argument, function symbols and unwind ranges, the operations of blocks.
Out: ``FlowGraph``, ``Loop`` and ``LoopForest`` (memopt.ir.graph), ``Nesting``, sets of dead registers.
May be touched: nothing is changed. Code bytes are read through the ``read`` argument; only ``functions`` and
``noreturn`` look at an ELF file. No module here knows symbolic values or a process.

Control-flow graphs:

- ``flowgraph``: discovers the control-flow graph around a hot address by recursive traversal.
- ``functions``: graph, dominator tree and loops of each function of a file, for profiles.
- ``jump_tables``: finds the targets of the indirect jumps that compilers make of a switch.
- ``noreturn``: finds calls that never return (``abort``, ``__cxa_throw``).

Loops:

- ``dominators``: dominators, postdominators, reverse postorder.
- ``natural_loops``: natural loops (one header each) and their nesting, for loops that are replaced.
- ``loop_control``: the branches that control a loop, which name its source line.
- ``loop_nesting``: all loops, irreducible ones too, for profiles.

Changed graphs:

- ``inlining``: puts a copy of the called function's blocks at each call in a loop.
- ``library_models``: models of memcpy, memset and the mathematical functions, which stand for their code.
- ``cold_calls``: leaves out blocks whose calls only exceptional iterations make.
- ``unroll``: unrolls a loop whose iterations exchange buffers.

Liveness:

- ``dead_registers``: registers and flags that are dead at a loop header.

Tested by: tests/unit/memopt/cfg, a file for each module; ``loop_control`` by test_lines.py of memopt/elf,
``cold_calls`` by test_sqrt_exits.py of memopt/lifting/execution and test_displacement.py of memopt/x86.
"""
