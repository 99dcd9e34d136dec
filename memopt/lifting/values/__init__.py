"""The value language and the loop tree.

In: operations of ``ir/operations``. Out: canonical values, ``LoopNode`` trees, ``Request``s. May be touched: imports
``ir`` only; every rule is an identity on bit patterns.

Modules: ``algebra``, ``bits``, ``bounds``, ``canonical``, ``extensions``, ``loop_tree``, ``numbers``, ``requests``,
``values``.
"""
