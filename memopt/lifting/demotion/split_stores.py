"""Splits a store of several packed elements into one store for each element.

Example: ``movlps [rdi], xmm0`` stores two floats as one 64-bit lane, ``store [rdi]:64 = concat(a, b)``. It becomes
``store [rdi]:32 = b`` and ``store [rdi + 4]:32 = a``, so that each statement computes one element.
"""

from __future__ import annotations

from dataclasses import replace

from memopt.ir.frozen import dataclass
from memopt.lifting.demotion.demanded import Flow
from memopt.lifting.values.bits import base_and_offset, extract
from memopt.lifting.values.loop_tree import Guarded, Item, LoopNode, StoreEvent
from memopt.lifting.values.values import Carried, Final, Node, Value

_SPLIT = ("and", "or", "xor", "not")


def unpacked(node: LoopNode) -> LoopNode:
    """The nest with each store split into stores as narrow as the elements that its value is concatenated from."""
    return _Unpacker(Flow.of(node)).loop(node)


@dataclass(frozen=True, slots=True)
class _Unpacker:
    flow: Flow

    def loop(self, node: LoopNode) -> LoopNode:
        return replace(node, items=self._items(node.items))

    def _items(self, items: tuple[Item, ...]) -> tuple[Item, ...]:
        result: list[Item] = []
        for item in items:
            match item:
                case StoreEvent():
                    result += self._store(item)
                case LoopNode():
                    result.append(self.loop(item))
                case Guarded():
                    result.append(replace(item, items=self._items(item.items)))
                case _:
                    result.append(item)
        return tuple(result)

    def _store(self, store: StoreEvent) -> list[StoreEvent]:
        width = self._grain(store.value, frozenset())
        return [StoreEvent(store.pointer + low // 8, extract(store.value, low, width), width, store.address)
                for low in range(0, store.width, width)]

    def _grain(self, value: Value, seen: frozenset[Value]) -> int:
        """The width in bits of the narrowest element that ``value`` is concatenated from, at least 8.

        ``seen``: values on the way here, since carried values refer to themselves.
        """
        if value in seen:
            return value.width
        seen |= {value}
        base, _ = base_and_offset(value)
        match value:
            case Node("concat", (high, low), _):
                return min(self._grain(high, seen), self._grain(low, seen))
            case Node(name, operands, _) if name in _SPLIT:
                return min(self._grain(o, seen) for o in operands)
            case Node("when", (_, stored), _):
                return self._grain(stored, seen)
            case Node("select", (_, first, second), _):
                return min(self._grain(first, seen), self._grain(second, seen))
        if isinstance(base, Carried | Final):
            return min([value.width, *(self._grain(v, seen) for v in self.flow.sources(value))])
        return max(8, value.width)
