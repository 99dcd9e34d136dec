"""Control flow of machine code.

In: bytes through a ``read(address, size)`` argument, symbols, known function ranges. Out: ``FlowGraph``, ``Loop``,
``LoopForest``, register liveness (types in ``ir/graph``). May be touched: reads code only; knows no symbolic value,
no process.

Modules: ``cold_calls``, ``dead_registers``, ``dominators``, ``flowgraph``, ``functions``, ``inlining``,
``jump_tables``, ``library_models``, ``loop_nesting``, ``natural_loops``, ``noreturn``, ``unroll``.
"""
