"""Values that the outermost loop carries in registers, and the cells that hold them for the version.

Example: ``for (i = 1; i < n; i++) a[i] = a[i - 1] * b[i];``. The compiler keeps ``a[i - 1]`` in a register, which it
has just stored (store-to-load forwarding across iterations). At the header, the cell ``a[i - 1]`` holds the same value.

Proof by induction: at the end of each iteration the cell holds what the register holds (``invariant_cells``).
The base case, at the entry of a version, is left to the guard, which compares register and cell; the rejoin loads the
register from the cell (memopt.ir.region.MemoryBacked). A value without such a cell gets a private cell, which starts
with what the register holds at entry (memopt.ir.region.RegisterCarried).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Lane, MemoryBacked, Register
from memopt.ir.scop import LIMIT
from memopt.lifting.demotion.aliasing import Aliasing
from memopt.lifting.demotion.home_cells import CarriedPart, HomeFinder
from memopt.lifting.demotion.scalar_expansion import is_private
from memopt.lifting.execution.assumptions import GENERAL, LANES
from memopt.lifting.values.bits import base_and_offset, extract
from memopt.lifting.values.bounds import proved, sign
from memopt.lifting.values.loop_tree import Item, LoadEvent, LoopNode, StoreEvent, loop_name
from memopt.lifting.values.values import Carried, Value, constant_of

_VECTOR_BITS = 128  # of a vector register: lanes in these bits can be loaded alone


@dataclass(frozen=True, slots=True)
class PrivateBacked:
    """A carried value (``width`` bytes of ``location``) in no cell of the program; the private ``cell`` replaces it."""

    location: Register | Lane
    width: int
    cell: Linear


def invariant_cells(node: LoopNode, parts: list[CarriedPart], homes: HomeFinder) -> dict[Value, Linear]:
    """Cells that hold the values of ``parts`` at every header, assuming that they do at the first one (induction step).

    The search is repeated, because a register may hand its value on to another one, whose cell then follows from the
    first.
    """
    found: dict[Value, Linear] = {}
    for _ in parts:
        available = homes.flow(node.items, found)
        more = {p.value: cell.substitute({node.counter: Linear.symbol(node.counter) - 1}) for p in parts
                if p.value not in found and (cell := available.find(p.following)) is not None}
        if not more:
            break
        found |= more
    return found


def restored_location(node: LoopNode, carried: CarriedPart) -> tuple[Register | Lane, int]:
    """The register or lane that holds ``carried``, and its bytes.

    Raises Rejected(CARRIED_VALUE) if a version could not restore it: flags, odd widths, or the low half of a general
    register whose upper half is not zero.
    """
    base, low = base_and_offset(carried.value)
    assert isinstance(base, Carried)
    location = _location(base.location, low, carried.value.width)
    if isinstance(location, Register) and carried.value.width == 32 and not _is_zero(_half(node, base.location, 32)):
        location = None  # its upper half would have to be restored too
    if location is None:
        raise Rejected(Reason.CARRIED_VALUE,
                       f"{carried.value.width} bits of {base.location} in the loop at {node.address:#x}")
    return location, carried.value.width // 8


def restored_registers(node: LoopNode, parts: list[CarriedPart]) -> frozenset[str]:
    """The locations of which each 32-bit half is restored with ``parts``, unchanged by the loop, or zero.

    These are right as a whole at the rejoin.
    """
    restored = {(p.value, low + n) for p in parts for low in (base_and_offset(p.value)[1],)
                for n in range(0, p.value.width, 32)}
    found = {(b.location, low) for value, low in restored if isinstance(b := base_and_offset(value)[0], Carried)}
    return frozenset(c.location for c in node.carried if all(
        (c.location, low) in found or _half(node, c.location, low) == extract(_header(node, c.location), low, 32)
        or (c.location in GENERAL and (c.location, 0) in found) for low in (0, 32)))


def header_values(node: LoopNode, locations: Iterable[str]) -> Iterator[Value]:
    """The header values of ``locations``: 32 bits if ``restored_registers`` needs no more, else 64."""
    for location in sorted(locations):
        whole, high = _header(node, location), _half(node, location, 32)
        narrow = _is_zero(high) if location in GENERAL else high == extract(whole, 32, 32)
        yield extract(whole, 0, 32) if narrow else whole


def _header(node: LoopNode, location: str) -> Value:
    return Carried(loop_name(node), location)


def _half(node: LoopNode, location: str, low: int) -> Value | None:
    """The 32 bits from bit ``low`` on of what the location holds at the end of an iteration."""
    return next((extract(c.following, low, 32) for c in node.carried
                 if c.location == location and c.following.width == 64), None)


def _is_zero(value: Value | None) -> bool:
    return value is not None and constant_of(value) == 0


def memory_backed(node: LoopNode, carried: CarriedPart, cell: Linear, aliasing: Aliasing) -> MemoryBacked | None:
    """The ``MemoryBacked`` for ``carried``, which ``cell`` holds at every header, with an access that lets a guard read
    the cell safely.

    The guard reads the cell if the original accesses it in any case, or else an address in the same page. None if no
    iteration certainly accesses memory.
    """
    location, width = restored_location(node, carried)
    first = {node.counter: Linear()}
    near = _nearest_access(cell.substitute(first), width, (
        (pointer.substitute(first), bits // 8) for pointer, bits in _always_accessed(node.items, aliasing)), aliasing)
    if near is None:
        return None
    pointer, size = near
    same = pointer == cell.substitute(first) and size >= width
    return MemoryBacked(location, width, cell.substitute({node.counter: Linear.symbol(LIMIT)}),
                        None if same else pointer)


def _location(name: str, low: int, bits: int) -> Register | Lane | None:
    """The register or lane for ``bits`` bits from bit ``low`` of a location; None if it cannot be loaded by itself."""
    """The register or lane for ``bits`` bits from bit ``low`` of a location; None if it cannot be loaded by itself."""
    if bits not in (32, 64) or low % 8:
        return None
    if name in GENERAL:
        return Register(name) if low == 0 else None
    if name in LANES:
        register, _, number = name.partition(".")
        lane = Lane(register, 8 * int(number) + low // 8, bits // 8)
        return lane if 8 * (lane.offset + lane.width) <= _VECTOR_BITS else None
    return None


def _always_accessed(items: Iterable[Item], aliasing: Aliasing) -> Iterator[tuple[Linear, int]]:
    """The program's memory that every iteration accesses for certain: addresses and widths in bits."""
    for item in items:
        match item:
            case LoadEvent(_, pointer, width, _, None) | StoreEvent(pointer, _, width, _) if not (
                    is_private(pointer) or (isinstance(item, StoreEvent) and item.conditional)):
                yield pointer, width
            case LoopNode(counter, trips, inner) if trips is not None and proved(
                    sign(trips - 1, aliasing.ranges), aliasing.limits):
                yield from ((p.substitute({counter: Linear()}), w) for p, w in _always_accessed(inner, aliasing))


def _nearest_access(cell: Linear, width: int, touched: Iterable[tuple[Linear, int]],
             aliasing: Aliasing) -> tuple[Linear, int] | None:
    """The access nearest to ``cell`` at the captured values; at equal distance, one that is wide enough comes first."""
    return min(touched, key=lambda t: (abs((t[0] - cell).evaluate(aliasing.sample)), t[1] < width), default=None)
