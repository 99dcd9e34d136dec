"""What a version leaves behind must not be seen.

At the header for iteration H a version has restored every register to its value at entry, then given the advancing
ones their values for H. A location that holds something else each time (it is opaque) keeps its entry value: that is
right only if the original's last iteration overwrites it before it is used, inside the loop or after it.

Bits that no iteration changes are an exception: `setb r11b` rewrites the low byte and passes the others on.
"""

from __future__ import annotations

from memopt.analysis.algebra import LOOP_COUNTER
from memopt.analysis.execute import OuterLoop
from memopt.analysis.nest import Guarded, LoopNode
from memopt.analysis.values import Carried, Final, Integer, Node, Truth, Value, constant_of, data
from memopt.ir.reasons import Reason, Rejected
from memopt.x86.conditions import flag_family

_TWO_OPERANDS = ("add", "sub", "logic", "shl", "shr")


def check_dead(outer: OuterLoop) -> None:
    """Raises Rejected(CARRIED_VALUE) when an opaque header value reaches the code after the loop."""
    checker = _Liveness(outer)
    flags = constant_of(outer.exit_state.get("cc_op", Carried(checker.name, "cc_op")))
    following = checker.following if outer.leaves_first else {}
    for location, value in outer.exit_state.items():
        if location == "cc_ndep" and flags is not None and flag_family(flags)[0] in _TWO_OPERANDS:
            continue
        if isinstance(value, Carried) and value.loop == checker.name and value.location in following:
            value = following[value.location]
        if checker.reaches(value, set()):
            raise Rejected(Reason.CARRIED_VALUE, f"{location} is still used after the loop")


class _Liveness:
    def __init__(self, outer: OuterLoop) -> None:
        self.name = outer.node.counter.removeprefix(LOOP_COUNTER)
        self.loops = _loops(outer.node)
        self.following = {c.location: c.following for c in outer.node.carried}

    def reaches(self, value: Value, seen: set[Value]) -> bool:
        """Whether ``value`` depends on what an opaque location held at the header of the patched loop."""
        if value in seen:
            return False
        seen.add(value)
        match value:
            case Carried(loop, _, _) if loop in (self.name, "entry"):
                return loop == self.name
            case Carried() | Final():
                parts = self._parts(value)
                return not parts or any(self.reaches(v, seen) for v in parts)
            case Node("and", (inner, Integer() as mask), _) if (kept := constant_of(mask)) is not None:
                return not self._steady(inner, kept) and self.reaches(inner, seen)
            case Node(_, operands, _):
                return any(self.reaches(o, seen) for o in operands)
            case Truth(formula):
                return any(self.reaches(v, seen) for v in data(formula))
        return False

    def _parts(self, value: Carried | Final) -> list[Value]:
        """What a value of an inner loop may be: by induction it is no more than these."""
        loop = self.loops.get(value.loop)
        if loop is None:
            return []
        if isinstance(value, Final):
            return [v for place, v in loop.finals if place == value.location]
        return [v for c in loop.carried if c.location == value.location for v in (c.entry, c.following)]

    def _steady(self, value: Value, mask: int) -> bool:
        """Whether the bits of ``mask`` in ``value`` are those of one location at entry to the region: they come from
        its header value, and each iteration of the patched loop passes them on in that same location."""
        origins = self._origins(value, mask, set())
        if origins is None or len(origins) != 1:
            return False
        location, = origins
        return location in self.following and self._origins(self.following[location], mask, set()) == {location}

    def _origins(self, value: Value, mask: int, seen: set[Value]) -> set[str] | None:
        """The locations whose header values pass on the bits of ``mask``; None when they come about otherwise."""
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


def _possible(value: Value) -> int:
    """Bits of ``value`` that may be set."""
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
