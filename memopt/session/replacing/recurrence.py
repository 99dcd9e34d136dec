"""Whether the sizes of a loop come again. A copy of the program runs ahead before another version is made for them.

Example: ``for (i = 0; i < n; i++) { log(i); for (k ...) for (j = 0; j <= i; j++) ... }``. The loop over k comes with
``i + 1`` columns, another number at every entry. Where lifting finds no parameter for them, the equality guards of a
version admit one entry of n, so that no number of versions is worth its time.

In: a region that was lifted with earlier entries known, and a shadow at its header. Out: Rejected(NEW_SIZES) where the
most frequent sizes, as many as there may be versions, make up less than half of the entries that follow.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Relation
from memopt.session.replacing.history import LOOKS

if TYPE_CHECKING:
    from memopt.ir.region import Region
    from runtime.trial.shadow import Shadow

MOST_ENTRIES = 3 * LOOKS  # that are looked at
AHEAD_SECONDS = 0.3  # of processor time of the copy, for all of them

Sizes = tuple[int, ...]
"""The values that the equality guards of a version compare with the numbers it was made for."""


def check_recurring(region: Region, exits: frozenset[int], shadow: Shadow) -> None:
    """Raises Rejected(NEW_SIZES) where versions for single sizes would serve few entries. ``exits``: where the program
    goes on behind the loop. Precondition: ``shadow`` stands at the header of ``region``; it stays there."""
    seen = sizes_ahead(region, exits, shadow)
    served = sum(count for _, count in seen.most_common(LOOKS))
    if 2 * served < seen.total():
        raise Rejected(Reason.NEW_SIZES, f"{len(seen)} different ones in {seen.total()} entries")


def sizes_ahead(region: Region, exits: frozenset[int], shadow: Shadow) -> Counter[Sizes]:
    """How often each sizes come at the entry at which ``shadow`` stands and at those that follow, as far as a copy of
    it gets."""
    from runtime.trial.shadow import ShadowStopped, copies_of
    from runtime.trial.trial import live_values

    equal = [g.expression for g in region.guards if isinstance(g, Relation) and g.equal]
    seen = Counter[Sizes]()
    with suppress(Rejected, ShadowStopped), copies_of(shadow, 1) as (ahead,):
        left = AHEAD_SECONDS
        while seen.total() < MOST_ENTRIES:
            values = live_values(region, ahead)
            seen[tuple(e.evaluate(values) for e in equal)] += 1
            left -= ahead.run_out(exits, left)
            left -= ahead.run_to(region.header, left)
    return seen
