"""Values that the patched loop carries in registers, where a memory cell always holds the same.

Compilers forward what an iteration has stored, or loaded last, to the next one in a register. The cell is known at the
end of each iteration; that it holds the register's value when a version is entered is left to its guard
(memopt.ir.region.Mirror). Where there is no such cell, a private one takes its place (memopt.ir.region.Passed).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Lane, MemoryBacked, Register
from memopt.ir.scop import LIMIT
from memopt.lifting.demotion.aliasing import Aliasing
from memopt.lifting.demotion.home_cells import CarriedPart, CarriedValues
from memopt.lifting.demotion.scalar_expansion import is_private
from memopt.lifting.execution.assumptions import GENERAL, LANES
from memopt.lifting.values.bits import base_and_offset, extract
from memopt.lifting.values.bounds import proved, sign
from memopt.lifting.values.loop_tree import Item, LoadEvent, LoopNode, StoreEvent, loop_name
from memopt.lifting.values.values import Carried, Value, constant_of

_VECTOR_BITS = 128  # of the vector registers that can be loaded in part


@dataclass(frozen=True, slots=True)
class PrivateBacked:
    """A carried value that is in no cell of the program; ``cell`` is the private one that takes its place."""

    location: Register | Lane
    width: int
    cell: Linear


def cells(node: LoopNode, parts: list[CarriedPart], homes: CarriedValues) -> dict[Value, Linear]:
    """For each of ``parts`` that has one: the cell that holds the value at the header, if it does so at the first one.
    A register may pass its value on to another one."""
    found: dict[Value, Linear] = {}
    for _ in parts:
        held = homes.flow(node.items, found)
        more = {p.value: cell.substitute({node.counter: Linear.symbol(node.counter) - 1}) for p in parts
                if p.value not in found and (cell := held.find(p.following)) is not None}
        if not more:
            break
        found |= more
    return found


def restorable(node: LoopNode, carried: CarriedPart) -> tuple[Register | Lane, int]:
    """Where ``carried`` is, and its bytes. Raises Rejected(CARRIED_VALUE) when a version could not restore it."""
    base, low = base_and_offset(carried.value)
    assert isinstance(base, Carried)
    location = _location(base.location, low, carried.value.width)
    if isinstance(location, Register) and carried.value.width == 32 and not _is_zero(_half(node, base.location, 32)):
        location = None  # its upper half would have to be restored too
    if location is None:
        raise Rejected(Reason.CARRIED_VALUE, f"{base.location} in the loop at {node.address:#x}")
    return location, carried.value.width // 8


def restored_registers(node: LoopNode, parts: list[CarriedPart]) -> frozenset[str]:
    """The locations that are right as a whole at the rejoin, when ``parts`` are restored: the other bits are those of
    the entry, which no iteration changes, or zeros (``restorable``)."""
    restored = {(p.value, low + n) for p in parts for low in (base_and_offset(p.value)[1],)
                for n in range(0, p.value.width, 32)}
    found = {(b.location, low) for value, low in restored if isinstance(b := base_and_offset(value)[0], Carried)}
    return frozenset(c.location for c in node.carried if all(
        (c.location, low) in found or _half(node, c.location, low) == extract(_header(node, c.location), low, 32)
        or (c.location in GENERAL and (c.location, 0) in found) for low in (0, 32)))


def at_header(node: LoopNode, locations: Iterable[str]) -> Iterator[Value]:
    """What ``locations`` carry, as wide as ``restored_registers`` asks for."""
    for location in sorted(locations):
        whole, high = _header(node, location), _half(node, location, 32)
        narrow = _is_zero(high) if location in GENERAL else high == extract(whole, 32, 32)
        yield extract(whole, 0, 32) if narrow else whole


def _header(node: LoopNode, location: str) -> Value:
    return Carried(loop_name(node), location)


def _half(node: LoopNode, location: str, low: int) -> Value | None:
    """32 bits of what the location holds after an iteration."""
    return next((extract(c.following, low, 32) for c in node.carried
                 if c.location == location and c.following.width == 64), None)


def _is_zero(value: Value | None) -> bool:
    return value is not None and constant_of(value) == 0


def memory_backed(node: LoopNode, carried: CarriedPart, cell: Linear, aliasing: Aliasing) -> MemoryBacked | None:
    """``carried`` is in ``cell`` at every header; None where a guard could not look at the cell."""
    location, width = restorable(node, carried)
    first = {node.counter: Linear()}
    near = _nearest(cell.substitute(first), width, (
        (pointer.substitute(first), bits // 8) for pointer, bits in _touched(node.items, aliasing)), aliasing)
    if near is None:
        return None
    pointer, size = near
    same = pointer == cell.substitute(first) and size >= width
    return MemoryBacked(location, width, cell.substitute({node.counter: Linear.symbol(LIMIT)}),
                        None if same else pointer)


def _location(name: str, low: int, bits: int) -> Register | Lane | None:
    if bits not in (32, 64) or low % 8:
        return None
    if name in GENERAL:
        return Register(name) if low == 0 else None
    if name in LANES:
        register, _, number = name.partition(".")
        lane = Lane(register, 8 * int(number) + low // 8, bits // 8)
        return lane if 8 * (lane.offset + lane.width) <= _VECTOR_BITS else None
    return None


def _touched(items: Iterable[Item], aliasing: Aliasing) -> Iterator[tuple[Linear, int]]:
    """What every iteration touches of the program's memory: addresses, and how many bits."""
    for item in items:
        match item:
            case LoadEvent(_, pointer, width, _) | StoreEvent(pointer, _, width, _) if not is_private(pointer):
                yield pointer, width
            case LoopNode(counter, trips, inner) if trips is not None and proved(
                    sign(trips - 1, aliasing.ranges), aliasing.limits):
                yield from ((p.substitute({counter: Linear()}), w) for p, w in _touched(inner, aliasing))


def _nearest(cell: Linear, width: int, touched: Iterable[tuple[Linear, int]],
             aliasing: Aliasing) -> tuple[Linear, int] | None:
    """The access next to ``cell`` at the captured values, one that is as wide before others."""
    return min(touched, key=lambda t: (abs((t[0] - cell).evaluate(aliasing.sample)), t[1] < width), default=None)
