"""Element types: one type and size for the elements of each array, decided by the operations on its cells.

Example: ``movups`` copies two doubles as 16 bytes. Where other code adds these doubles one by one, the array has
elements of 8 bytes, and the copy becomes two statements.

In: a ``StatementLoop`` whose cells are as wide as the instructions that access them. Out: one in which wide moves of
narrow elements are split (``split``); later the types of operands once the types of arrays are known (``retyped``).
Copies, constants and selects move bits, whatever their type. They are split where other accesses to the same cells are
narrower, or where rows are not aligned to their width. Sound because only operations are split whose result has each
bit from the operands' bits at the same place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import field, replace

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear
from memopt.ir.operations import PREDICATES
from memopt.ir.scop import TRIPS, Apply, Constant, ElementType, Expression, Read, Scalar
from memopt.lifting.demotion.expressions import INTEGERS, cast
from memopt.lifting.demotion.statements import CellStatement, StatementItem, StatementLoop, statements_of
from memopt.lifting.execution.parameters import is_parameter
from memopt.lifting.values.bounds import Ranges, greatest, least

_CHOOSING = ("select", "when")  # their first operand is a truth value
_BITWISE = ("and", "or", "xor", "not", "andnot")


def split(loop: StatementLoop, sample: Mapping[str, int], ranges: Ranges) -> StatementLoop:
    """The nest with each wide move of narrow elements as one statement for each element. ``sample``: captured values;
    ``ranges``: the largest value of each counter."""
    groups = _Groups.of(loop, sample, ranges)
    return replace(loop, items=_split_items(loop.items, groups))


def _split_items(items: tuple[StatementItem, ...], groups: _Groups) -> tuple[StatementItem, ...]:
    result: list[StatementItem] = []
    for item in items:
        if isinstance(item, CellStatement):
            result += _pieces(item, groups.grain(item.write))
        else:
            result.append(replace(item, items=_split_items(item.items, groups)))
    return tuple(result)


# -- which cells belong together ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Groups:
    """Groups of cells (union-find): cells that overlap at the captured values, and the two cells of a copy."""

    number: dict[Linear, int]
    parent: list[int]
    grains: list[int] = field(default_factory=list)  # bytes, for the root of each group

    @staticmethod
    def of(loop: StatementLoop, sample: Mapping[str, int], ranges: Ranges) -> _Groups:
        statements = list(statements_of(loop))
        cells: dict[Linear, int] = {}
        for statement in statements:
            for access, element in zip(statement.accesses, statement.elements, strict=True):
                cells[access] = max(element.size, cells.get(access, 0))
        spans = sorted((least(c, ranges).evaluate(sample), greatest(c, ranges).evaluate(sample) + size, n)
                       for n, (c, size) in enumerate(cells.items()))
        groups = _Groups({c: n for n, c in enumerate(cells)}, list(range(len(cells))))
        reached, current = spans[0][0], spans[0][2]
        for low, high, number in spans:
            if low < reached:
                groups._unite(current, number)
            else:
                current = number
            reached = max(reached, high)
        for statement in statements:
            if _movable(statement.expression):
                for index in _moved(statement.expression):
                    groups._unite(groups.number[statement.write], groups.number[statement.reads[index]])
        groups._measure(statements, sample)
        return groups

    def _root(self, number: int) -> int:
        while self.parent[number] != number:
            number = self.parent[number]
        return number

    def _unite(self, one: int, two: int) -> None:
        self.parent[self._root(two)] = self._root(one)

    def grain(self, cell: Linear) -> int:
        """Bytes of an element of the array that ``cell`` belongs to."""
        return self.grains[self._root(self.number[cell])]

    def _measure(self, statements: list[CellStatement], sample: Mapping[str, int]) -> None:
        """Sets the element size of each group: that of the narrowest access, or less, so that all rows are aligned."""
        self.grains.extend([8] * len(self.parent))
        for statement in statements:
            for access, element in zip(statement.accesses, statement.elements, strict=True):
                root = self._root(self.number[access])
                self.grains[root] = min(self.grains[root], element.size)
        first: dict[tuple[int, Linear], int] = {}
        for cell, number in self.number.items():
            root = self._root(number)
            symbols = Linear(tuple(t for t in cell.terms if t[0] in sample and not _counted(t[0])))
            origin = first.setdefault((root, symbols), cell.constant)
            steps = [c for s, c in cell.terms if s not in sample or _counted(s)]
            self.grains[root] = math.gcd(self.grains[root], cell.constant - origin, *steps)


def _counted(symbol: str) -> bool:
    """Whether ``symbol`` is a number that subscripts may depend on, not part of an address."""
    return symbol == TRIPS or is_parameter(symbol)


# -- moves in pieces ------------------------------------------------------------------------------------------------


def _movable(expression: Expression) -> bool:
    """Whether each bit of the result depends only on the operands' bits at the same place."""
    match expression:
        case Read() | Constant() | Scalar():
            return True
        case Apply("select" | "when", (_, *values), _):
            return all(map(_movable, values))
        case Apply(name, operands, _) if name in _BITWISE or name == "bits":
            return all(map(_movable, operands))
    return False


