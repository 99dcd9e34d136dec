"""Schedules of any statements.

In: ``Scop``, dependences. Out: ``LoopPlan``s, best first; NOT checked here. May be touched: imports no code
generator.

Modules: ``allen_kennedy``, ``blocking``, ``candidates``, ``carried_dependences``, ``components``,
``index_set_splitting``, ``leaf_options``, ``rebasing``, ``row_alignment``, ``storage_mapping``, ``time_tiling``.
"""
