"""Guards on many cells: words of row tables, and numbers that may not be NaNs. Each cell is one that the nest reads.

Example: a matrix by way of row pointers, ``a[i][j]``, is affine if ``a[i] == first + step*i``. The guard compares the
words ``a[0] .. a[H-1]``, which the version relies on and the original loads, and not ``a[H]``: the table may end there.

In: the region, the layout of the frame, the label for a guard that fails. Out: code in emitters, made of the loops of
``passes.version.cell_scan``. It runs when all guards on the values of symbols hold: these make sure that the loops do
not overflow.

What is compared at entry stays so: the nest itself does not write to the words (arrays are disjoint from them), and its
original would read each word again. A NaN that a signal handler or another thread stores into an array while the nest
runs has the payload that either order of operands may give.
"""

from __future__ import annotations

from functools import partial

from memopt.ir.region import NanFree, Progression, Region, Relation
from memopt.ir.scop import INFINITY
from memopt.x86.frame import FrameLayout
from memopt.x86.instructions import Mem, sub_register
from passes.vector.emitter import Emitter
from passes.version.cell_scan import ADDRESS, COUNT, Cells, cells_of, scan, symbol_guards, tables_of, words_of
from passes.version.linear_code import checked


def guards_of_scans(region: Region) -> tuple[Relation, ...]:
    """Guards on symbols under which the loops of this module are right. Raises Rejected(NO_SCHEDULE) where none are."""
    return symbol_guards([*map(words_of, tables_of(region)), *(c for _, c in _numbers(region))])


def bytes_of_scans(region: Region, layout: FrameLayout) -> int:
    """The bytes of the frame that the code of this module needs from ``FrameLayout.locals`` on."""
    return max(check_tables(region, layout, "").local_bytes, check_numbers(region, layout, "").local_bytes)


def check_tables(region: Region, layout: FrameLayout, fail: str) -> Emitter:
    """Code that jumps to ``fail`` unless the words of each table hold their progression."""
    emitter = Emitter(layout.locals, "table")
    for table in tables_of(region):
        words = words_of(table)
        emitter.append(checked(words.base - table.place, layout, fail))
        emitter.op("test", "al", 7)
        emitter.jump(fail, "ne")
        scan(words, partial(_compare_words, table, fail), region, layout, emitter)
    return emitter


def _compare_words(table: Progression, fail: str, emitter: Emitter) -> None:
    again = emitter.fresh("word")
    emitter.load("rax", table.place)
    emitter.op("mov", "rdx", ADDRESS)
    emitter.op("sub", "rdx", "rax")
    emitter.scale("rdx", table.step // 8, "rax")
    emitter.load("rax", table.first)
    emitter.op("add", "rax", "rdx")
    emitter.place(again)
    emitter.op("cmp", "rax", Mem(ADDRESS))
    emitter.jump(fail, "ne")
    emitter.add("rax", table.step, "rdx")
    emitter.op("add", ADDRESS, 8)
    emitter.op("sub", COUNT, 1)
    emitter.jump(again, "ne")


def check_numbers(region: Region, layout: FrameLayout, fail: str) -> Emitter:
    """Code that jumps to ``fail`` if one of the elements that ``Region.nan_free`` names is a NaN."""
    emitter = Emitter(layout.locals, "number")
    for nan_free, cells in _numbers(region):
        scan(cells, partial(_look_for_nans, nan_free.size, fail), region, layout, emitter)
    return emitter


def _look_for_nans(size: int, fail: str, emitter: Emitter) -> None:
    """Shifted left by one, which drops the sign, a NaN is above infinity."""
    again = emitter.fresh("number")
    value, limit = sub_register("rax", size), sub_register("rdx", size)
    emitter.op("mov", limit, INFINITY[size] << 1)
    emitter.place(again)
    emitter.op("mov", value, Mem(ADDRESS, size=size))
    emitter.op("add", value, value)
    emitter.op("cmp", value, limit)
    emitter.jump(fail, "a")
    emitter.op("add", ADDRESS, size)
    emitter.op("sub", COUNT, 1)
    emitter.jump(again, "ne")


def _numbers(region: Region) -> list[tuple[NanFree, Cells]]:
    return [(n, cells_of(region, region.scop.array(n.where), written=False))
            for n in region.nan_free if isinstance(n.where, str)]
