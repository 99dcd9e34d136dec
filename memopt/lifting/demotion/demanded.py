"""What the stores of a nest are made of, through registers and loops."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from memopt.lifting.values.bits import base_and_offset, extract
from memopt.lifting.values.loop_tree import LoopNode, loop_name, loops_of, stores_of
from memopt.lifting.values.values import Carried, Final, Loaded, Node, Value


@dataclass(frozen=True, slots=True)
class Flow:
    """Where values that loops pass on come from."""

    loops: dict[str, LoopNode]

    @staticmethod
    def of(node: LoopNode) -> Flow:
        return Flow({loop_name(loop): loop for loop in loops_of((node,))})

    def sources(self, value: Value) -> list[Value]:
        """What a part of a Carried or Final value may be: by induction it is no more than these."""
        base, low = base_and_offset(value)
        found: list[Value] = []
        if isinstance(base, Carried) and base.loop in self.loops:
            for carried in self.loops[base.loop].carried:
                if carried.location == base.location:
                    found = [carried.entry, carried.following]
        elif isinstance(base, Final) and base.loop in self.loops:
            found = [v for place, v in self.loops[base.loop].finals if place == base.location]
        return [extract(v, low, value.width) for v in found]


@dataclass(frozen=True, slots=True)
class Demanded:
    """What stored values are made of: for each loaded, carried or final value the parts of it that are used, and for
    each value how many others are made of it."""

    parts: dict[Value, tuple[Value, ...]]
    uses: Counter[Value]

    @staticmethod
    def of(node: LoopNode, used: tuple[Value, ...] = ()) -> Demanded:
        """``used``: values that are needed besides those that are stored."""
        flow = Flow.of(node)
        pending = [*(store.value for store in stores_of((node,))), *used]
        uses = Counter(pending)
        seen: set[Value] = set()
        parts: dict[Value, list[Value]] = {}
        while pending:
            value = pending.pop()
            if value in seen:
                continue
            seen.add(value)
            base, _ = base_and_offset(value)
            if isinstance(base, Loaded | Carried | Final):
                parts.setdefault(base, []).append(value)
                made_of = flow.sources(value)
            else:
                made_of = list(value.operands) if isinstance(value, Node) else []
            pending += made_of
            uses.update(made_of)
        return Demanded({base: _largest(found) for base, found in parts.items()}, uses)

    def of_value(self, base: Value) -> tuple[Value, ...]:
        return self.parts.get(base, ())


def _largest(parts: list[Value]) -> tuple[Value, ...]:
    """Those that are not parts of another one, in order."""
    spans = sorted(((base_and_offset(p)[1], -p.width, p) for p in parts), key=lambda s: s[:2])
    result: list[Value] = []
    reached = 0
    for low, width, value in spans:
        if low - width > reached:
            result.append(value)
            reached = low - width
    return tuple(result)
