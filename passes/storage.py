"""Room for private arrays: values that the original keeps in registers lie in memory while loops are distributed.

Before: ``t[i, j]`` for every iteration of the nest. After: room for what one value of the outer dates that all users
share needs, at ``i - 64*d0, j``. passes.loop_legality proves that it is enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from memopt.ir.linear import Linear
from memopt.ir.plan import Leaf, Storage
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.scop import Access, Scop, Statement

MOST_BYTES = 1 << 22


@dataclass(frozen=True, slots=True)
class _Range:
    """``low <= value <= high`` apart from the dates in ``at``; ``high`` None: not bounded."""

    at: Linear
    low: int
    high: int | None


def store(scop: Scop, statements: Iterable[Statement], leaves: Mapping[str, Leaf], most: int | None) -> tuple[
        Storage, ...]:
    """Storage for every private array that the statements use; ``most``: iterations of the patched loop at once.

    Raises ``Rejected(NO_PLAN)`` where that would be too much, or is not known.
    """
    users: dict[str, list[tuple[Statement, Access]]] = {a.name: [] for a in scop.arrays if a.private}
    for statement in statements:
        for access in (statement.write, *statement.reads):
            if access.array in users:
                users[access.array].append((statement, access))
    made = tuple(_place(array, used, leaves, most) for array, used in users.items() if used)
    if sum(_size(scop, s) for s in made) > MOST_BYTES:
        raise Rejected(Reason.NO_PLAN, "the values it keeps in registers would take too much memory")
    return made


def _size(scop: Scop, storage: Storage) -> int:
    total = scop.array(storage.array).element.size
    for size in storage.sizes:
        total *= size
    return total


def _place(array: str, used: list[tuple[Statement, Access]], leaves: Mapping[str, Leaf], most: int | None) -> Storage:
    shared = _shared_dates([leaves[s.name] for s, _ in used])
    origins, sizes = [], []
    for number in range(len(used[0][1].subscripts)):
        ranges = [_range(s, a.subscripts[number], leaves[s.name], shared, most) for s, a in used]
        low, high = min(r.low for r in ranges), [r.high for r in ranges]
        if len({r.at for r in ranges}) != 1 or None in high:
            raise Rejected(Reason.NO_PLAN, f"{array} would need room for all iterations")
        origins.append(ranges[0].at + low)
        sizes.append(max(h for h in high if h is not None) - low + 1)
    return Storage(array, tuple(origins), tuple(sizes))


def _shared_dates(leaves: list[Leaf]) -> int:
    """How many leading dates are the same for all."""
    first = leaves[0].dates
    return next((n for n in range(len(first)) if any(leaf.dates[n] != first[n] for leaf in leaves)), len(first))


def _range(statement: Statement, subscript: Linear, leaf: Leaf, shared: int, most: int | None) -> _Range:
    """The values of ``subscript`` while the shared dates stay."""
    at, low, high = Linear(), subscript.constant, subscript.constant
    bounded = True
    for name, coefficient in subscript.terms:
        number = next((n for n, d in enumerate(leaf.dates[:shared]) if d.expression == Linear.symbol(name)), None)
        if number is not None:
            divisor = leaf.dates[number].divisor
            at, least, greatest = at + Linear.symbol(f"d{number}", coefficient * divisor), 0, divisor - 1
        else:
            bound = _most(statement, name, most)
            bounded = bounded and bound is not None
            least, greatest = 0, (bound or 1) - 1
        low += min(coefficient * least, coefficient * greatest)
        high += max(coefficient * least, coefficient * greatest)
    return _Range(at, low, high if bounded else None)


def _most(statement: Statement, name: str, most: int | None) -> int | None:
    """Most iterations of a loop."""
    for number, dimension in enumerate(statement.dimensions):
        if dimension.name == name:
            if number == 0:
                return most
            total = dimension.trips.constant
            for outer, coefficient in dimension.trips.terms:
                bound = _most(statement, outer, most) if coefficient > 0 else 1
                if bound is None or (coefficient < 0 and not any(d.name == outer for d in statement.dimensions)):
                    return None
                total += coefficient * (bound - 1)
            return max(total, 1)
    return None
