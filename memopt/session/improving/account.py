"""Where the samples of a process went: into loops that were replaced, loops that were left alone, and the rest.

Example: of 1,000 samples 700 fell into a replaced loop, 200 into one that was refused, and 60 into a third loop, which
was never hot enough to be looked at; 40 are spread over code without loops. The third loop gets a line in the report,
too. In: the samples, the decisions, the executable mappings. Out: an ``Account`` and ``LoopReport`` values. It is made
once, when the program has ended: its files are read instead of its memory.
"""

from __future__ import annotations

import bisect
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from memopt.ir.reasons import Reason
from memopt.report.model import HOT_SHARE, Account, LoopReport, Outcome
from memopt.session.measuring.hotness import NEIGHBOURHOOD
from memopt.session.replacing.decision import Decision, Installed
from memopt.session.replacing.site import Ranges, Site, site_in_file
from memopt.session.replacing.source import Sources
from runtime.sampling.perf_events import INTERVAL_NS
from runtime.target.memory import Mapping

_MOST_PLACES, _MOST_SECONDS = 8, 0.15  # that are looked at when the program has ended: its user waits


@dataclass
class Unlooked:
    """Samples that no decision covers. ``loops``: those that are hot enough to be shown."""

    loops: list[LoopReport] = field(default_factory=list)
    no_loop: int = 0
    late: int = 0  # in loops that would have been looked at if the program had gone on
    rest: int = 0  # in other loops, or in places with so few samples that nobody looked


def account(samples: Counter[int], decisions: Sequence[Decision], settled: Ranges, maps: Sequence[Mapping],
            sources: Sources, late: float) -> tuple[Account, list[LoopReport]]:
    """The account of ``samples``, and a report for each hot loop that was not looked at.

    ``settled``: all code that was ever decided about, versions that were taken out included. ``late``: from this share
    of the samples on, a loop would have been looked at if the program had gone on."""
    improved, left = Counter[int](), Counter[int]()
    better, worse = _Ranges(_improved(decisions)), _Ranges((*settled, *(r for d in decisions for r in d.ranges)))
    open_ones = Counter[int]()
    for address, count in samples.items():
        (improved if address in better else left if address in worse else open_ones)[address] = count
    found = _unlooked(open_ones, samples.total(), maps, sources, late)
    parts = improved.total(), left.total(), found.rest, found.late, found.no_loop
    return Account(*(INTERVAL_NS * 1e-9 * part for part in parts)), found.loops


def _improved(decisions: Iterable[Decision]) -> Iterator[tuple[int, int]]:
    for decision in decisions:
        if isinstance(decision, Installed):
            placement = decision.compiled.placement
            yield placement.code, placement.code + placement.code_size
            yield from decision.ranges


class _Ranges:
    """A set of addresses, as half-open ranges. It is asked for every address that was ever sampled."""

    def __init__(self, ranges: Iterable[tuple[int, int]]) -> None:
        self._starts, self._ends = list[int](), list[int]()
        for low, high in sorted(ranges):
            if self._ends and low <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], high)
            else:
                self._starts.append(low)
                self._ends.append(high)

    def __contains__(self, address: int) -> bool:
        index = bisect.bisect_right(self._starts, address) - 1
        return index >= 0 and address < self._ends[index]


def _unlooked(samples: Counter[int], total: int, maps: Sequence[Mapping], sources: Sources, late: float) -> Unlooked:
    """The loops around ``samples``, the hottest places first; all that have few samples are left together."""
    found, pending = Unlooked(), Counter(samples)
    deadline = time.monotonic() + _MOST_SECONDS
    for _ in range(_MOST_PLACES):
        places = Counter[int]()
        for address, count in pending.items():
            places[address >> NEIGHBOURHOOD] += count
        place, count = max(places.items(), key=lambda x: x[1], default=(0, 0))
        if not count or count < HOT_SHARE * total or time.monotonic() > deadline:
            break
        hottest = max((a for a in pending if a >> NEIGHBOURHOOD == place), key=lambda a: (pending[a], a))
        mapping = next((m for m in maps if m.start <= hottest < m.end), None)
        site = site_in_file(mapping, hottest) if mapping is not None and mapping.path.startswith("/") else None
        inside = _loop_ranges(site)
        within = _Ranges(inside)
        here = {a for a in pending if (a in within if inside else a >> NEIGHBOURHOOD == place)}
        weight = sum(pending.pop(a) for a in here)
        if site is None or not inside:
            found.no_loop += weight
            continue
        share = weight / total
        if share >= late:
            found.late += weight
        else:
            found.rest += weight
        reason = Reason.ENDED if share >= late else Reason.NOT_HOT
        header = site.loops[0].header
        found.loops.append(LoopReport(header, share, Outcome.KEPT, site.function, sources.of_header(site, header),
                                      reason, code=site.code_at(header)))
    found.rest += pending.total()
    return found


def _loop_ranges(site: Site | None) -> Ranges:
    if site is None or not site.loops:
        return ()
    return tuple((b, site.graph.blocks[b].end) for b in site.loops[0].blocks)
