"""What else a lifted nest tells (`profile --affine`).

In: ``LoopNode``, live-in values. Out: working-set curves. May be touched: pure numbers.

Modules: ``elapsed_iterations``, ``footprints``.
"""
