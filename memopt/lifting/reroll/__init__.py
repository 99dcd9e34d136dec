"""Loop rerolling: undoes unrolling, peeling and vectorisation, so that the statements are those of the source again.

In: a ``StatementLoop`` of memopt.lifting.demotion, the aliasing of its cells, the captured state. Out: an equivalent
``StatementLoop`` with fewer statements and plainer loops; quotients in bounds are gone.
May be touched: statement trees only, which are replaced, not changed. Proofs tell ``CapturedState``, which is
``Evidence`` of memopt.lifting.scop, what they rely on.

Before rerolling:

- ``overlapping_copies``: a row that is copied in pieces which overlap (memcpy) becomes one loop.
- ``splat_constants``: reads of equal constants that are kept once for each lane become reads of one.
- ``operand_order``: copies that differ in the order of operands get one order; makes the guard that no NaN is read.

Rerolling:

- ``reroll``: the main file: unrolled copies in a loop and vector lanes become iterations.
- ``isomorphism``: whether statements do the same at other places (SLP's isomorphic statements), and how far apart.
- ``proofs``: what rerolling relies on: independence, equal numbers, bounds.
- ``straight_line``: completely unrolled loops.
- ``peeling``: prologues and epilogues become iterations of the loop beside them.
- ``remainders``: remainder iterations whose number depends on a trip count modulo the unroll factor.
- ``short_trips``: code of its own for short trip counts.

After rerolling:

- ``floor_divisions``: trip counts with a floor division are cut where an affine bound is, or made affine.

Tested by: tests/unit/memopt/lifting/reroll; ``isomorphism``, ``peeling``, ``proofs`` and ``straight_line`` by
test_reroll.py there.
"""
