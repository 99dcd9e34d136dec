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
from memopt.ir.scop import TRIPS
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
    far as a copy of it gets. ``exits``: where the program goes on behind the loop.

    A version may leave the first iteration to the original, because registers have other values before it. So where
    the guards hold at the second iteration only, its values are taken."""
    from runtime.trial.shadow import ShadowStopped, copies_of

    found: list[Sample] = []
    with suppress(Rejected, ShadowStopped), copies_of(shadow, 1) as (ahead,):
        left = AHEAD_SECONDS
        while len(found) < MOST_ENTRIES:
            found.append(_sample(region, ahead))
            if _unlike(region, found[-1]) and found[-1][TRIPS] > 1:
                left -= ahead.run_to(region.header, left)
                second = _sample(region, ahead)
                if not _unlike(region, second):
                    found[-1] = second
            left -= ahead.run_out(exits, left)
            left -= ahead.run_to(region.header, left)
    return found


def _sample(region: Region, shadow: Shadow) -> Sample:
    from runtime.trial.agreement import general_registers
    from runtime.trial.trial import live_values

    registers = general_registers(shadow.registers())
    signed = {r: (v + (1 << 63)) % (1 << 64) - (1 << 63) for r, v in registers.items()}
    return signed | live_values(region, shadow)


def _unlike(region: Region, entry: Sample) -> bool:
    """Whether ``entry`` has other sizes than the region was made for."""
    return any(map(any, sizes(region, (entry,))))


def sizes(region: Region, entries: Sequence[Sample]) -> Iterator[Sizes]:
    """The sizes at each of ``entries``. Precondition: they have the live-in symbols of ``region``."""
    equal = [g.expression for g in region.guards if isinstance(g, Relation) and g.equal]
    return (tuple(e.evaluate(entry) for e in equal) for entry in entries)


def recurring(region: Region, entries: Sequence[Sample]) -> bool:
    """Whether versions for single sizes would serve half of ``entries``. A few entries decide nothing: True."""
    seen = Counter(sizes(region, entries))
    return 2 * sum(count for _, count in seen.most_common(LOOKS)) >= len(entries)
