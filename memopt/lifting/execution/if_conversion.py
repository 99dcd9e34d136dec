"""If-conversion: a branch on loaded data becomes conditions of loads and stores, and selects of values.

Example::

    if (a[i] > m) b[i] = c[i];      becomes      b[i] = when(a[i] > m, when(a[i] > m, c[i]))

In: both paths up to the join, as lists of loads and stores with their states. Out: one list and one state. A load or
store of one path keeps the path's condition: where it does not hold, the cell is neither read nor written. In the
state the condition selects between the values. A cell that both paths load is loaded without a condition, and one that
both store to at their end gets one store of a select.

All operations of both paths are performed in every iteration. A floating-point operation of the path not taken must
not raise an exception flag, so its operands are replaced by ones there (``masked``). Comparisons of values that are
compared on every path need no mask.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from memopt.ir.linear import Linear
from memopt.ir.operations import COMPARING, FROM_INTEGERS, ROUNDED, SIGNALLING
from memopt.ir.reasons import Reason, Rejected, VerifyError
from memopt.lifting.execution.assumptions import SLOT, State
from memopt.lifting.execution.memory import MemoryModel
from memopt.lifting.execution.merge import Path, rows_of
from memopt.lifting.values.loop_tree import Item, LoadEvent, Raising, RowLoad, StoreEvent
from memopt.lifting.values.values import Formula, Node, Truth, Value, constant, negate

Pair = frozenset[Value]
"""The one or two different operands of a comparison."""

_ONES, _INTEGER_ONES = {32: 0x3F800000, 64: 0x3FF0000000000000}, {32: 1, 64: 1}
MOST_CHOICES = 8  # branches on data in one nest: their selects nest, so that expressions grow with each


def if_convert(condition: Formula, ways: Sequence[Path], memory: MemoryModel) -> tuple[list[Item], State]:
    """The items and the state of two paths: the first is taken where ``condition`` holds, the second elsewhere.

    Raises Rejected(DATA_DEPENDENT_BRANCH) if a path contains anything but loads and stores, such as a loop.
    """
    for way in ways:
        if not all(isinstance(i, LoadEvent | RowLoad | StoreEvent) for i in way.items):
            raise Rejected(Reason.DATA_DEPENDENT_BRANCH,
                           f"the branch at {memory.algebra.address:#x} decides whether a loop runs")
    common = set.intersection(*({i for i in way.items if isinstance(i, RowLoad)} for way in ways))
    rows = [row if row in common else replace(row, certain=False) for row in rows_of(ways)]
    rest = [replace(w, items=[i for i in w.items if not isinstance(i, RowLoad)]) for w in ways]
    loads = [{(i.pointer, i.width) for i in way.items if isinstance(i, LoadEvent) and i.condition is None}
             for way in rest]
    in_any_case = loads[0] & loads[1]
    truths = Truth(condition), Truth(negate(condition))
    items = _same_stores(truths, rest, in_any_case) or [
        _where(truth, i, in_any_case) for truth, way in zip(truths, rest, strict=True) for i in way.items]
    return [*rows, *items], if_convert_states(condition, ways, memory)


def if_convert_states(condition: Formula, ways: Sequence[Path], memory: MemoryModel) -> State:
    """The state at the join: ``condition`` selects between the values of the first and of the second path."""
    slots = {p for way in ways for p in way.state if p.startswith(SLOT)}
    for way in ways:
        for slot in sorted(slots - way.state.keys()):
            way.state[slot] = memory.load_slot(way.state, slot)
    taken, other = (way.state for way in ways)
    return {p: _chosen(Truth(condition), value, other[p]) for p, value in taken.items()}


def _chosen(truth: Truth, value: Value, other: Value) -> Value:
    return value if value == other else Node("select", (truth, value, other), value.width)


def _same_stores(truths: tuple[Truth, Truth], ways: Sequence[Path],
                 in_any_case: Collection[tuple[Linear, int]]) -> list[Item] | None:
    """The items if both paths store to the same cells, after all their loads: one store of a select for each cell.

    None for other paths.
    """
    loads = [_where(truth, i, in_any_case) for truth, way in zip(truths, ways, strict=True) for i in way.items
             if isinstance(i, LoadEvent)]
    one, two = ([i for i in way.items if isinstance(i, StoreEvent)] for way in ways)
    last = [list(way.items[len(way.items) - len(s):]) for way, s in zip(ways, (one, two), strict=True)]
    if last != [one, two] or [(s.pointer, s.width) for s in one] != [(s.pointer, s.width) for s in two] or any(
            s.conditional for s in (*one, *two)):
        return None
    return [*loads, *(StoreEvent(a.pointer, _chosen(truths[0], a.value, b.value), a.width, a.address)
                      for a, b in zip(one, two, strict=True))]


def _where(truth: Truth, item: Item, in_any_case: Collection[tuple[Linear, int]]) -> Item:
    """The load or store ``item`` as performed only where ``truth`` holds; a load of a cell ``in_any_case`` as it is."""
    match item:
        case LoadEvent(_, pointer, width, _, condition):
            if condition is None and (pointer, width) in in_any_case:
                return item
            return replace(item, condition=truth if condition is None else Node("and", (truth, condition), 1))
        case StoreEvent(value=Node("when", (condition, value), width)):
            return replace(item, value=Node("when", (Node("and", (truth, condition), 1), value), width))
        case StoreEvent(value=value):
            return replace(item, value=Node("when", (truth, value), value.width))
    raise VerifyError(f"{item} is neither a load nor a store")


def raises_alone(ways: Sequence[Collection[Raising]], masked: Collection[Value],
                 normal: Callable[[Value], bool]) -> bool:
    """Whether one path has an operation that may raise a flag which the other paths would not raise.

    Operations that are ``masked`` do not count. Nor do comparisons whose flags every path raises (``repeats``).
    """
    common = set(ways[0]).intersection(*ways)
    compared = compared_in(common)
    return any(under or not repeats(value, compared, normal)
               for value, under in {o: None for way in ways for o in way if o not in common} if value not in masked)


def compared_in(done: Collection[Raising]) -> frozenset[Pair]:
    """The operands of each unconditional signalling comparison."""
    return frozenset(frozenset(value.operands) for value, under in done if not under and isinstance(value, Node)
                     and value.operator in SIGNALLING)


def repeats(value: Value, compared: Collection[Pair], normal: Callable[[Value], bool]) -> bool:
    """Whether ``value`` is a comparison whose flags signalling comparisons of the pairs ``compared`` raise already.

    They do if it compares one of these pairs, or numbers each of which is ``normal`` or compared with a normal one.
    Then a NaN was invalid there, and a subnormal number was a denormal operand. Beside a NaN, a subnormal number raises
    nothing (Intel SDM 1, 4.9.2).
    """
    if not isinstance(value, Node) or value.operator not in COMPARING:
        return False
    return frozenset(value.operands) in compared or all(
        any(operand in pair and all(map(normal, pair - {operand})) for pair in compared) or normal(operand)
        for operand in value.operands)


def masked(way: Formula, operator: str, operands: tuple[Value, ...], normal: Callable[[Value], bool]) -> (
        tuple[Value, ...]):
    """``operands`` where ``way`` holds, else ones: no operation on ones is invalid, inexact or out of range.

    An operand of ``fmul`` that is a ``normal`` number needs no mask if the other has one: 1 * x is exactly x.
    """
    kept = {0} if operator in ROUNDED else set()  # the first operand says how to round
    if operator == "fmul":
        kept = {n for n, o in enumerate(operands) if normal(o)}
        kept = kept if len(kept) < len(operands) else set()
    ones = _INTEGER_ONES if operator in FROM_INTEGERS else _ONES
    return tuple(o if n in kept else Node("select", (Truth(way), o, constant(ones[o.width], o.width)), o.width)
                 for n, o in enumerate(operands))
