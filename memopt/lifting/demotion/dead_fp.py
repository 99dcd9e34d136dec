"""Floating-point operations of which nothing uses the result: lanes that a compiler computes and never looks at.

They raise flags all the same. Where no other operation raises them, new code must not do without: they are done beside
a store of what has their operands (StoreEvent.beside), else their results are stored to private cells. Left out are
additions to sums that nothing uses.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from memopt.ir.linear import Linear
from memopt.ir.operations import COMPARING, RAISING, SIGNALLING
from memopt.ir.scop import FLOATS
from memopt.lifting.demotion.demanded import Demanded, Flow
from memopt.lifting.demotion.expressions import element_of
from memopt.lifting.demotion.scalar_expansion import ExpandedScalars
from memopt.lifting.values.bits import base_and_offset, extract, zext
from memopt.lifting.values.loop_tree import Guarded, Item, LoopNode, StoreEvent, loop_name, stores_of
from memopt.lifting.values.values import Carried, Final, LiveVector, Node, Value, constant_of, within

_COMMUTING = ("fadd", "fmul")
_ADDING = ("fadd", "fsub", "fma", "fms", "fnma", "fnms")
_OF_ZEROS = COMPARING | {"fadd", "fsub", "fmul"}  # exact, and zero, where all operands are

_Effect = tuple[str, Collection[Value], int]
_Sums = dict[int, frozenset[Value]]  # by the id of a loop


def keep_flag_effects(node: LoopNode, at_header: tuple[Value, ...]) -> LoopNode:
    """The canonical nest with a store for each operation that may raise flags which no stored value does.

    ``at_header``: what registers hold that the outermost loop carries. A nest that stores nothing stays as it is; sums
    are left to who knows whether the code after the loop uses them."""
    if not any(stores_of((node,))):
        return node
    return _with_unused(node, _Raised.by(node, at_header), ExpandedScalars("v"), _Place(), {})


@dataclass(frozen=True, slots=True)
class _Place:
    """Inside of ``loops`` (counters and trips), outermost first, where all of ``conditions`` are >= 0."""

    loops: tuple[tuple[str, Linear | None], ...] = ()
    conditions: frozenset[Linear] = frozenset()

    @property
    def counters(self) -> tuple[str, ...]:
        return tuple(counter for counter, _ in self.loops)

    def inside(self, item: LoopNode | Guarded) -> _Place:
        if isinstance(item, LoopNode):
            return replace(self, loops=(*self.loops, (item.counter, item.trips)))
        return self.under(item.conditions)

    def under(self, conditions: Iterable[Linear]) -> _Place:
        return replace(self, conditions=self.conditions.union(conditions))

    def comes_with(self, other: _Place) -> bool:
        """Whether the program comes here whenever it comes to ``other``, in the iterations of the loops around both."""
        return self.conditions <= other.conditions and all(
            trips is not None and trips.is_constant and trips.constant > 0
            for counter, trips in self.loops if counter not in other.counters)


@dataclass(frozen=True, slots=True)
class _Raised:
    """The flags that new code raises, and where; those that are ``left`` out are no concern."""

    places: dict[_Effect, set[_Place]]
    left: frozenset[_Effect]

    @staticmethod
    def by(node: LoopNode, at_header: tuple[Value, ...]) -> _Raised:
        flow, header = Flow.of(node), _Place().inside(node)
        around: dict[str, _Place] = {}
        computed = [(value, header) for value in at_header]
        for item, place in _placed(node, _Place()):
            if isinstance(item, StoreEvent):
                computed.append((item.value, place))
            else:
                around[loop_name(item)] = place
        # What a loop carries is stored in each of its iterations. What it leaves behind may be in the last one alone.
        for base, parts in Demanded.of(node, at_header).parts.items():
            if isinstance(base, Carried) and base.loop in around:
                loop = flow.loops[base.loop]
                for entry, following in filter(None, map(flow.sources, parts)):
                    computed += [(entry, around[base.loop]), (following, around[base.loop].inside(loop))]
        places: dict[_Effect, set[_Place]] = {}
        for value, place in computed:
            for effect in _effects(within(value)):
                places.setdefault(effect, set()).add(place)
        return _Raised(places, frozenset(_effects(_sums(node))))

    def has(self, operation: Value, place: _Place) -> bool:
        return all(effect in self.left or any(p.comes_with(place) for p in self.places.get(effect, ()))
                   for effect in _effects((operation,)))


def _placed(item: Item, place: _Place) -> Iterator[tuple[StoreEvent | LoopNode, _Place]]:
    """Every loop and store in ``item``, and what is around it."""
    if isinstance(item, StoreEvent | LoopNode):
        yield item, place
    if isinstance(item, LoopNode | Guarded):
        for each in item.items:
            yield from _placed(each, place.inside(item))


def _sums(node: LoopNode) -> Iterator[Value]:
    """What registers are made of to which every iteration of the outermost loop adds."""
    flow, name = Flow.of(node), loop_name(node)
    for carried in node.carried:
        seen: set[tuple[Value, bool]] = set()
        pending = [(carried.following, False)]
        while pending:
            value, computed = pending.pop()
            if (value, computed) not in seen:
                seen.add((value, computed))
                pending += ((v, computed) for v in flow.sources(value))
                if isinstance(value, Node):
                    pending += ((v, computed or value.operator in RAISING) for v in value.operands)
        if any(isinstance(v, Carried) and computed and (v.loop, v.location) == (name, carried.location)
               for v, computed in seen):
            yield from (value for value, _ in seen)


def _with_unused(loop: LoopNode, raised: _Raised, privates: ExpandedScalars, around: _Place, known: _Sums) -> LoopNode:
    place = around.inside(loop)
    sums = _partial_sums(loop, known)
    certain = place.comes_with(_Place(place.loops[:1]))  # in the last outermost iteration, which the original runs
    idle = [(o, under) for o, under in loop.raising
            if not (_is_zero(o) or (certain and not under and _is_unchanging(o)))
            and o not in sums and not raised.has(o, place.under(under))]
    inside = {v for o, _ in idle if isinstance(o, Node) for operand in o.operands for v in within(operand)}
    items = [_item_with_unused(i, raised, privates, place, known) for i in loop.items]
    for operation, under in idle:
        if operation not in inside and (under or not _done_beside(operation, items)):
            items.append(_kept(operation, under, loop, privates, place.counters))
    return replace(loop, items=tuple(items))


def _done_beside(operation: Value, items: list[Item]) -> bool:
    """Whether one of ``items`` now does it as well: a store of what its operands are parts of."""
    for number, item in enumerate(items):
        if (isinstance(operation, Node) and isinstance(item, StoreEvent) and isinstance(item.value, Node)
                and operation.width == item.value.width and element_of(operation) is element_of(item.value) in FLOATS
                and set(within(item.value)).issuperset(operation.operands)):
            items[number] = replace(item, beside=(*item.beside, operation))
            return True
    return False


def _item_with_unused(item: Item, raised: _Raised, privates: ExpandedScalars, around: _Place, known: _Sums) -> Item:
    match item:
        case LoopNode():
            return _with_unused(item, raised, privates, around, known)
        case Guarded():
            return replace(item, items=tuple(
                _item_with_unused(i, raised, privates, around.inside(item), known) for i in item.items))
    return item


def _kept(operation: Value, under: tuple[Linear, ...], loop: LoopNode, privates: ExpandedScalars,
          counters: tuple[str, ...]) -> Item:
    match operation:
        case Node("fcompare" | "fqcompare" as name, operands, _):
            operation = Node("flt" if name == "fcompare" else "fqlt", operands, 1)
    value = zext(operation, 64) if operation.width == 1 else operation
    store = StoreEvent(privates.cell((operation, under), counters), value, value.width, loop.address)
    return Guarded(under, (store,)) if under else store


def _effects(operations: Iterable[Value]) -> Iterator[_Effect]:
    """What may raise flags: operations with the same effects raise the same ones, whatever they are called."""
    for value in operations:
        match value:
            case Node(name, operands, _) if name in COMPARING:
                yield "compare", frozenset(operands), 0
                if name in SIGNALLING:
                    yield "signal", frozenset(operands), 0
            case Node(name, operands, width) if name in _COMMUTING:
                yield name, frozenset(operands), width
            case Node(name, operands, width):
                yield name, operands, width


def _partial_sums(loop: LoopNode, known: _Sums) -> frozenset[Value]:
    """What the sums become to which an iteration of ``loop`` adds, by itself or in a loop inside."""
    if id(loop) not in known:
        known[id(loop)] = frozenset(_additions(loop, known))
    return known[id(loop)]


def _additions(loop: LoopNode, known: _Sums) -> Iterator[Value]:
    flow = Flow.of(loop)
    for carried in loop.carried:
        so_far = (loop_name(loop), carried.location)
        parts = list(within(carried.following))
        adding = [v for v in parts if isinstance(v, Node) and v.operator in _ADDING]
        found = {v for v in parts if _is_carried(v, so_far) or _adds_to(so_far, v, flow, known)}
        while new := {v for v in adding if v not in found
                      and not found.isdisjoint(o for operand in v.operands for o in (operand,
                                                                                     base_and_offset(operand)[0]))}:
            found |= new
            yield from new


def _is_carried(value: Value, so_far: tuple[str, str]) -> bool:
    return isinstance(value, Carried) and (value.loop, value.location) == so_far


def _adds_to(so_far: tuple[str, str], value: Value, flow: Flow, known: _Sums) -> bool:
    """Whether ``value`` is what an inner loop leaves of the sum ``so_far``, which a loop around carries into it: that
    and what it adds to it."""
    base, low = base_and_offset(value)
    if not isinstance(base, Final) or base.loop not in flow.loops:
        return False
    passed_on = flow.sources(extract(Carried(base.loop, base.location, base.width), low, value.width))
    return bool(passed_on) and _is_carried(base_and_offset(passed_on[0])[0], so_far) and set(
        flow.sources(value)) <= _partial_sums(flow.loops[base.loop], known)


def _is_zero(value: Value) -> bool:
    """Whether it is zero, computed from zeros: lanes beyond what was loaded are."""
    match value:
        case Node(name, operands, _) if name in _OF_ZEROS:
            return all(map(_is_zero, operands))
    return constant_of(value) == 0


def _is_unchanging(value: Value) -> bool:
    """Whether it is computed from constants and what registers hold throughout: the last iteration raises its flags."""
    if isinstance(value, Node):
        return all(map(_is_unchanging, value.operands))
    return isinstance(value, LiveVector) or constant_of(value) is not None
