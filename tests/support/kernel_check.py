"""One kernel against its scalar reference: every byte of every array, and the exception flags."""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping, Sequence

from memopt.ir.code import Placement
from memopt.ir.plan import Plan
from memopt.ir.region import Region
from memopt.ir.scop import ElementType, bytes_of
from memopt.x86.frame import FrameLayout
from passes.version.kernel import kernel
from tests.support.inprocess import MXCSR_DEFAULT, Buffer, NativeKernel, Reference
from tests.support.products import array_bytes

_SPECIALS = {
    ElementType.F64: (0, 1 << 63, 1, 0x000F_FFFF_FFFF_FFFF, 0x8000_0000_0000_0003, 0x7FF0_0000_0000_0000,
                      0xFFF0_0000_0000_0000, 0x7FF8_0000_0000_0011, 0xFFF8_0000_0000_0022, 0x7FF0_0000_0000_0033,
                      0x7FEF_FFFF_FFFF_FFFF, 0x0010_0000_0000_0000),
    ElementType.F32: (0, 1 << 31, 1, 0x007F_FFFF, 0x8000_0003, 0x7F80_0000, 0xFF80_0000, 0x7FC0_0011, 0xFFC0_0022,
                      0x7F80_0033, 0x7F7F_FFFF, 0x0080_0000),
}


def fill(view: memoryview, element: ElementType, seed: int, specials: float, whole: bool) -> None:
    """Random values; a share ``specials`` of them NaNs with payloads, infinities, denormals, zeros and the like.

    ``whole``: small integers, whose sums and products are exact and raise no flag."""
    source = random.Random(seed)
    count = len(view) // element.size
    code = "d" if element is ElementType.F64 else "f"
    values = [float(source.randrange(-8, 9)) if whole else source.uniform(-2, 2) for _ in range(count)]
    view[:count * element.size] = struct.pack(f"<{count}{code}", *values)
    for _ in range(int(count * specials)):
        at = source.randrange(count) * element.size
        view[at:at + element.size] = source.choice(_SPECIALS[element]).to_bytes(element.size, "little")


def check(region: Region, plan: Plan, sizes: dict[str, int], iterations: int, *, seed: int = 1,
          specials: float = 0.0, poison: bool = False, scalars: Sequence[int] = (), mxcsr: int = MXCSR_DEFAULT,
          symbols: Mapping[str, int] | None = None) -> None:
    """Runs H = ``iterations`` of ``region`` both ways; AssertionError at the first difference.

    ``poison``: elements outside the H iterations, and scratch memory, are signalling NaNs, the others small integers,
    so that any computation on the former shows in the flags. Arrays start (odd seeds) or end (even seeds) at an
    inaccessible page. ``symbols``: values of the symbols in strides and trip counts."""
    layout = FrameLayout.build((*(a.name for a in region.scop.arrays), *(symbols or {})), 8192)
    frame = Buffer(layout.size)
    placement = Placement(0, 0, frame.address, layout.size, 0, 0, 0)
    needed = kernel(region, plan, layout, placement).scratch_needed
    scratch = Buffer(needed)
    element = region.scop.arrays[0].element
    if poison:
        scratch.view[:] = _signalling(element, len(scratch.view))
    made = kernel(region, plan, layout, Placement(0, 0, frame.address, layout.size, 0, scratch.address, needed))
    assert made.local_bytes <= layout.local_bytes
    ours, theirs = ({a.name: Buffer(array_bytes(region, a.name, sizes), at_end=seed % 2 == 0)
                     for a in region.scop.arrays} for _ in range(2))
    for number, name in enumerate(ours):
        fill(ours[name].view, element, seed * 7 + number, specials, whole=seed % 3 == 0)
        theirs[name].view[:] = ours[name].view
        if poison:
            _poison_unread(ours[name].view, region, name, sizes, iterations)
            theirs[name].view[:] = ours[name].view
    values = {name: buffer.address for name, buffer in ours.items()} | {"H": iterations, "R": iterations + 1}
    values |= symbols or {}
    for name, value in values.items():
        offset = layout.symbols[name]
        frame.view[offset:offset + 8] = value.to_bytes(8, "little")
    flags = NativeKernel(made.items, plan.isa).run(frame.address, scalars, mxcsr)
    expected = reference(region, {n: b.address for n, b in theirs.items()}, iterations, scalars, mxcsr,
                         symbols or {})
    what = f"{region.scop.statements[0]}\n{plan}\nH={iterations} sizes={sizes} seed={seed}"
    for name in ours:
        if ours[name].view != theirs[name].view:
            difference = _first_difference(ours[name].view, theirs[name].view, element.size)
            raise AssertionError(f"{name} differs: {difference}\n{what}")
    assert flags == expected, f"MXCSR {flags:#x}, reference {expected:#x}\n{what}"


def reference(region: Region, addresses: dict[str, int], iterations: int, scalars: Sequence[int],
              mxcsr: int, symbols: Mapping[str, int]) -> int:
    """The statement run by scalar code; its MXCSR at the end."""
    (statement,) = region.scop.statements
    names = [d.name for d in statement.dimensions]
    bases, strides = [], []
    for access in (statement.write, *statement.reads):
        array = region.scop.array(access.array)
        steps = [bytes_of(s).evaluate(symbols) for s in array.strides]
        pairs = list(zip(steps, access.subscripts, strict=True))
        bases.append(addresses[array.name] + array.base.constant + sum(s * u.constant for s, u in pairs))
        strides.append([sum(s * u.coefficient(d) for s, u in pairs) for d in names])
    trips = [iterations, *(d.trips.evaluate(symbols) for d in statement.dimensions[1:])]
    return Reference(statement, region.scop.arrays[0].element).run(trips, bases, strides, scalars, mxcsr)


def _poison_unread(view: memoryview, region: Region, name: str, sizes: dict[str, int], iterations: int) -> None:
    (statement,) = region.scop.statements
    array, outermost = region.scop.array(name), statement.dimensions[0].name
    access = next(a for a in (statement.write, *statement.reads) if a.array == name)
    counts = sizes | {outermost: iterations}
    names = [next(iter(u.symbols)) for u in access.subscripts]
    size = array.element.size
    view[:] = _signalling(array.element, len(view))
    for first in range(counts[names[0]]):
        for second in range(counts[names[1]]):
            point = {names[0]: first, names[1]: second}
            at = sum(s * u.evaluate(point) for s, u in zip(array.seen_strides, access.subscripts, strict=True))
            value = float((first * 5 + second * 3) % 7 + 1)
            view[at:at + size] = struct.pack("<d" if size == 8 else "<f", value)


def _signalling(element: ElementType, size: int) -> bytes:
    """``size`` bytes of signalling NaNs."""
    return _SPECIALS[element][9].to_bytes(element.size, "little") * (size // element.size)


def _first_difference(ours: memoryview, theirs: memoryview, size: int) -> str:
    for at in range(0, len(ours), size):
        if ours[at:at + size] != theirs[at:at + size]:
            values = [int.from_bytes(bytes(v[at:at + size]), "little") for v in (ours, theirs)]
            return f"byte {at}: {values[0]:#x}, reference {values[1]:#x}"
    return "nowhere"
