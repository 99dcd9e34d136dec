"""Symbolic execution of one iteration per loop.

In: graph, ``Assumptions``. Out: ``OuterLoop``: loop tree, steps, trip count, obligations. May be touched: the one
room where state changes; it asks for facts by ``Request``.

Modules: ``assumptions``, ``branches``, ``copy_operators``, ``entry_invariants``, ``executor``, ``if_conversion``,
``induction``, ``invariant_compares``, ``iteration``, ``memory``, ``merge``, ``parameters``, ``row_tables``,
``sqrt_exits``.
"""
