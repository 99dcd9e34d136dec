"""The frame layout: nothing overlaps, and growing the locals moves nothing."""

from __future__ import annotations

import pytest

from memopt.ir.code import FRAME_BUSY, FRAME_CHUNK, FRAME_HOLDER, FRAME_LIMIT
from memopt.x86.frame import FrameLayout
from memopt.x86.instructions import GENERAL


@pytest.mark.parametrize("symbols", [(), ("a",), tuple(f"s{i}" for i in range(37)), ("R", "n", "H")])
@pytest.mark.parametrize("local_bytes", [0, 1, 64, 5000])
def test_parts_do_not_overlap(symbols: tuple[str, ...], local_bytes: int) -> None:
    layout = FrameLayout.build(symbols, local_bytes, 2696)
    words = (layout.busy, layout.limit, layout.chunk, layout.holder, layout.cap, layout.again,
             *map(layout.register, GENERAL), layout.flags, layout.mxcsr, layout.temporary, *layout.symbols.values())
    parts = [*((word, 8) for word in words), (layout.xsave, 2696), (layout.locals, local_bytes)]
    covered = [byte for start, size in parts for byte in range(start, start + size)]
    assert len(covered) == len(set(covered))
    assert max(covered) < layout.size
    assert (layout.busy, layout.limit) == (FRAME_BUSY, FRAME_LIMIT)
    assert (layout.chunk, layout.holder) == (FRAME_CHUNK, FRAME_HOLDER)
    assert layout.xsave % 64 == layout.locals % 64 == layout.size % 64 == 0
    assert set(layout.symbols) == {*symbols, "R", "H"}


def test_local_bytes_move_nothing() -> None:
    small, large = (FrameLayout.build(("a", "b"), size) for size in (0, 4096))
    assert (small.symbols, small.xsave, small.locals) == (large.symbols, large.xsave, large.locals)
    assert large.size == small.size + 4096
