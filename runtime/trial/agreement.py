"""Agreement of two shadows: after the same iterations, by the original and by a version, all bytes must be equal.

Example: both have run 24 iterations of a matrix product, and a word of c differs: ``0x7f10: 0000f03f / 0000f0bf``.

In: two shadows of one instant, the version that one of them ran, its live-in values. Out: nothing, or
``Rejected(SHADOW_MISMATCH)`` with the first difference. Registers, vector state and private memory are compared; the
version's own pages, dead registers and stack cells that nobody reads again are not.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from memopt.ir.code import CompiledRegion, Placement
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Region
from memopt.ir.scop import FLOATS, ElementType
from runtime.target.memory import PAGE
from runtime.target.ptrace import Registers
from runtime.trial.shadow import Shadow, compare
from runtime.trial.timing import written

CLOSE = {ElementType.F64: 1e-10, ElementType.F32: 1e-3}  # error relative to the largest result under --fp fast


def general_registers(registers: Registers) -> dict[str, int]:
    """The sixteen general registers by name, as unsigned numbers."""
    names = ("rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", *(f"r{n}" for n in range(8, 16)))
    return {name: getattr(registers, name) for name in names}


def check_agreement(original: Shadow, version: Shadow, compiled: CompiledRegion, values: dict[str, int],
                    own: Sequence[tuple[int, int]], exact: bool) -> None:
    """Check that both shadows agree: ``version`` has run ``compiled``. ``own``: the pages of versions. ``exact``: else
    floating-point results may differ by as much as reassociation causes. Raises ``Rejected(SHADOW_MISMATCH)``."""
    rounded = [] if exact else written(_floating(compiled.region), values)
    ignored = [*own, *rounded, *_dead_cells(compiled.region, version)]
    _agree(original, version, compiled.region.dead_registers, ignored, exact)
    _check_close(original, version, _floating(compiled.region), rounded)


def own_memory(placement: Placement) -> tuple[tuple[int, int], ...]:
    """The memory of a version, which does not belong to the program."""
    return ((placement.code, placement.code + placement.code_size),
            (placement.frame, placement.frame + placement.frame_size),
            (placement.statistics, placement.statistics + PAGE),
            (placement.scratch, placement.scratch + placement.scratch_size))


def _dead_cells(region: Region, shadow: Shadow) -> list[tuple[int, int]]:
    """The bytes ``[start, end)`` of the stack cells that nobody reads again."""
    registers = general_registers(shadow.registers())
    starts = [(registers[c.base] + c.displacement, c.width) for c in region.dead_stack_cells]
    return [(start, start + width) for start, width in starts]


def _floating(region: Region) -> Region:
    """``region`` with its floating-point footprints only: these may differ by rounding, integers must be equal."""
    return replace(region, footprints=tuple(
        f for f in region.footprints if region.scop.array(f.array).element in FLOATS))


def _check_close(original: Shadow, version: Shadow, region: Region, results: list[tuple[int, int]]) -> None:
    """Check that the written arrays agree up to rounding, relative to their largest elements (``--fp fast``).

    Raises ``Rejected(SHADOW_MISMATCH)``.
    """
    if not results:
        return
    import numpy

    elements = [region.scop.array(f.array).element for f in region.footprints if f.written]
    for (low, high), element in zip(results, elements, strict=False):
        kind = numpy.float64 if element is ElementType.F64 else numpy.float32
        ours, theirs = (numpy.frombuffer(s.read(low, high - low), kind) for s in (original, version))
        with numpy.errstate(all="ignore"):
            finite = numpy.isfinite(ours) & numpy.isfinite(theirs)
            largest = float(numpy.abs(ours[finite]).max(initial=0.0))
            error = float(numpy.abs(ours[finite] - theirs[finite]).max(initial=0.0))
        if not numpy.array_equal(numpy.isfinite(ours), numpy.isfinite(theirs)) or error > CLOSE[element] * largest:
            raise Rejected(Reason.SHADOW_MISMATCH, f"results differ by {error:.3g}, the largest value is {largest:.3g}")


def _agree(original: Shadow, version: Shadow, dead: Collection[str], ignore: Sequence[tuple[int, int]],
           exact: bool) -> None:
    """Check that both shadows have equal registers and private memory, except ``dead`` registers and the intervals
    ``ignore``; ``exact``: equal vector state, too. Raises ``Rejected(SHADOW_MISMATCH)``."""
    ours, theirs = original.registers(), version.registers()
    names = [n for n in Registers.__dataclass_fields__ if getattr(ours, n) != getattr(theirs, n) and n not in dead]
    if names:
        raise Rejected(Reason.SHADOW_MISMATCH, f"registers {', '.join(names)} differ")
    if exact and original.vector_state() != version.vector_state():
        raise Rejected(Reason.SHADOW_MISMATCH, "vector registers differ")
    differences = compare(original, version, ignore)
    if differences:
        raise Rejected(Reason.SHADOW_MISMATCH, f"at least {len(differences)} words differ, first {differences[0]}")
