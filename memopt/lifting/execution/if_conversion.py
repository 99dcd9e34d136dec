"""Where the ways of a branch on data come together again: what is done in both cases, and what data chooses.

The branch becomes selections: what a way stores is chosen between the new value and what the cell holds, so every
iteration stores, and every iteration loads. That touches cells which the original may pass over, in vain: a region
says so (memopt.ir.region.Region.wider), and then its footprints have to lie in memory that was looked at, of a program
with one thread. Floating-point operations would raise flags of their own: where their way is not gone they are done on
ones, all but comparisons of what is compared in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from memopt.ir.linear import Linear
from memopt.ir.operations import COMPARING, FROM_INTEGERS, ROUNDED, SIGNALLING
from memopt.ir.reasons import Reason, Rejected
from memopt.lifting.execution.assumptions import SLOT, State
from memopt.lifting.execution.memory import MemoryModel
from memopt.lifting.execution.merge import Path
from memopt.lifting.values.loop_tree import Item, LoadEvent, Raising, StoreEvent
from memopt.lifting.values.values import Formula, Loaded, Node, Truth, Value, constant

_ONES, _INTEGER_ONES = {32: 0x3F800000, 64: 0x3FF0000000000000}, {32: 1, 64: 1}
MOST_CHOICES = 8  # branches on data in one nest: what is chosen is chosen from what was chosen


def if_convert(condition: Formula, ways: Sequence[Path], before: Sequence[Item],
               places: MemoryModel) -> tuple[list[Item], State]:
    """What both of ``ways`` do together: the first is gone where ``condition`` holds, the other where it does not.

    ``before`` is what the iteration has done so far.
    """
    truth = Truth(condition)
    for way in ways:
        if not all(isinstance(i, LoadEvent | StoreEvent) for i in way.items):
            raise Rejected(Reason.DATA_DEPENDENT_BRANCH, f"a loop depends on the branch at {places.algebra.address:#x}")
    items = _stored_alike(truth, ways) or _one_by_one(truth, ways, before, places)
    return items, if_convert_states(condition, ways, places)


def if_convert_states(condition: Formula, ways: Sequence[Path], places: MemoryModel) -> State:
    slots = {p for way in ways for p in way.state if p.startswith(SLOT)}
    for way in ways:
        for slot in sorted(slots - way.state.keys()):
            way.state[slot] = places.load_slot(way.state, slot)
    taken, other = (way.state for way in ways)
    return {p: _chosen(Truth(condition), value, other[p]) for p, value in taken.items()}


def _chosen(truth: Truth, value: Value, other: Value) -> Value:
    return value if value == other else Node("select", (truth, value, other), value.width)


def _stored_alike(truth: Truth, ways: Sequence[Path]) -> list[Item] | None:
    """Both ways store to the same cells, after all of their loads: each cell is stored to once."""
    loads = [i for way in ways for i in way.items if isinstance(i, LoadEvent)]
    one, two = ([i for i in way.items if isinstance(i, StoreEvent)] for way in ways)
    last = [list(way.items[len(way.items) - len(s):]) for way, s in zip(ways, (one, two), strict=True)]
    if last != [one, two] or [(s.pointer, s.width) for s in one] != [(s.pointer, s.width) for s in two]:
        return None
    return [*loads, *(StoreEvent(a.pointer, _chosen(truth, a.value, b.value), a.width, a.address)
                      for a, b in zip(one, two, strict=True))]


def _one_by_one(truth: Truth, ways: Sequence[Path], before: Sequence[Item], places: MemoryModel) -> list[Item]:
    """The first way with stores that change nothing unless ``truth`` holds, then the second, the other way round."""
    done: list[Item] = list(before)
    for way, taken in zip(ways, (True, False), strict=True):
        for item in way.items:
            if isinstance(item, StoreEvent):
                held = _content(done, item, places)
                value, other = (item.value, held) if taken else (held, item.value)
                item = StoreEvent(item.pointer, _chosen(truth, value, other), item.width, item.address)
            done.append(item)
    return done[len(before):]


def _content(done: list[Item], store: StoreEvent, places: MemoryModel) -> Value:
    """What the cell of ``store`` holds after ``done``, to which a load is added where nothing tells."""
    for item in reversed(done):
        match item:
            case LoadEvent(identity, store.pointer, store.width, _):
                return Loaded(identity, store.width)
            case StoreEvent(store.pointer, value, store.width, _):
                return value
            case LoadEvent():
                continue
            case StoreEvent() if _apart(item.pointer - store.pointer, item.width, store.width):
                continue
        break
    event = LoadEvent(len(places.loads), store.pointer, store.width, store.address)
    places.loads.append(event)
    done.append(event)
    return Loaded(event.identity, store.width)


def _apart(distance: Linear, width: int, other: int) -> bool:
    """Whether ``width`` bits share no byte with ``other`` bits that lie ``distance`` bytes before them."""
    return distance.is_constant and (8 * distance.constant >= other or 8 * distance.constant <= -width)


def raises_alone(ways: Sequence[Collection[Raising]], masked: Collection[Value],
                 normal: Callable[[Value], bool]) -> bool:
    """Whether one of ``ways`` has floating-point operations of its own, but for those ``masked``, that would raise a
    flag in the others.

    Further comparisons of what all of them compare, with each other or with numbers that are ``normal``, raise none: a
    NaN or a subnormal number has done so.
    """
    common = set(ways[0]).intersection(*ways)
    looked_at = compared_in(common)
    return any(under or not repeats(value, looked_at, normal)
               for value, under in {o: None for way in ways for o in way if o not in common} if value not in masked)


def compared_in(done: Collection[Raising]) -> set[Value]:
    """What is compared in any case, so that a NaN or a subnormal number raises a flag."""
    return {operand for value, under in done if not under and isinstance(value, Node)
            and value.operator in SIGNALLING for operand in value.operands}


def repeats(value: Value, looked_at: Collection[Value], normal: Callable[[Value], bool]) -> bool:
    """Whether ``value`` is a comparison that raises nothing that one of what is ``looked_at`` does not."""
    return isinstance(value, Node) and value.operator in COMPARING and all(
        operand in looked_at or normal(operand) for operand in value.operands)


def masked(way: Formula, operator: str, operands: tuple[Value, ...], normal: Callable[[Value], bool]) -> (
        tuple[Value, ...]):
    """``operands`` where ``way`` holds, else ones: no operation on these is invalid, inexact or out of range."""
    kept = {0} if operator in ROUNDED else set()
    if operator == "fmul":  # one times a normal number is this number
        kept = {n for n, o in enumerate(operands) if normal(o)}
        kept = kept if len(kept) < len(operands) else set()
    ones = _INTEGER_ONES if operator in FROM_INTEGERS else _ONES
    return tuple(o if n in kept else Node("select", (Truth(way), o, constant(ones[o.width], o.width)), o.width)
                 for n, o in enumerate(operands))
