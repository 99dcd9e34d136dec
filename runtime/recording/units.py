"""The units that are placed in one process, found by their addresses.

Example: a signal stops a thread in a copy. ``of_copy`` tells the unit, and the unit tells where the original is.

In: placed units; which of them are retired, because their originals have changed. Out: units by entry, by an address in
the copy, by the record of a site, by a return address.

Invariant: a retired unit is found by its copies and its sites only, since threads may still stand in it.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from copy import copy as shallow_copy

from runtime.recording.placed import Placed
from runtime.recording.translation.unit import Site


class Units:
    """``sites``: by record, with sites of the units. ``parts``: starts of parts of functions that lie apart. ``links``:
    records of the sites that call a unit directly, by where that starts. ``retired``: where retired units start.
    """

    def __init__(self) -> None:
        self._by_start: list[Placed] = []
        self._returns: dict[int, tuple[Placed, Site]] = {}
        self.by_entry: dict[int, Placed] = {}
        self.sites: dict[int, tuple[Placed, Site]] = {}
        self.parts: set[int] = set()
        self.links: dict[int, list[int]] = {}
        self.retired: set[int] = set()

    def forked(self) -> Units:
        """The units of a forked child."""
        child = shallow_copy(self)
        child._by_start, child._returns, child.by_entry = list(self._by_start), dict(self._returns), dict(self.by_entry)
        child.sites, child.parts, child.retired = dict(self.sites), set(self.parts), set(self.retired)
        child.links = {start: list(records) for start, records in self.links.items()}
        return child

    def add(self, units: Iterable[Placed]) -> None:
        """Adds units."""
        for placed in units:
            self._by_start.append(placed)
            self.by_entry[placed.original_entry] = placed
            copy, moved = placed.copy, placed.text
            for site in placed.unit.sites:
                self.sites[site.record + copy] = placed, site
                if site.returns:
                    self._returns.setdefault(site.end + moved, (placed, site))
        self._by_start.sort(key=lambda u: u.start)

    def link(self, record: int, unit: Placed) -> None:
        """Notes that the site with this record calls ``unit`` directly."""
        self.links.setdefault(unit.start, []).append(record)

    def of_copy(self, copy: int) -> Placed | None:
        """The unit that an address of a copy lies in, or None."""
        index = bisect.bisect_right(self._by_start, copy, key=lambda u: u.start) - 1
        return self._by_start[index] if index >= 0 and copy < self._by_start[index].end else None

    def is_retired(self, copy: int) -> bool:
        """Whether an address lies in a copy that has been retired."""
        unit = self.of_copy(copy)
        return unit is not None and unit.start in self.retired

    def returning_to(self, address: int) -> int | None:
        """Where the copy goes on behind a call with this return address; None if no call is known that has it."""
        found = self._returns.get(address)
        return None if found is None else found[1].copy_return + found[0].copy

    def numbered_at(self, address: int) -> Placed:
        """The unit with the call that has this return address."""
        return self._returns[address][0]

    def holding(self, address: int) -> tuple[Placed, int] | None:
        """A unit that has the block at the original ``address``, and where to enter that; or None."""
        found = ((unit, unit.copy_of_block(address)) for unit in self.by_entry.values())
        return next(((unit, at) for unit, at in found if at is not None), None)

    def retire(self, texts: Sequence[tuple[int, int]]) -> list[tuple[Placed, list[int]]]:
        """Retires the units whose originals lie in ``[start, end)`` of one of ``texts``. Returns them with the records
        of the sites that call them directly.
        """
        def gone(address: int) -> bool:
            return any(start <= address < end for start, end in texts)

        units = [u for u in self._by_start if u.start not in self.retired and gone(u.original_entry)]
        self.retired |= {u.start for u in units}
        self.by_entry = {a: u for a, u in self.by_entry.items() if u.start not in self.retired}
        self._returns = {a: s for a, s in self._returns.items() if s[0].start not in self.retired}
        self.parts = {a for a in self.parts if not gone(a)}
        return [(unit, self.links.pop(unit.start, [])) for unit in units]