def _moved(expression: Expression) -> Iterator[int]:
    """The reads whose bits end up in the result of a movable expression."""
    match expression:
        case Read(index):
            yield index
        case Apply(name, operands, _):
            for operand in operands[name in _CHOOSING:]:
                yield from _moved(operand)


def moved_reads(expression: Expression) -> tuple[int, ...]:
    """The numbers of the reads that an expression only moves or selects; none if it computes."""
    return tuple(_moved(expression)) if _movable(expression) else ()


def _pieces(statement: CellStatement, grain: int) -> list[CellStatement]:
    whole, expression = statement.element.size, statement.expression
    if grain >= whole or not _movable(expression) or any(_in_truth(expression, n) for n in _moved(expression)):
        return [statement]
    element = INTEGERS[8 * grain]
    return [_piece(statement, low, element) for low in range(0, whole, grain)]


def _piece(statement: CellStatement, low: int, element: ElementType) -> CellStatement:
    moved = set(_moved(statement.expression))
    reads = [(a + low, element) if n in moved else (a, e)
             for n, (a, e) in enumerate(zip(statement.reads, statement.elements[1:], strict=True))]

    def piece(expression: Expression) -> Expression:
        match expression:
            case Constant(bits, _):
                return Constant(bits >> 8 * low & ((1 << 8 * element.size) - 1), element)
            case Scalar(register, _, offset):
                return Scalar(register, element, offset + low)
            case Apply("bits", (inner,), _):
                return piece(inner)
            case Apply("select" | "when" as name, (condition, *values), _):
                return Apply(name, (condition, *map(piece, values)), element)
            case Apply(name, operands, _):
                return Apply(name, tuple(map(piece, operands)), element)
        return expression

    return replace(statement, write=statement.write + low, element=element, reads=tuple(a for a, _ in reads),
                   read_elements=tuple(e for _, e in reads), expression=piece(statement.expression))


def _in_truth(expression: Expression, index: int, truth: bool = False) -> bool:
    match expression:
        case Read(here):
            return truth and here == index
        case Apply(name, operands, _):
            return any(_in_truth(o, index, truth or (name in _CHOOSING and n == 0)) for n, o in enumerate(operands))
    return False


# -- one type for each array ----------------------------------------------------------------------------------------


def common(elements: set[ElementType]) -> ElementType:
    """The type of an array whose cells are accessed as ``elements``, all of one size: floating-point if any is."""
    return next((e for e in elements if e.is_float), next(iter(elements)))


def retyped(expression: Expression, was: tuple[ElementType, ...], now: tuple[ElementType, ...],
            wanted: ElementType) -> Expression:
    """``expression`` over reads of types ``was``, as an expression of type ``wanted`` over reads of types ``now``, with
    the same bits."""
    def typed(value: Expression, kind: ElementType) -> Expression:
        match value:
            case Apply("when", (condition, Read(index) as read), _):
                return cast(Apply("when", (computed(condition), read), now[index]), now[index], kind)
            case Read(index):
                return cast(value, now[index], kind)
            case Apply("bits", (inner,), _):
                return typed(inner, kind)
            case Apply("select", (condition, first, second), _):
                return Apply("select", (computed(condition), typed(first, kind), typed(second, kind)), kind)
            case Apply(name, operands, _) if name in _BITWISE and not _is_truth(value):
                return Apply(name, tuple(typed(o, kind) for o in operands), kind)
            case _:
                return cast(computed(value), value.element, kind)

    def computed(value: Expression) -> Expression:
        """``value`` with operands of the types that its operator takes."""
        if not isinstance(value, Apply):
            return value
        return replace(value, operands=tuple(
            computed(o) if _is_truth(o) else typed(o, was[o.index] if isinstance(o, Read) else o.element)
            for o in value.operands))

    match expression:
        case Apply("when", (condition, stored), _):
            return Apply("when", (computed(condition), typed(stored, wanted)), wanted)
    return typed(expression, wanted)


def _is_truth(expression: Expression) -> bool:
    match expression:
        case Apply("eq" | "slt" | "sle" | "ult" | "ule"):
            return True
        case Apply(name) if name in PREDICATES:
            return True
        case Apply("and" | "or" | "xor" | "not", operands, _):
            return _is_truth(operands[0])
    return False
