"""Whether the sizes of a loop come again. A copy of the program runs ahead before another version is made for them.

Example: ``for (i = 0; i < n; i++) { log(i); for (k ...) for (j = 0; j <= i; j++) ... }``. The loop over k comes with
``i + 1`` columns, another number at every entry. Where lifting finds no parameter for them, the equality guards of a
version admit one entry of n, so that no number of versions is worth its time.

In: a region that was lifted with earlier entries known, and a shadow at its header. Out: the entries that follow, and
whether the most frequent sizes, as many as there may be versions, make up half of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from memopt.ir.reasons import Rejected
from memopt.ir.region import Relation
from memopt.session.replacing.history import LOOKS

if TYPE_CHECKING:
    from memopt.ir.region import Region, Sample
    from runtime.trial.shadow import Shadow

MOST_ENTRIES = 3 * LOOKS  # that are looked at
AHEAD_SECONDS = 0.3  # of processor time of the copy, for all of them

Sizes = tuple[int, ...]
"""The values that the equality guards of a version compare with the numbers it was made for."""


def entries_ahead(region: Region, exits: frozenset[int], shadow: Shadow) -> list[Sample]:
    """The values of registers and live-in symbols at the entry at which ``shadow`` stands, and at those that follow, as
    far as a copy of it gets. ``exits``: where the program goes on behind the loop."""
    from runtime.trial.shadow import ShadowStopped, copies_of
    from runtime.trial.trial import general_registers, live_values

    found: list[Sample] = []
    with suppress(Rejected, ShadowStopped), copies_of(shadow, 1) as (ahead,):
        left = AHEAD_SECONDS
        while len(found) < MOST_ENTRIES:
            registers = general_registers(ahead.registers())
            signed = {r: (v + (1 << 63)) % (1 << 64) - (1 << 63) for r, v in registers.items()}
            found.append(signed | live_values(region, ahead))
            left -= ahead.run_out(exits, left)
            left -= ahead.run_to(region.header, left)
    return found


def sizes(region: Region, entries: Sequence[Sample]) -> Iterator[Sizes]:
    """The sizes at each of ``entries``. Precondition: they have the live-in symbols of ``region``."""
    equal = [g.expression for g in region.guards if isinstance(g, Relation) and g.equal]
    return (tuple(e.evaluate(entry) for e in equal) for entry in entries)


def recurring(region: Region, entries: Sequence[Sample]) -> bool:
    """Whether versions for single sizes would serve half of ``entries``. A few entries decide nothing: True."""
    seen = Counter(sizes(region, entries))
    return 2 * sum(count for _, count in seen.most_common(LOOKS)) >= len(entries)
