"""Replays a version of a snapshot in an emulator, a second processor: for code with nothing beyond SSE2.

In: the snapshot, a version made for SSE2 without XSAVE, iterations to run, and the pages that this machine's processor
has left behind the same iterations of the original. Out: whether all registers and pages are equal after the original
and after the version have run them, in words; and whether the emulator computes what the processor
does. Of two NaNs, Unicorn 2.1 keeps the larger one as the x87 does, where SSE keeps the first: so that is said, but not
taken for a fault of memopt's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from memopt.ir.code import CompiledRegion
from memopt.ir.region import Cell
from memopt.snapshots.form import Snapshot
from runtime.replay.emulation import Emulation, NotEmulated


def emulated(snapshot: Snapshot, compiled: CompiledRegion, iterations: int, seconds: float,
             native: Mapping[int, bytes]) -> tuple[bool, str]:
    """Run both for ``iterations`` and what a version leaves to the original; ``seconds`` at most for each."""
    name, region = f"{compiled.plan.summary}, in the emulator", compiled.region
    left = region.original_iterations * region.period
    try:
        original, version = Emulation(snapshot, seconds), Emulation(snapshot, seconds)
        original.original(iterations * region.period + left)
        version.version(compiled, iterations)
        version.original(left)
    except NotEmulated as error:
        return True, f"{name}: not run, {error}"
    difference = _difference(original, version, region.dead_registers, _dead_cells(original, region.dead_stack_cells))
    if difference:
        return False, f"{name}: different: {difference}"
    other = _first_word(original.memory(), native, set())
    return True, f"{name}: identical" + (f", but this processor gives something else: {other}" if other else "")


def _dead_cells(original: Emulation, cells: tuple[Cell, ...]) -> set[int]:
    registers = original.registers()
    return {registers[c.base] + c.displacement + n for c in cells for n in range(c.width)}


def _difference(original: Emulation, version: Emulation, dead: Collection[str], ignored: set[int]) -> str:
    """The first difference, "" if there is none."""
    ours, theirs = original.registers(), version.registers()
    names = [n for n in ours if ours[n] != theirs[n] and n not in dead]
    if names:
        return f"registers {', '.join(names)} differ"
    return _first_word(original.memory(), version.memory(), ignored)


def _first_word(ours: Mapping[int, bytes], theirs: Mapping[int, bytes], ignored: set[int]) -> str:
    for start, content in ours.items():
        if content == theirs[start]:
            continue
        first = next((n for n, (a, b) in enumerate(zip(content, theirs[start], strict=True))
                      if a != b and start + n not in ignored), None)
        if first is not None:
            word = first // 8 * 8
            return f"{start + word:#x}: {content[word:word + 8].hex()} / {theirs[start][word:word + 8].hex()}"
    return ""
