"""Demanded bits: which parts of loaded, carried and final values the stores of a nest depend on.

Example: a loop carries the 64-bit lane xmm0.0, but only ``trunc32(xmm0.0)`` is ever stored. Then the low 32 bits are
demanded; only they need a memory cell, and only they must survive from iteration to iteration.

A backward traversal of the value graph, from the stored values through operands and through the entry and following
values of loops (``Flow``). It is sound because it visits every value from which a store can be computed.
"""

from __future__ import annotations

from collections import Counter

from memopt.ir.frozen import dataclass
from memopt.lifting.values.bits import base_and_offset, extract
from memopt.lifting.values.loop_tree import LoopNode, loads_of, loop_name, loops_of, stores_of
from memopt.lifting.values.values import Carried, Final, Loaded, Node, Value


@dataclass(frozen=True, slots=True)
class Flow:
    """Data flow through the loops of a nest, by name: where Carried and Final values come from."""

    loops: dict[str, LoopNode]

    @staticmethod
    def of(node: LoopNode) -> Flow:
        """The flow through ``node`` and all loops in it."""
        """The flow through ``node`` and all loops in it."""
        return Flow({loop_name(loop): loop for loop in loops_of((node,))})

    def sources(self, value: Value) -> list[Value]:
        """The values that a part of a Carried or Final value may be; [] for any other value.

        Carried: the entry value or the one of the iteration before. Final: the value in the last iteration.
        """
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
    """The values that the stores depend on.

    ``parts``: for each Loaded, Carried or Final value, the largest parts of it that are used. ``uses``: for each value,
    how many other values use it directly.
    """

    parts: dict[Value, tuple[Value, ...]]
    uses: Counter[Value]

    @staticmethod
    def of(node: LoopNode, used: tuple[Value, ...] = ()) -> Demanded:
        """The demanded values of ``node``; ``used``: values that are demanded besides the stored ones."""
        flow = Flow.of(node)
        conditions = {load.identity: load.condition for load in loads_of((node,)) if load.condition is not None}
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
                if isinstance(base, Loaded) and base.event in conditions:
                    made_of = [conditions[base.event]]
            else:
                made_of = list(value.operands) if isinstance(value, Node) else []
            pending += made_of
            uses.update(made_of)
        return Demanded({base: _maximal(found) for base, found in parts.items()}, uses)

    def of_value(self, base: Value) -> tuple[Value, ...]:
        """The demanded parts of ``base``, by ascending offset."""
        """The demanded parts of ``base``, by ascending offset."""
        return self.parts.get(base, ())


def _maximal(parts: list[Value]) -> tuple[Value, ...]:
    """The parts that are not contained in another one, by ascending offset."""
    spans = sorted(((base_and_offset(p)[1], -p.width, p) for p in parts), key=lambda s: s[:2])
    result: list[Value] = []
    reached = 0
    for low, width, value in spans:
        if low - width > reached:
            result.append(value)
            reached = low - width
    return tuple(result)
