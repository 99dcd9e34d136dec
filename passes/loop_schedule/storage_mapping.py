"""Storage mapping (array contraction): how much memory the private arrays of a plan need, and where a cell lies in it.

A private array holds values that the original keeps in registers. They lie in memory while loops are distributed.

Before: a cell ``t[i, j]`` for every iteration of the nest. After: room for the cells that are live within one value of
the outer dates that all users of the array share, ``t[i - 64*d0, j]``. passes.legality.loops proves that this is
enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from memopt.ir.linear import Linear
from memopt.ir.plan import Leaf, Storage
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.scop import Access, Scop, Statement
from memopt.polyhedral.isl import Polyhedron

MOST_BYTES = 1 << 24  # of all private arrays of a plan


def store(
    scop: Scop, statements: Iterable[Statement], leaves: Mapping[str, Leaf], facts: tuple[Linear, ...]
) -> tuple[Storage, ...]:
    """Storage for every private array that the statements use, where every one of ``facts`` is >= 0.

    Raises ``Rejected(NO_PLAN)`` where it would be larger than ``MOST_BYTES``, or has no known size.
    """
    users: dict[str, list[tuple[Statement, Access]]] = {a.name: [] for a in scop.arrays if a.private}
    for statement in statements:
        for access in (statement.write, *statement.reads):
            if access.array in users:
                users[access.array].append((statement, access))
    made = tuple(_place(array, used, leaves, facts) for array, used in users.items() if used)
    if sum(_size(scop, s) for s in made) > MOST_BYTES:
        raise Rejected(Reason.NO_PLAN, "storing the values that the loop keeps in registers would take too much memory")
    return made


def _size(scop: Scop, storage: Storage) -> int:
    total = scop.array(storage.array).element.size
    for size in storage.sizes:
        total *= size
    return total


def _place(
    array: str, used: list[tuple[Statement, Access]], leaves: Mapping[str, Leaf], facts: tuple[Linear, ...]
) -> Storage:
    """Storage for one array: by subscript, the lowest cell that a user touches, and how many cells up to the
    highest."""
    shared = _shared_dates([leaves[s.name] for s, _ in used])
    origins, sizes = [], []
    for number in range(len(used[0][1].subscripts)):
        ranges = [_range(s, a.subscripts[number], leaves[s.name], shared, facts) for s, a in used]
        low, high = [r[1] for r in ranges], [r[2] for r in ranges]
        if len({r[0] for r in ranges}) != 1 or None in low or None in high:
            raise Rejected(Reason.NO_PLAN, f"{array} would need memory for all iterations")
        least = min(x for x in low if x is not None)
        origins.append(ranges[0][0] + least)
        sizes.append(max(x for x in high if x is not None) - least + 1)
    return Storage(array, tuple(origins), tuple(sizes))


def _shared_dates(leaves: list[Leaf]) -> int:
    """How many leading dates all leaves have in common."""
    first = leaves[0].dates
    return next((n for n in range(len(first)) if any(leaf.dates[n] != first[n] for leaf in leaves)), len(first))


def _range(
    statement: Statement, subscript: Linear, leaf: Leaf, shared: int, facts: tuple[Linear, ...]
) -> tuple[Linear, int | None, int | None]:
    """Where ``subscript`` starts, as Linear over the shared dates, and the least and largest offset from there; None
    where an offset is unbounded."""
    start, point = Linear(), Linear()
    variables: list[str] = []
    bounds: list[Linear] = []
    for name, coefficient in subscript.terms:
        number = next((n for n, d in enumerate(leaf.dates[:shared]) if d.expression == Linear.symbol(name)), None)
        if number is not None:
            divisor, quotient = leaf.dates[number].divisor, f"/{number}"
            start = start + Linear.symbol(f"d{number}", coefficient * divisor)
            point = point + Linear.symbol(quotient, coefficient * divisor)
            variables.append(quotient)
            rest = Linear.build({name: 1, quotient: -divisor})
            bounds += [rest, -rest + (divisor - 1)]
    names = [d.name for d in statement.dimensions]
    bounds += [b for d in statement.dimensions for b in (Linear.symbol(d.name), d.trips - Linear.symbol(d.name) - 1)]
    bounds += statement.conditions
    symbols = {s for e in (subscript, *bounds) for s in e.symbols} - set(names) - set(variables)
    bounds += [f for f in facts if f.symbols <= symbols]
    whole = Polyhedron.build((*names, *variables), tuple(sorted(symbols)), nonnegative=bounds)
    if whole.is_empty:
        return start, 0, 0
    return start, whole.least(subscript - point), whole.most(subscript - point)
