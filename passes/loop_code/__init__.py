"""Code of a loop plan: AST loops, leaves, tiles.

In: ``Region``, ``LoopPlan``, emitter. Out: instruction objects. May be touched: as ``vector``, plus isl ASTs.

Modules: ``ast_code``, ``collapsing``, ``fma``, ``leaf_code``, ``leaf_shape``, ``macro_instances``, ``narrowing``,
``nest_code``, ``partial_tiles``, ``pointers``, ``ranges``, ``subroutine``, ``tile_body``, ``tile_run``,
``value_numbering``.
"""
