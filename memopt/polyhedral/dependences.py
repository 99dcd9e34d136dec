"""Memory-based dependences of a SCoP as isl relations: flow, anti and output.

Example: in ``for (i) for (k) c[i] += a[k]`` each instance depends on the one before in k:
``{ S0[i, k] -> S0[i, k'] : k < k' }`` is flow, anti and output dependence.

In: a SCoP. Out: relations between statement instances. A dependence ``x -> y`` says that x comes before y in the
original order, both access one cell and one of them writes it. isl's relations are exact; nothing is approximated. A
SCoP that takes too many operations is Rejected.
Cells are ``array[subscripts]``. Arrays with different names share no byte and inner subscripts are in range
(memopt.ir.scop). So two cells are equal exactly when names and subscripts are, whatever the base addresses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from memopt.ir.frozen import dataclass
from memopt.ir.identity import by_identity
from memopt.ir.linear import Linear
from memopt.ir.scop import TRIPS, Access, Scop, Statement
from memopt.polyhedral.isl import DEFAULT_BUDGET, IntegerMap, IntegerSet, budget, no_pairs, no_points

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True, slots=True)
class Dependences:
    """Pairs of statement instances, by kind: ``flow`` write before read, ``anti`` read before write, ``output`` write
    before write."""

    flow: IntegerMap
    anti: IntegerMap
    output: IntegerMap

    @property
    def all(self) -> IntegerMap:
        """The union of the three kinds."""
        return self.flow | self.anti | self.output

    def __str__(self) -> str:
        return f"flow {self.flow}\nanti {self.anti}\noutput {self.output}"


def dependences(scop: Scop, operations: int = DEFAULT_BUDGET) -> Dependences:
    """All dependences between instances of ``scop``'s statements, for every value of its symbols.

    Raises ``Rejected(NO_SCHEDULE)`` when more than ``operations`` isl operations would be needed.
    """
    with budget(operations):
        domain = iteration_domain(scop)
        writes = _accesses(scop, ((s, (s.write,)) for s in scop.statements)).restricted(domain)
        reads = _accesses(scop, ((s, s.reads) for s in scop.statements)).restricted(domain)
        order = original_schedule(scop).restricted(domain).before()
        return Dependences(
            flow=writes.then(reads.inverse) & order,
            anti=reads.then(writes.inverse) & order,
            output=writes.then(writes.inverse) & order,
        )


def iteration_domain(scop: Scop) -> IntegerSet:
    """The iteration domain: all instances ``S0[i, j, k]`` of all statements, every counter in its range."""
    result = no_points()
    for statement in scop.statements:
        bounds = [f"0 <= {d.name} < {_render(d.trips, scop)}" for d in statement.dimensions]
        bounds += [f"{_render(c, scop)} >= 0" for c in statement.conditions]
        result = result | IntegerSet.parse(f"{_parameters(scop)}{{ {_instance(statement)} : {' and '.join(bounds)} }}")
    return result


def original_schedule(scop: Scop) -> IntegerMap:
    """The original order as a 2d+1 schedule, padded for statements in fewer loops:
    ``S0[i, j] -> [p0, i, p1, j, p2, 0, 0]``."""
    depth = max(len(s.dimensions) for s in scop.statements)
    result = no_pairs()
    for s in scop.statements:
        dates = [str(s.position[0])]
        for dimension, position in zip(s.dimensions, s.position[1:], strict=True):
            dates += [dimension.name, str(position)]
        dates += ["0"] * (2 * depth + 1 - len(dates))
        result = result | IntegerMap.parse(f"{_parameters(scop)}{{ {_instance(s)} -> [{', '.join(dates)}] }}")
    return result


def _accesses(scop: Scop, accesses: Iterable[tuple[Statement, tuple[Access, ...]]]) -> IntegerMap:
    """The access relation ``S0[i, j, k] -> A0[i, k]``, not yet restricted to the iteration domain."""
    result = no_pairs()
    for statement, of_statement in accesses:
        for access in of_statement:
            cell = f"{access.array}[{', '.join(_render(s, scop) for s in access.subscripts)}]"
            result = result | IntegerMap.parse(f"{_parameters(scop)}{{ {_instance(statement)} -> {cell} }}")
    return result


def _instance(statement: Statement) -> str:
    return f"{statement.name}[{', '.join(d.name for d in statement.dimensions)}]"


def _symbols(scop: Scop) -> tuple[str, ...]:
    """The parameters of every set: symbols that are no loop counters."""
    found = {TRIPS}
    for statement in scop.statements:
        expressions = [*(d.trips for d in statement.dimensions), *statement.conditions]
        expressions += [s for a in (statement.write, *statement.reads) for s in a.subscripts]
        names = {d.name for d in statement.dimensions}
        found |= {name for e in expressions for name in e.symbols} - names
    return tuple(sorted(found))


@by_identity
def _names(scop: Scop) -> dict[str, str]:
    """The isl name of each symbol: its own name where isl can parse it."""
    return {s: s if _IDENTIFIER.match(s) else f"symbol{i}" for i, s in enumerate(_symbols(scop))}


def _parameters(scop: Scop) -> str:
    return f"[{', '.join(_names(scop).values())}] -> "


def _render(expression: Linear, scop: Scop) -> str:
    names = _names(scop)
    return str(Linear.build({names.get(s, s): c for s, c in expression.terms}, expression.constant))
