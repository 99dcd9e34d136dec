"""Integer sets, dependences, loop ASTs.

In: ``Scop``, ``Linear`` constraints. Out: isl relations, convex dependence pieces, the AST of a schedule. May be
touched: ``isl.py`` alone touches islpy; knows no machine code and no plan.

Modules: ``dependence_pieces``, ``dependences``, ``isl``, ``loop_ast``.
"""
