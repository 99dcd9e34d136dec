"""Case splitting: a select by an affine condition becomes one conditional value for each outcome.

Example: ``a[i] = i < m ? x : y`` becomes ``if (m - i - 1 >= 0) a[i] = x; if (i - m >= 0) a[i] = y;``. The conditions
then restrict the iteration domains of two statements, and neither has to select.
"""

from __future__ import annotations

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear
from memopt.lifting.values.canonical import made
from memopt.lifting.values.values import Atom, Node, Truth, Value, constant, within

MOST_ATOMS = 4  # with more affine conditions in one value, the statement selects instead

@dataclass(frozen=True, slots=True)
class Case:
    """``value`` where all of ``conditions`` are >= 0. Valid if ``needs`` are >= 0 (the comparison does not wrap)."""

    value: Value
    conditions: tuple[Linear, ...]
    needs: tuple[Linear, ...]


def cases_of(value: Value) -> list[Case]:
    """Disjoint cases for the first affine condition in ``value``: two for >=, three for ==; [] if it contains none."""
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
    """Whether ``conditions`` cannot all be >= 0: one is a negative constant, or two of them add up to one."""
    return any(c.is_constant and c.constant < 0 for c in conditions) or any(
        (one + two).is_constant and (one + two).constant < 0
        for n, one in enumerate(conditions) for two in conditions[:n])


def _decided(value: Value, atom: Atom, holds: bool, known: dict[Value, Value] | None = None) -> Value:
    """``value`` simplified for an ``atom`` that holds or not. ``known`` memoises shared parts."""
    known = {} if known is None else known
    match value:
        case Truth(Atom() as here, 1) if here == atom:
            return constant(int(holds), 1)
        case Node(name, operands, width):
            if value not in known:
                known[value] = made(name, tuple(_decided(o, atom, holds, known) for o in operands), width)
            return known[value]
    return value
