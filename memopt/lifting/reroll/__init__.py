"""Undo unrolling, peeling, vectorisation.

In: ``StatementLoop``. Out: an equivalent, smaller ``StatementLoop``. May be touched: statement trees only; what it
relies on goes through ``Evidence``.

Modules: ``isomorphism``, ``operand_order``, ``overlapping_copies``, ``peeling``, ``proofs``, ``quotients``,
``remainders``, ``reroll``, ``short_trips``, ``splat_constants``, ``straight_line``.
"""
