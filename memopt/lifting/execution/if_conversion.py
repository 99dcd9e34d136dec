"""If-conversion: a branch on loaded data becomes selects, so that every iteration executes both paths.

Example::

    if (a[i] > m) b[i] = a[i];      becomes      b[i] = a[i] > m ? a[i] : b[i];

In: both paths up to the join, as lists of loads and stores with their states. Out: one list and one state, in which the
condition selects between the values.

Two things are needed to make it sound. First, every iteration now loads, and stores back unchanged, cells that the
original may not touch. The region says so (memopt.ir.region.Region.speculative_accesses): its footprints must then lie
in memory that was looked at, in a program with one thread. Second, a floating-point operation of the path not taken
must not raise an exception flag. Its operands are replaced by ones there (``masked``); comparisons of values that are
compared on every path need no mask.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from memopt.ir.linear import Linear
from memopt.ir.operations import COMPARING, FROM_INTEGERS, ROUNDED, SIGNALLING
from memopt.ir.reasons import Reason, Rejected
from memopt.lifting.execution.assumptions import SLOT, State
from memopt.lifting.execution.memory import MemoryModel
from memopt.lifting.execution.merge import Path, rows_of
from memopt.lifting.values.loop_tree import Item, LoadEvent, Raising, RowLoad, StoreEvent
from memopt.lifting.values.values import Formula, Loaded, Node, Truth, Value, constant

Pair = frozenset[Value]
"""The one or two different operands of a comparison."""

_ONES, _INTEGER_ONES = {32: 0x3F800000, 64: 0x3FF0000000000000}, {32: 1, 64: 1}
MOST_CHOICES = 8  # branches on data in one nest: their selects nest, so that expressions grow with each


def if_convert(condition: Formula, ways: Sequence[Path], before: Sequence[Item],
               memory: MemoryModel) -> tuple[list[Item], State]:
    """The items and the state of two paths: the first is taken where ``condition`` holds, the second elsewhere.

    ``before``: the items of the iteration up to the branch. Raises Rejected(DATA_DEPENDENT_BRANCH) if a path contains
    anything but loads and stores, such as a loop.
    """
    truth = Truth(condition)
    for way in ways:
        if not all(isinstance(i, LoadEvent | RowLoad | StoreEvent) for i in way.items):
            raise Rejected(Reason.DATA_DEPENDENT_BRANCH,
                           f"the branch at {memory.algebra.address:#x} decides whether a loop runs")
    common = set.intersection(*({i for i in way.items if isinstance(i, RowLoad)} for way in ways))
    rows = [row if row in common else replace(row, certain=False) for row in rows_of(ways)]
    rest = [replace(w, items=[i for i in w.items if not isinstance(i, RowLoad)]) for w in ways]
    items = _same_stores(truth, rest) or _conditional_stores(truth, rest, before, memory)
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


def _same_stores(truth: Truth, ways: Sequence[Path]) -> list[Item] | None:
    """The items if both paths store to the same cells, after all their loads: one store of a select for each cell.

    None for other paths. No cell has to be loaded in order to be stored back.
    """
    loads = [i for way in ways for i in way.items if isinstance(i, LoadEvent)]
    one, two = ([i for i in way.items if isinstance(i, StoreEvent)] for way in ways)
    last = [list(way.items[len(way.items) - len(s):]) for way, s in zip(ways, (one, two), strict=True)]
    if last != [one, two] or [(s.pointer, s.width) for s in one] != [(s.pointer, s.width) for s in two]:
        return None
    return [*loads, *(StoreEvent(a.pointer, _chosen(truth, a.value, b.value), a.width, a.address)
                      for a, b in zip(one, two, strict=True))]


def _conditional_stores(truth: Truth, ways: Sequence[Path], before: Sequence[Item], memory: MemoryModel) -> list[Item]:
    """The items of the first path, then of the second. A store of the path not taken writes back the old value."""
    done: list[Item] = list(before)
    for way, taken in zip(ways, (True, False), strict=True):
        for item in way.items:
            if isinstance(item, StoreEvent):
                old = _cell_content(done, item, memory)
                value, other = (item.value, old) if taken else (old, item.value)
                item = StoreEvent(item.pointer, _chosen(truth, value, other), item.width, item.address)
            done.append(item)
    return done[len(before):]


def _cell_content(done: list[Item], store: StoreEvent, memory: MemoryModel) -> Value:
    """The content of the cell of ``store`` after the items ``done``: a value in them, or a load that is appended."""
    for item in reversed(done):
        match item:
            case LoadEvent(identity, store.pointer, store.width, _):
                return Loaded(identity, store.width)
            case StoreEvent(store.pointer, value, store.width, _):
                return value
            case LoadEvent() | RowLoad():
                continue
            case StoreEvent() if _apart(item.pointer - store.pointer, item.width, store.width):
                continue
        break
    event = LoadEvent(len(memory.loads), store.pointer, store.width, store.address)
    memory.loads.append(event)
    done.append(event)
    return Loaded(event.identity, store.width)


def _apart(distance: Linear, width: int, other: int) -> bool:
    """Whether ``width`` bits share no byte with ``other`` bits that lie ``distance`` bytes before them."""
    return distance.is_constant and (8 * distance.constant >= other or 8 * distance.constant <= -width)


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

    They do if it compares one of these pairs, or numbers of which each is ``normal`` or compared with a normal one: then
    a NaN was invalid there, and a subnormal number was a denormal operand. Beside a NaN, a subnormal number raises
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
