"""Value numbering over a register tile: values with equal numbers are equal, and are computed once.

Example: ``b[i][j] = a[i][j] + a[i+1][j]`` with two rows. The read of a[i+1][j] in row i and the read of a[i][j] in row
i+1 are the same element, so they have one number and are one load.

In: the shape of a leaf, the size of the tile. Out: the number of each node of the statement's expression at each point
of the tile. To share an operation on equal operands changes neither bits nor exception flags. Two reads have one number
only if they read the same element and no write of the leaf comes between them. A read of a cell that the same lane
wrote some steps before has the number of the written value (store-to-load forwarding).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from memopt.ir.frozen import dataclass
from memopt.ir.operations import PREDICATES
from memopt.ir.scop import Apply, Expression, Index, Read, evaluated
from passes.loop_code.leaf_shape import ROW, SEQUENTIAL, VECTOR, AccessAlong, LeafShape
from passes.loop_code.pointers import Group, Groups

_COMPARISONS = frozenset((*PREDICATES, "eq", "slt", "sle", "ult", "ule"))


@dataclass(frozen=True, slots=True)
class Point:
    """One vector of a tile, in one step of the loop around the tile.

    ``turn``: which of the unrolled numbers of a short sequential axis within the step (``Tile.turns``).
    """

    row: int
    vector: int
    step: int
    turn: int = 0


@dataclass(frozen=True, slots=True)
class Tile:
    """A register tile: ``row_count`` rows by ``vector_count`` vectors of ``lanes`` lanes.

    It is repeated along the axis ``inner``: a step advances by 1 along the sequential axis, or by the tile's width
    along the vector axis. ``turns``: trip count of a short sequential axis that is fully unrolled within each step,
    with the result in a register meanwhile.
    """

    row_count: int
    vector_count: int
    lanes: int
    inner: str | None
    turns: int = 1

    @property
    def width(self) -> int:
        """Lanes of one row of the tile."""
        return self.vector_count * self.lanes

    @property
    def advance(self) -> int:
        """Numbers along ``inner`` from one step to the next."""
        return self.width if self.inner == VECTOR else 1

    def points(self, step: int, *, rows_outside: bool) -> list[Point]:
        """The points of one step in the order they run: row by row (``rows_outside``), or vector by vector."""
        rows, vectors = range(self.row_count), range(self.vector_count)
        pairs = [(r, v) for r in rows for v in vectors] if rows_outside else [(r, v) for v in vectors for r in rows]
        return [Point(r, v, step, turn) for turn in range(self.turns) for r, v in pairs]


class ValueNumbering:
    """The value numbers of one leaf in one tile.

    ``carry``: every lane has every step, so that a value may be passed from one step to the next in a register.
    ``promoted``: the written cell stays in a register while steps run. ``carries``: some read is of the cell that the
    step before has written.
    """

    def __init__(self, shape: LeafShape, groups: Groups, tile: Tile, *, carry: bool = True) -> None:
        self._shape = shape
        self._groups = groups
        self._tile = tile
        self._numbers: dict[tuple[object, ...], int] = {}
        self._found: dict[tuple[int, Point], int] = {}
        self.promoted = shape.leaf.promote and tile.inner == SEQUENTIAL
        # A cell that is stored to in some steps only is not known to hold the result of the step before.
        self._carry = carry and shape.statement.condition is None
        self.carries = any(isinstance(n, Read) and self._steps_behind(self.stream(n)) == 1 for n in shape.nodes)

    def stream(self, node: Read) -> AccessAlong:
        """The access of ``node``."""
        return self._shape.reads[node.index]

    def is_accumulator(self, node: Expression) -> bool:
        """Whether ``node`` reads the promoted result."""
        return self.promoted and isinstance(node, Read) and self.stream(node) == self._shape.write

    def _is_last_turns_result(self, node: Read, point: Point) -> bool:
        return point.turn > 0 and self.stream(node) == self._shape.write

    def displacement(self, stream_address: Group, point: Point) -> int:
        """Bytes from the pointer of a group to the first lane of ``point``."""
        tile, factor = self._tile, stream_address.factor
        along = factor(tile.inner) * tile.advance * point.step if tile.inner else 0
        along += factor(SEQUENTIAL) * point.turn
        return factor(ROW) * point.row + factor(VECTOR) * tile.lanes * point.vector + along

    def is_carried(self, node: Expression, point: Point) -> bool:
        """Whether ``node`` reads the result of the step before the first emitted one, which is in a register."""
        return self.carries and isinstance(node, Read) and point.step - self._steps_behind(self.stream(node)) == -1

    def _steps_behind(self, stream: AccessAlong) -> int:
        """How many steps before the read the same lane wrote the cell; 0 where it did not, or nothing is known."""
        write = self._shape.write
        if not self._carry or self.promoted or stream.array != write.array or self._tile.inner != SEQUENTIAL:
            return 0
        (member, distance), (written, origin) = (self._groups.members[s.address] for s in (stream, write))
        stride = written.factor(SEQUENTIAL)
        if member != written or stride == 0 or (origin - distance) % stride:
            return 0
        return max(0, (origin - distance) // stride)

    def number(self, node: Expression, point: Point) -> int:
        """The value number of ``node`` at ``point``: equal numbers mean equal values."""
        if not isinstance(node, Apply):
            return self._number(node, point)
        key = id(node), point  # nodes of the statement, which lives as long as this
        if key not in self._found:
            self._found[key] = self._number(node, point)
        return self._found[key]

    def _number(self, node: Expression, point: Point) -> int:
        key: tuple[object, ...]
        match node:
            case Apply(operator, operands, element):
                key = (operator, element, *(self.number(o, point) for o in operands))
            case Read() if self.is_accumulator(node):
                key = ("accumulator", point.row, point.vector, point.step)
            case Read() if self._is_last_turns_result(node, point):
                return self.number(self._shape.statement.expression, replace(point, turn=point.turn - 1))
            case Read() if self.is_carried(node, point):
                key = ("carried", point.row, point.vector)
            case Read() if 0 < self._steps_behind(self.stream(node)) <= point.step:
                before = replace(point, step=point.step - self._steps_behind(self.stream(node)))
                return self.number(self._shape.statement.expression, before)
            case Read():
                stream = self.stream(node)
                member, distance = self._groups.members[stream.address]
                written = stream.array == self._shape.write.array and not self.promoted
                key = ("read", stream.element, member.number, distance + self.displacement(member, point),
                       point.step if written else 0)
            case Index(_, element) if not self._shape.is_constant(node):
                member, distance = self._groups.members[self._shape.indices[node]]
                key = ("index", element, member.number, distance + self.displacement(member, point))
            case _:
                key = (node,)
        return self._numbers.setdefault(key, len(self._numbers))

    def is_invariant(self, node: Expression) -> bool:
        """Whether the value of ``node`` is loop-invariant: the same in every step."""
        inner = self._tile.inner
        match node:
            case Apply(_, operands):
                return all(map(self.is_invariant, operands))
            case Read():
                stream = self.stream(node)
                return not self.is_accumulator(node) and not (inner and stream.address.factor(inner)) and (
                    self.promoted or stream.array != self._shape.write.array)
            case Index() if not self._shape.is_constant(node):
                return not (inner and self._shape.indices[node].factor(inner))
        return True


@dataclass(frozen=True, slots=True)
class Uses:
    """The uses of values in a sequence of points, by value number."""

    count: Counter[int]  # how often the value is used
    last: dict[int, int]  # the position of the last point that uses it

    @staticmethod
    def none() -> Uses:
        """No uses at all."""
        return Uses(Counter(), {})


def uses(values: ValueNumbering, parts: Sequence[Expression], points: list[Point]) -> Uses:
    """The uses of all values in ``points``, each of which computes ``parts``.

    A value that is used again is kept in a register and does not use its operands again; comparisons cannot be kept, so
    they use them each time.
    """
    count: Counter[int] = Counter()
    last: dict[int, int] = {}

    def visit(node: Expression, point: Point, position: int) -> None:
        number = values.number(node, point)
        count[number] += 1
        last[number] = position
        if isinstance(node, Apply) and (count[number] == 1 or is_truth(node)):
            for operand in evaluated(node):
                visit(operand, point, position)

    for position, point in enumerate(points):
        for part in parts:
            visit(part, point, position)
    return Uses(count, last)


def is_truth(node: Expression) -> bool:
    """Whether ``node`` is a truth value, made of comparisons: a mask, not an element."""
    if not isinstance(node, Apply):
        return False
    return node.operator in _COMPARISONS or (
        node.operator in ("and", "or", "xor", "not") and all(map(is_truth, node.operands)))
