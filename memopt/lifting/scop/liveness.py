"""Liveness: proves that a register or stack cell which a version does not restore is written before it is read.

Example: in ``for (...) { t = a[i]; b[i] = t; }`` the register of t holds another value at every header. A version
leaves the value from its entry in it. That is right, since the next iteration, which the original runs, writes t first.

In: the lifted outer loop, the locations that the rejoin restores, what guards say about R and parameters. Out: how many
of the last iterations the original has to run itself, so that it overwrites every other location before it reads it, in
these iterations or after the loop. One may not be enough: an inner loop with fewer iterations each time may not run in
the last one at all.

At the header of iteration H a version has restored every register to its value at entry, and given the induction
variables their values for H. An *opaque* location holds another value at each header, and keeps its entry value. Bits
that no iteration changes are an exception: ``setb r11b`` rewrites the low byte and keeps the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.scop import TRIPS
from memopt.lifting.execution.assumptions import GENERAL, LANES
from memopt.lifting.execution.executor import OuterLoop
from memopt.lifting.values.algebra import LOOP_COUNTER
from memopt.lifting.values.bounds import UNLIMITED, Limits, Ranges, proved, sign
from memopt.lifting.values.loop_tree import Guarded, LoopNode
from memopt.lifting.values.values import (
    Atom,
    Carried,
    Either,
    Final,
    Formula,
    Integer,
    Node,
    Not,
    Truth,
    Value,
    constant_of,
    data,
    negate,
)
from memopt.x86.conditions import flag_family

MOST_LEFT = 16  # iterations that a version may leave to the original
_TWO_OPERANDS = ("add", "sub", "logic", "shl", "shr")


def iterations_left(outer: OuterLoop, restored: frozenset[str] = frozenset(), limits: Limits = UNLIMITED) -> int:
    """How many of the last iterations the original must run itself, so that no opaque header value reaches the code
    after the loop, apart from those of ``restored`` locations. ``limits``: what guards ensure. Raises
    Rejected(CARRIED_VALUE) where more than MOST_LEFT would be needed."""
    needed = ""
    for left, found in _used(outer, restored, limits):
        if not found:
            return max(left, 1)
        needed = min(found)
    raise Rejected(Reason.CARRIED_VALUE, f"{needed.rstrip('?')} is still used after the loop")


def carried_on(outer: OuterLoop, restored: frozenset[str], limits: Limits) -> frozenset[str]:
    """The registers whose header values reach the code after the loop, however many iterations the original runs
    itself. None where another location is among them, which cannot be restored."""
    *_, (left, found) = _used(outer, restored, limits)
    carried = {c.location for c in outer.node.carried if c.entry.width == c.following.width == 64}
    return frozenset(found) if left == MOST_LEFT and found <= carried & {*GENERAL, *LANES} else frozenset()


def _used(outer: OuterLoop, restored: frozenset[str], limits: Limits) -> Iterator[tuple[int, set[str]]]:
    """(n, locations): if the original runs the last n iterations, the code after the loop depends on the header values
    of these opaque locations. Ends at a location whose value at the end of an iteration is not known."""
    checker = _Liveness(outer, restored, limits)
    flags = constant_of(outer.exit_state.get("cc_op", Carried(checker.name, "cc_op")))
    needed = {location: value for location, value in outer.exit_state.items()
              if not (location == "cc_ndep" and flags is not None and flag_family(flags)[0] in _TWO_OPERANDS)}
    for left in range(0 if outer.leaves_first else 1, MOST_LEFT + 1):
        found = checker.needed(needed.values(), left)
        yield left, found
        if not found <= checker.following.keys():
            return
        needed = {location: checker.following[location] for location in sorted(found)}


def running(outer: OuterLoop, left: int, sample: Mapping[str, int]) -> tuple[Linear, ...]:
    """Conditions that are >= 0 where inner loops run when ``left`` iterations are left. Only those that hold at the
    captured values."""
    now, ranges = _moment(outer, left)
    trips = [loop.trips for loop in _loops(outer.node).values() if loop is not outer.node and loop.trips is not None]
    bounds = dict.fromkeys(sign(t.substitute(now) - 1, ranges) for t in trips)
    return tuple(b for b in bounds if b.terms and b.symbols <= sample.keys() and b.evaluate(sample) >= 0)


def _moment(outer: OuterLoop, left: int, first: str = "") -> tuple[dict[str, Linear], Ranges]:
    """Values of the patched loop's counter, with ``left`` iterations to go, and of the counter ``first``, in its first
    iteration; and the largest values of the other counters then."""
    now = {outer.node.counter: Linear.symbol(TRIPS) - left}
    if first:
        now[first] = Linear()
    return now, {c: n.substitute(now) for c, n in outer.ranges.items() if c not in now}


class _Liveness:
    def __init__(self, outer: OuterLoop, restored: frozenset[str], limits: Limits) -> None:
        self.restored, self.limits = restored, limits
        self.outer, self.node = outer, outer.node
        self.name = outer.node.counter.removeprefix(LOOP_COUNTER)
        self.loops = _loops(outer.node)
        self.following = {c.location: c.following for c in outer.node.carried}
        self.left = 0
        self.first = ""  # the counter of the inner loop whose first iteration is analysed
        # The identity of a value -> itself, and the parts of it that may depend on a header value.
        self.ends: dict[int, tuple[Value, tuple[Value, ...]]] = {}
        # Inner loops whose header values are taken for those of later iterations, with the locations that were met.
        self.renewed: dict[str, set[str]] = {}

    def needed(self, values: Iterable[Value], left: int) -> set[str]:
        """The opaque locations whose header values ``values`` depend on; all are of the iteration with ``left``
        iterations to go. A "?" at the end of a name marks a value of which nothing is known."""
        self.left = left
        found: set[str] = set()
        seen: set[Value] = set()
        for value in values:
            self._collect(value, seen, found)
        return found

    def _collect(self, value: Value, seen: set[Value], found: set[str]) -> None:
        if value in seen:
            return
        seen.add(value)
        parts: Iterable[Value] = ()
        match value:
            case Carried(loop, location, _) if loop in (self.name, "entry"):
                found |= {location} - self.restored if loop == self.name else set()
            case Carried(loop, location, _) if loop in self.renewed:
                self.renewed[loop].add(location)
                after = [c.following for c in self.loops[loop].carried if c.location == location]
                found |= set() if after else {location + "?"}
                parts = () if self.first else after
            case Final() if (renewed := self._renewed(value)) is not None:
                found |= renewed
            case Carried() | Final():
                parts = self._parts(value)
                found |= set() if parts else {value.location + "?"}
            case Node("and", (inner, mask), _) if _decides(value) and (kept := constant_of(mask)) is not None:
                parts = () if self._steady(inner, kept) else (inner,)
            case Node("select", (Truth(formula), first, second), _) if _decides(value):
                parts = [v for v, f in ((first, formula), (second, negate(formula))) if not self._never(f)]
            case Node() | Truth():
                parts = self._ends(value)
        for part in parts:
            self._collect(part, seen, found)

    def _ends(self, value: Node | Truth) -> tuple[Value, ...]:
        """The parts of ``value`` that may depend on a header value: what is below its plain operations."""
        if id(value) not in self.ends:
            found: dict[Value, None] = {}
            seen: set[int] = set()
            pending = list(_operands(value))
            while pending:
                part = pending.pop()
                if isinstance(part, Carried | Final) or _decides(part):
                    found[part] = None
                elif id(part) not in seen:
                    seen.add(id(part))
                    pending += _operands(part)
            self.ends[id(value)] = value, tuple(found)
        return self.ends[id(value)][1]

    def _never(self, formula: Formula) -> bool:
        """Whether ``formula`` is proved false in this iteration."""
        match formula:
            case bool():
                return not formula
            case Either(left, right):
                return self._never(left) and self._never(right)
            case Not(Either(left, right)):
                return self._never(negate(left)) or self._never(negate(right))
            case Atom(linear, False):
                return self._positive(-linear)
            case Atom(linear, True):
                return self._positive(linear) or self._positive(-linear)
            case Not(Atom(linear, False)):
                return self._positive(linear + 1)
        return False

    def _positive(self, linear: Linear) -> bool:
        now, ranges = _moment(self.outer, self.left, self.first)
        return proved(sign(linear.substitute(now) - 1, ranges), self.limits)

    def _parts(self, value: Carried | Final) -> list[Value]:
        """The values that a value of an inner loop may be. By induction over its iterations there are no others."""
        loop = self.loops.get(value.loop)
        if loop is None:
            return []
        if isinstance(value, Final):
            runs = loop.trips is not None and self._positive(loop.trips)
            entries = [] if runs else [c.entry for c in loop.carried if c.location == value.location]
            return entries + [v for place, v in loop.finals if place == value.location]
        return [v for c in loop.carried if c.location == value.location for v in (c.entry, c.following)]

    def _renewed(self, value: Final) -> set[str] | None:
        """The opaque locations that the final ``value`` of an inner loop depends on, if that loop passes on nothing
        that it was entered with. None where this is not proved.

        It is if the first iteration of the inner loop always runs, and if neither what it hands to the next one nor
        what it may leave behind depends on the inner loop's header values. Needed for inner loops that run fewer
        iterations each time, and none in the last."""
        loop = self.loops.get(value.loop)
        if (loop is None or self.first or value.loop in self.renewed or loop.trips is None
                or not self._positive(loop.trips)):
            return None
        left = [v for place, v in loop.finals if place == value.location]
        self.renewed[value.loop], found, seen = set(), set[str](), set[Value]()
        for part in left:
            self._collect(part, seen, found)
        passed = self.renewed.pop(value.loop)
        first = [*left, *(c.following for c in loop.carried if c.location in passed)]
        return found if left and not self._passes(loop, value.loop, first) else None

    def _passes(self, loop: LoopNode, name: str, values: Iterable[Value]) -> bool:
        """Whether any of ``values``, in the first iteration of ``loop``, depends on a value that the loop was entered
        with."""
        self.first, self.renewed[name], seen = loop.counter, set(), set[Value]()
        for value in values:
            self._collect(value, seen, set())
        self.first = ""
        return bool(self.renewed.pop(name))

    def _steady(self, value: Value, mask: int) -> bool:
        """Whether the bits of ``mask`` in ``value`` are those that one location had at entry to the region: they come
        from its header value, and each iteration of the patched loop keeps them in that location."""
        origins = self._origins(value, mask, set())
        if origins is None or len(origins) != 1:
            return False
        location, = origins
        return location in self.following and self._origins(self.following[location], mask, set()) == {location}

    def _origins(self, value: Value, mask: int, seen: set[Value]) -> set[str] | None:
        """The locations whose header values the bits of ``mask`` in ``value`` come from; None where anything else
        contributes."""
        if value in seen:
            return set()
        seen.add(value)
        match value:
            case Carried(loop, location, _) if loop == self.name:
                return {location}
            case Carried() | Final():
                found = [self._origins(v, mask, seen) for v in self._parts(value)]
                return set().union(*(f for f in found if f is not None)) if found and None not in found else None
            case Node("and", (inner, Integer() as kept), _):
                bits = constant_of(kept)
                return self._origins(inner, mask, seen) if bits is not None and mask & ~bits == 0 else None
            case Node("or", (inner, added), _):
                return self._origins(inner, mask, seen) if mask & _possible(added) == 0 else None
        return None


def _operands(value: Value) -> Iterable[Value]:
    match value:
        case Node(_, operands, _):
            return operands
        case Truth(formula):
            return data(formula)
    return ()


def _decides(value: Value) -> bool:
    """Whether an operation may not depend on some of its operands: a mask, or a select on a known condition."""
    match value:
        case Node("and", (_, Integer() as mask), _):
            return constant_of(mask) is not None
        case Node("select", (Truth(formula), _, _), _):
            return not list(data(formula))
    return False


def _possible(value: Value) -> int:
    """A mask of the bits of ``value`` that may be set."""
    match value:
        case Truth():
            return 1
        case Node("zext", (inner,), _):
            return (1 << inner.width) - 1
        case Integer(linear, width) if linear.is_constant:
            return linear.constant % (1 << width)
    return -1


def _loops(node: LoopNode | Guarded) -> dict[str, LoopNode]:
    found = {node.counter.removeprefix(LOOP_COUNTER): node} if isinstance(node, LoopNode) else {}
    for item in node.items:
        if isinstance(item, LoopNode | Guarded):
            found |= _loops(item)
    return found
