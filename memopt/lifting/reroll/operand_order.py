"""Commutative operands: isomorphic statements that differ in the order of operands are brought into one order.

Example: ``s = s + a[0]`` in one copy of an unrolled loop, ``s = a[1] + s`` in the next. Compilers swap the operands of
sums and products freely.

In: a ``StatementLoop``. Out: one in which the operands of floating-point sums and products have one order; and the
arrays and lanes that must hold no NaN at entry, so that this is exact. The order only decides which payload the result
has when both operands are NaNs (Intel SDM 1, 4.8.3.5). If nothing that the nest reads is a NaN at entry, each NaN that
it makes is the default one, so all have the same bits (4.8.3.7), and the order is free. A guard looks at all that is
read (memopt.ir.region.NanFree).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import field, replace

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Footprint, Lane, NanFree, RegisterCarried
from memopt.ir.scop import FLOATS, INFINITY, Apply, Constant, Expression, Read, Scalar, Scop, Statement
from memopt.lifting.demotion.statements import CellStatement, StatementLoop
from memopt.lifting.reroll.isomorphism import shape
from memopt.lifting.values.algebra import LOOP_COUNTER

LEAST_WORK = 2  # statement instances for each number that the guard looks at; fewer are not worth it
_COMMUTATIVE = ("add", "mul")
# Operators whose result is a NaN only if it is the default one or that of an operand.
_PLAIN = ("add", "sub", "mul", "div", "sqrt", "min", "max", "fma", "fms", "fnma", "fnms", "beside")


def in_one_order(loop: StatementLoop, sample: Mapping[str, int]) -> StatementLoop | None:
    """``loop`` with the operands of floating-point sums and products in one order; None where no loop has copies that
    differ in that order only. ``sample``: values of live-in symbols."""
    ordered = _ordered(loop, sample)
    return ordered if _mixed(loop, ordered, sample) else None


def _ordered(loop: StatementLoop, sample: Mapping[str, int]) -> StatementLoop:
    return replace(loop, items=tuple(_ordered(i, sample) if isinstance(i, StatementLoop) else
                                     _Order(i, sample).statement() for i in loop.items))


def _mixed(loop: StatementLoop, ordered: StatementLoop, sample: Mapping[str, int]) -> bool:
    """Whether some loop in ``loop`` has statements that are isomorphic in ``ordered`` only."""
    orders: dict[Hashable, set[Expression]] = defaultdict(set)
    for mine, other in zip(loop.items, ordered.items, strict=True):
        if isinstance(mine, CellStatement):
            orders[shape(other).key].add(_Order(mine, sample).before())
        elif isinstance(other, StatementLoop) and _mixed(mine, other, sample):
            return True
    return any(len(found) > 1 for found in orders.values())


# The sort key of an operand: its operations, and the addresses that it reads. The addresses of copies
# differ by one distance, so that their operands come in the same order.
_Key = tuple[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class _Order:
    source: CellStatement
    sample: Mapping[str, int]
    reads: dict[int, int] = field(default_factory=dict)  # numbers of reads, in the new order

    def statement(self) -> CellStatement:
        expression = self._renumbered(self._sorted(self.source.expression)[0])
        elements = self.source.elements[1:]
        return replace(self.source, expression=expression, reads=tuple(self.source.reads[n] for n in self.reads),
                       read_elements=tuple(elements[n] for n in self.reads))

    def before(self) -> Expression:
        """The original expression, over the reads of ``statement()``."""
        self.statement()
        return _bare(self._renumbered(self.source.expression))

    def _sorted(self, node: Expression) -> tuple[Expression, _Key]:
        match node:
            case Read(number):
                return node, (self.source.elements[1 + number].value, (self._place(self.source.reads[number]),))
            case Scalar(_, element, _):
                return node, (f"scalar {element.value}", ())
            case Apply(name, operands, element):
                parts = [self._sorted(o) for o in operands]
                if name in _COMMUTATIVE and element in FLOATS:
                    parts.sort(key=lambda part: part[1])
                does = ", ".join(key[0] for _, key in parts)
                return (replace(node, operands=tuple(p for p, _ in parts)),
                        (f"{name}.{element.value}({does})", tuple(n for _, key in parts for n in key[1])))
        return node, (str(node), ())

    def _place(self, address: Linear) -> int:
        fixed = Linear(tuple(t for t in address.terms if not t[0].startswith(LOOP_COUNTER)), address.constant)
        return fixed.evaluate(self.sample)

    def _renumbered(self, node: Expression) -> Expression:
        match node:
            case Read(number):
                return Read(self.reads.setdefault(number, len(self.reads)))
            case Apply(_, operands, _):
                return replace(node, operands=tuple(map(self._renumbered, operands)))
        return node


def _bare(node: Expression) -> Expression:
    """``node`` without the names of scalars, which may differ between copies."""
    match node:
        case Scalar(_, element, _):
            return Scalar("", element)
        case Apply(_, operands, _):
            return replace(node, operands=tuple(map(_bare, operands)))
    return node


# -- the guard ----------------------------------------------------------------------------------------------------


def nan_free_guards(scop: Scop, footprints: Sequence[Footprint], passed: Sequence[RegisterCarried],
                    sample: Mapping[str, int]) -> tuple[NanFree, ...] | None:
    """The arrays and the lanes of registers that must hold no NaN at entry, so that the order of operands in ``scop``
    is free: the elements that statements read, and no others, since nobody else's memory may be looked at. None where
    that is not enough, as an operator may make other NaNs. ``sample``: values of live-in symbols and R. Raises
    Rejected(TOO_SHORT) where the check would take too long for so few iterations.
    """
    nodes = [n for s in scop.statements for n in _nodes(s.expression)]
    if not all(map(_is_plain, nodes)) or not all(isinstance(p.location, Lane) for p in passed):
        return None
    read = {r.array for s in scop.statements for r in s.reads}
    looked_at = [(f, scop.array(f.array).element.size) for f in footprints
                 if f.array in read and scop.array(f.array).element in FLOATS]
    most = sum((f.interval.high - f.interval.low).evaluate(sample) // size for f, size in looked_at)
    if LEAST_WORK * most > sum(_instances(s, sample) for s in scop.statements):
        raise Rejected(Reason.TOO_SHORT, "to look for NaNs would take too long")
    found = [NanFree(f.array, size) for f, size in looked_at]
    lanes = [Lane(n.register, n.offset, n.element.size) for n in nodes if isinstance(n, Scalar)]
    lanes += [p.location for p in passed if isinstance(p.location, Lane)]
    return (*found, *(NanFree(lane, lane.width) for lane in dict.fromkeys(lanes)))


def _nodes(node: Expression) -> Iterator[Expression]:
    yield node
    if isinstance(node, Apply):
        for operand in node.operands:
            yield from _nodes(operand)


def _is_plain(node: Expression) -> bool:
    match node:
        case Read():
            return True
        case Scalar(_, element, _):
            return element in FLOATS
        case Constant(bits, element):
            limit = INFINITY.get(element.size)
            return limit is None or bits % (1 << 8 * element.size - 1) <= limit
        case Apply(name, _, element):
            return name in _PLAIN and element in FLOATS
    return False


def _instances(statement: Statement, sample: Mapping[str, int]) -> int:
    """About how often the statement runs: a trip count that varies is taken in the middle of the loops around it."""
    known, total = dict(sample), 1
    for dimension in statement.dimensions:
        trips = max(0, dimension.trips.evaluate(known))
        known[dimension.name], total = trips // 2, total * trips
    return total
