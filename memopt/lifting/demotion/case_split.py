"""Values that an affine condition chooses: one case for each way it goes, as conditions on the iteration."""

from __future__ import annotations

from dataclasses import dataclass

from memopt.ir.linear import Linear
from memopt.lifting.values.canonical import made
from memopt.lifting.values.values import Atom, Node, Truth, Value, constant, within

MOST_ATOMS = 4  # beyond that a statement chooses itself

@dataclass(frozen=True, slots=True)
class Case:
    """``value`` where all of ``conditions`` are >= 0, provided that ``needs`` are."""

    value: Value
    conditions: tuple[Linear, ...]
    needs: tuple[Linear, ...]


def cases_of(value: Value) -> list[Case]:
    """The ways that the first affine choice in ``value`` can go, excluding each other; none when there is none."""
    atoms = [part.formula for part in within(value, lambda part: isinstance(part, Node))
             if isinstance(part, Truth) and part.width == 1 and isinstance(part.formula, Atom)]
    if not atoms or len(atoms) > MOST_ATOMS:
        return []
    atom = atoms[0]
    linear = atom.linear
    if atom.equal:
        ways = [(True, (linear, -linear)), (False, (linear - 1,)), (False, (-linear - 1,))]
    else:
        ways = [(True, (linear,)), (False, (-linear - 1,))]
    return [Case(_decided(value, atom, holds), conditions, atom.needs) for holds, conditions in ways]


def contradictory(conditions: tuple[Linear, ...]) -> bool:
    """Whether two of ``conditions`` exclude each other."""
    return any(c.is_constant and c.constant < 0 for c in conditions) or any(
        (one + two).is_constant and (one + two).constant < 0
        for n, one in enumerate(conditions) for two in conditions[:n])


def _decided(value: Value, atom: Atom, holds: bool, known: dict[Value, Value] | None = None) -> Value:
    """``value`` with ``atom`` known; ``known``: parts of it that were done."""
    known = {} if known is None else known
    match value:
        case Truth(Atom() as here, 1) if here == atom:
            return constant(int(holds), 1)
        case Node(name, operands, width):
            if value not in known:
                known[value] = made(name, tuple(_decided(o, atom, holds, known) for o in operands), width)
            return known[value]
    return value
