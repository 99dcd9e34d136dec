"""Loop plans run in this process and compared with the statements run one by one: all bytes and exception flags."""

from __future__ import annotations

import mmap
import random
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from memopt.ir.code import Placement
from memopt.ir.plan import LoopPlan, NestPlan
from memopt.ir.region import Region
from memopt.ir.scop import ElementType, Scop
from memopt.x86.frame import FrameLayout
from passes.version.kernel import nest_kernel, nest_scratch_bytes
from tests.support import scalar_nest
from tests.support.inprocess import MXCSR_DEFAULT, Buffer, NativeKernel
from tests.support.lanes import adversarial


def check(region: Region, plan: LoopPlan | NestPlan, symbols: Mapping[str, int], *, seed: int = 1,
          specials: bool = False, poison: bool = False, scalars: Sequence[int] = (),
          mxcsr: int = MXCSR_DEFAULT, guarded: bool = False,
          held: Mapping[str, bytes] = MappingProxyType({})) -> int:
    """Runs the plan and the region's statements on equal memory; AssertionError at the first difference. Values that
    the region passes on start with what ``symbols`` says, and must end as they do in the reference.

    ``symbols``: live-ins that are no arrays' bases, and H. Arrays are exactly as large as what is accessed of them;
    they end (even seeds) or start (odd seeds) at an inaccessible page. ``specials``: NaNs, infinities and the like;
    ``poison``: what no instance reads is signalling NaNs, what one reads small numbers whose sums are exact.
    ``held``: the contents of arrays that are not drawn, from the first byte that is accessed on. ``guarded``: pages
    that the reference does not touch are inaccessible, those that it does not write read-only; returns their number."""
    nest = plan if isinstance(plan, NestPlan) else NestPlan((plan,))
    scop = region.scop
    values = {"R": symbols["H"] + 1, **symbols}
    ours, theirs = {}, {}
    low: dict[str, int] = {}
    for number, array in enumerate(scop.arrays):
        first, end, read = _extent(scop, array.name, values)
        if array.private:
            theirs[array.name] = Buffer(max(end - first, 1))
            values[array.name] = theirs[array.name].address - first
            for passed in region.register_carried:
                if passed.array == array.name:
                    contents = (values[passed.symbol] % (1 << 64)).to_bytes(8, "little")[:passed.width]
                    theirs[array.name].view[:passed.width] = contents
            continue
        ours[array.name], theirs[array.name] = (Buffer(max(end - first, 1), at_end=seed % 2 == 0) for _ in range(2))
        contents = held.get(array.name) or _contents(
            array.element, end - first, read - first if poison else None, specials, seed * 131 + number)
        ours[array.name].view[:len(contents)] = theirs[array.name].view[:len(contents)] = contents
        low[array.name] = first
    layout = FrameLayout.build(tuple(x.symbol for x in region.live_ins), 16384)
    frame = Buffer(layout.size)
    needed = nest_scratch_bytes((region,) * len(nest.parts), nest)
    scratch = Buffer(max(needed, 1))
    placement = Placement(0, 0, frame.address, layout.size, 0, scratch.address, needed)
    made = nest_kernel((region,) * len(nest.parts), nest, layout, placement)
    assert made.local_bytes <= layout.local_bytes
    bases = {a.name: next(iter(a.base.symbols)) for a in scop.arrays if not a.private}
    here = values | {bases[n]: b.address - low[n] for n, b in ours.items()}
    there = values | {bases[n]: b.address - low[n] for n, b in theirs.items() if n in bases}
    for name, offset in layout.symbols.items():
        frame.view[offset:offset + 8] = (here[name] % (1 << 64)).to_bytes(8, "little")
    kernel = NativeKernel(made.items, nest.isa)
    expected, read, written = scalar_nest.run(scop, there, scalars, mxcsr)
    passed_over = 0
    if guarded:
        passed_over = sum(ours[n].protect(_pages(theirs[n], read), _pages(theirs[n], written)) for n in ours)
    flags = kernel.run(frame.address, scalars, mxcsr)
    for buffer in ours.values():
        buffer.unprotect()
    what = f"{scop}\n{plan}\n{dict(symbols)} seed={seed}"
    for array in scop.arrays:
        if not array.private and ours[array.name].view != theirs[array.name].view:
            raise AssertionError(f"{array.name} differs: {_difference(ours, theirs, array.name, low)}\n{what}")
    for passed in region.register_carried:
        at = layout.symbols[passed.symbol]
        assert bytes(frame.view[at:at + passed.width]) == bytes(theirs[passed.array].view[:passed.width]), what
    assert flags == expected, f"MXCSR {flags:#x}, reference {expected:#x}\n{what}"
    return passed_over


def _pages(buffer: Buffer, addresses: np.ndarray) -> set[int]:
    """The pages of ``buffer`` in which an element begins or ends that ``addresses`` name, counted from its first."""
    inside = addresses[(addresses >= buffer.address) & (addresses < buffer.address + len(buffer.view))]
    first = buffer.address // mmap.PAGESIZE
    return {int(n) - first for n in np.unique(inside // mmap.PAGESIZE)}


_WORDS = {8: np.uint64, 4: np.uint32, 2: np.uint16, 1: np.uint8}


def _contents(element: ElementType, size: int, read: np.ndarray | None, specials: bool, seed: int) -> bytes:
    """``read``: offsets of the elements that instances read, where the others are to be signalling NaNs."""
    rng, word = np.random.default_rng(seed), _WORDS[element.size]
    count = size // element.size
    if read is not None:
        signalling = {8: 0x7FF0000000000033, 4: 0x7F800033}.get(element.size, 0) if element.is_float else 0
        one, step = {8: (0x3FF0000000000000, 52), 4: (0x3F800000, 23)}.get(element.size, (0, 0))
        found = np.full(count, signalling, dtype=word)
        small = rng.integers(0, 4, len(read)) * (1 << step) + one if element.is_float else rng.integers(0, 8, len(read))
        found[read // element.size] = small.astype(word)
        return found.tobytes()
    if specials:
        table = np.array([adversarial(random.Random(seed + n), element) for n in range(256)], dtype=word)
        return rng.choice(table, count).tobytes()
    if not element.is_float:
        return rng.bytes(count * element.size)
    return rng.uniform(-2, 2, count).astype(np.float64 if element.size == 8 else np.float32).tobytes()


def _extent(scop: Scop, name: str, values: Mapping[str, int]) -> tuple[int, int, np.ndarray]:
    """First and last byte that is accessed, from the array's base on, and where reads start."""
    array = scop.array(name)
    touched, read = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    zero = values | dict.fromkeys(array.base.symbols, 0) | {name: 0}
    for statement in scop.statements:
        points = scalar_nest.instances(statement, values)
        for access in (statement.write, *statement.reads):
            if access.array == name and len(points):
                (read if access is not statement.write else touched).append(
                    scalar_nest.addresses(scop, statement, access, points, zero))
    every = np.concatenate((*touched, *read))
    if not len(every):
        return 0, 0, every
    return int(every.min()), int(every.max()) + array.element.size, np.concatenate(read)


def _difference(ours: dict[str, Buffer], theirs: dict[str, Buffer], name: str, low: dict[str, int]) -> str:
    one, other = bytes(ours[name].view), bytes(theirs[name].view)
    at = next(n for n in range(len(one)) if one[n] != other[n]) // 8 * 8
    values = [int.from_bytes(b[at:at + 8], "little") for b in (one, other)]
    return f"near byte {at + low[name]}: {values[0]:#x}, reference {values[1]:#x}"
