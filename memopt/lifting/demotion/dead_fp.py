"""Dead floating-point operations: their results are unused, but the exception flags they raise must stay exact.

Example: ``mulpd xmm0, xmm1; movsd [rdi], xmm0`` multiplies two lanes and stores one. The product of the upper lanes may
still overflow and set a flag of MXCSR.

In: the canonical nest, with the operations of each loop in ``LoopNode.raising``. Out: the nest in which each of them is
computed for something that is stored. An operation whose flags another one raises anyway needs nothing. Otherwise it is
done beside a store whose value contains its operands (``StoreEvent.beside``), or its result is stored to a private
cell.

Three kinds of operations are left out:

- Operations on zeros, which raise nothing: lanes above what was loaded are zero.
- Operations whose operands never change, if the last iteration, which the original runs, certainly does them too.
- The additions of a sum that every outer iteration starts anew and only the last one hands on (a residual for each
  sweep). Its terms are computed; flags that only the skipped additions would raise are lost. A fused multiply-add is
  skipped with its product. This is the one exception to exact flags.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear
from memopt.ir.operations import COMPARING, RAISING, SIGNALLING
from memopt.ir.scop import FLOATS
from memopt.lifting.demotion.demanded import Demanded, Flow
from memopt.lifting.demotion.expressions import element_of
from memopt.lifting.demotion.scalar_expansion import ExpandedScalars
from memopt.lifting.values.bits import base_and_offset, extract, zext
from memopt.lifting.values.bounds import UNLIMITED, Limits, proved
from memopt.lifting.values.loop_tree import Guarded, Item, LoopNode, StoreEvent, loop_name, stores_of
from memopt.lifting.values.values import Carried, Final, LiveVector, Node, Value, constant_of, within

_COMMUTING = ("fadd", "fmul")
_ADDING = ("fadd", "fsub", "fma", "fms", "fnma", "fnms")
_OF_ZEROS = COMPARING | {"fadd", "fsub", "fmul"}  # raise nothing if all operands are zero, and give zero

_Effect = tuple[str, Collection[Value], int]
_Sums = dict[int, frozenset[Value]]  # id of a LoopNode -> its partial sums (a memo)


def keep_flag_effects(node: LoopNode, at_header: tuple[Value, ...], limits: Limits = UNLIMITED) -> LoopNode:
    """The nest in which every operation that may raise a flag is computed for a store, or raises nothing new.

    ``node`` is in canonical form. ``at_header``: values of registers that the outermost loop carries and the code
    behind it uses. ``limits``: what guards ensure; inner loops may run at least once by that. A nest without stores is
    returned as it is: the caller decides whether its sums are used behind it.
    """
    if not any(stores_of((node,))):
        return node
    outside = _Context(limits)
    return _with_unused(node, _Raised.by(node, at_header, outside), ExpandedScalars("v"), outside, {})


@dataclass(frozen=True, slots=True)
class _Context:
    """Where an operation is executed: inside ``loops`` (counter and trip count, outermost first), under conditions.

    All of ``conditions`` are >= 0 there.
    """

    limits: Limits
    loops: tuple[tuple[str, Linear | None], ...] = ()
    conditions: frozenset[Linear] = frozenset()

    @property
    def counters(self) -> tuple[str, ...]:
        return tuple(counter for counter, _ in self.loops)

    def inside(self, item: LoopNode | Guarded) -> _Context:
        """The context of the items in ``item``, which is itself in this context."""
        if isinstance(item, LoopNode):
            return replace(self, loops=(*self.loops, (item.counter, item.trips)))
        return self.under(item.conditions)

    def under(self, conditions: Iterable[Linear]) -> _Context:
        return replace(self, conditions=self.conditions.union(conditions))

    def executes_with(self, other: _Context) -> bool:
        """Whether this place is executed whenever ``other`` is, in each iteration of the loops around both."""
        return self.conditions <= other.conditions and all(
            trips is not None and not trips.quotients and proved(trips - 1, self.limits)
            for counter, trips in self.loops if counter not in other.counters)


@dataclass(frozen=True, slots=True)
class _Raised:
    """The flags that the new code raises: effect -> where. ``exempt``: effects that may be lost (sums)."""

    places: dict[_Effect, set[_Context]]
    exempt: frozenset[_Effect]

    @staticmethod
    def by(node: LoopNode, at_header: tuple[Value, ...], outside: _Context) -> _Raised:
        """The flags raised by all that ``node`` stores, carries or leaves in the registers ``at_header``."""
        flow, header = Flow.of(node), outside.inside(node)
        around: dict[str, _Context] = {}
        computed = [(value, header) for value in at_header]
        for item, place in _placed(node, outside):
            if isinstance(item, StoreEvent):
                computed.append((item.value, place))
            else:
                around[loop_name(item)] = place
        # A carried value has a cell, so each iteration stores it. A Final value may be stored in the last one only.
        for base, parts in Demanded.of(node, at_header).parts.items():
            if isinstance(base, Carried) and base.loop in around:
                loop = flow.loops[base.loop]
                for entry, following in filter(None, map(flow.sources, parts)):
                    computed += [(entry, around[base.loop]), (following, around[base.loop].inside(loop))]
        places: dict[_Effect, set[_Context]] = {}
        for value, place in computed:
            for effect in _effects(within(value)):
                places.setdefault(effect, set()).add(place)
        return _Raised(places, frozenset(_effects(_outer_sums(node))))

    def covers(self, operation: Value, place: _Context) -> bool:
        """Whether the new code raises the flags of ``operation`` anyway whenever control reaches ``place``."""
        return all(effect in self.exempt or any(p.executes_with(place) for p in self.places.get(effect, ()))
                   for effect in _effects((operation,)))


def _placed(item: Item, place: _Context) -> Iterator[tuple[StoreEvent | LoopNode, _Context]]:
    """Every loop and store in ``item``, each with the context it is in."""
    if isinstance(item, StoreEvent | LoopNode):
        yield item, place
    if isinstance(item, LoopNode | Guarded):
        for each in item.items:
            yield from _placed(each, place.inside(item))


def _outer_sums(node: LoopNode) -> Iterator[Value]:
    """All parts of the sums that the outermost loop accumulates in registers, from iteration to iteration."""
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


def _with_unused(loop: LoopNode, raised: _Raised, privates: ExpandedScalars, around: _Context,
                 known: _Sums) -> LoopNode:
    place = around.inside(loop)
    sums = _partial_sums(loop, known)
    # Whether the last iteration, the original's, comes here too.
    certain = place.executes_with(replace(place, loops=place.loops[:1], conditions=frozenset()))
    unused = [(o, under) for o, under in loop.raising
            if not (_is_zero(o) or (certain and not under and _is_unchanging(o)))
            and o not in sums and not raised.covers(o, place.under(under))]
    inside = {v for o, _ in unused if isinstance(o, Node) for operand in o.operands for v in within(operand)}
    items = [_item_with_unused(i, raised, privates, place, known) for i in loop.items]
    for operation, under in unused:
        if operation not in inside and (under or not _done_beside(operation, items)):
            items.append(_stored_privately(operation, under, loop, privates, place.counters))
    return replace(loop, items=tuple(items))


def _done_beside(operation: Value, items: list[Item]) -> bool:
    """Add ``operation`` to a store in ``items`` whose value contains all its operands; False if there is none."""
    for number, item in enumerate(items):
        if (isinstance(operation, Node) and isinstance(item, StoreEvent) and isinstance(item.value, Node)
                and operation.width == item.value.width and element_of(operation) is element_of(item.value) in FLOATS
                and set(within(item.value)).issuperset(operation.operands)):
            items[number] = replace(item, beside=(*item.beside, operation))
            return True
    return False


def _item_with_unused(item: Item, raised: _Raised, privates: ExpandedScalars, around: _Context, known: _Sums) -> Item:
    match item:
        case LoopNode():
            return _with_unused(item, raised, privates, around, known)
        case Guarded():
            return replace(item, items=tuple(
                _item_with_unused(i, raised, privates, around.inside(item), known) for i in item.items))
    return item


def _stored_privately(operation: Value, under: tuple[Linear, ...], loop: LoopNode, privates: ExpandedScalars,
          counters: tuple[str, ...]) -> Item:
    match operation:
        case Node("fcompare" | "fqcompare" as name, operands, _):
            operation = Node("flt" if name == "fcompare" else "fqlt", operands, 1)
    value = zext(operation, 64) if operation.width == 1 else operation
    store = StoreEvent(privates.cell((operation, under), counters), value, value.width, loop.address)
    return Guarded(under, (store,)) if under else store


def _effects(operations: Iterable[Value]) -> Iterator[_Effect]:
    """Keys of the flags that ``operations`` may raise: operations with equal keys raise the same flags.

    ``a < b`` and ``b <= a`` do, for example, as do ``a + b`` and ``b + a``.
    """
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
    """The additions that accumulate sums in ``loop``, by itself or in a loop inside it: all intermediate results."""
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
    """Whether ``value`` is the sum ``so_far``, continued by an inner loop and handed back when that loop is left."""
    base, low = base_and_offset(value)
    if not isinstance(base, Final) or base.loop not in flow.loops:
        return False
    passed_on = flow.sources(extract(Carried(base.loop, base.location, base.width), low, value.width))
    return bool(passed_on) and _is_carried(base_and_offset(passed_on[0])[0], so_far) and set(
        flow.sources(value)) <= _partial_sums(flow.loops[base.loop], known)


def _is_zero(value: Value) -> bool:
    """Whether ``value`` is zero or computed from zeros, as lanes above what was loaded are."""
    match value:
        case Node(name, operands, _) if name in _OF_ZEROS:
            return all(map(_is_zero, operands))
    return constant_of(value) == 0


def _is_unchanging(value: Value) -> bool:
    """Whether ``value`` is computed from constants and unchanged registers: the last iteration raises its flags."""
    if isinstance(value, Node):
        return all(map(_is_unchanging, value.operands))
    return isinstance(value, LiveVector) or constant_of(value) is not None
