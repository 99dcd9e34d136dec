"""One vector instruction on SSE2, AVX2, AVX-512.

In: expressions, registers. Out: instruction objects. May be touched: knows no plan and no loop.

Modules: ``calls``, ``comparisons``, ``conversions``, ``emitter``, ``floating``, ``instructions``, ``integers``,
``lowering``, ``masks``, ``registers``, ``requirements``, ``strided``.
"""
