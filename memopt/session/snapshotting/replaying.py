"""Replays a snapshot: lifts, plans and generates again, runs original and versions in the sandbox, compares all bytes.

Example::

    multiply (0x401150 in gemm): 63 iterations of 64
    tiled (i/8, j/24), 8x24 register tile, avx512: identical, 11.2 times as fast

In: a ``Snapshot`` of any origin, what the user asked for. Out: lines, and whether all versions agree with the original.
The comparison is that of trials (runtime.trial.agreement). Nothing of the snapshot is believed: it is code to run in
the sandbox, and numbers that lifting bounds and guards check.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from statistics import median

from memopt.ir.code import CompiledRegion
from memopt.ir.isa import Isa
from memopt.ir.plan import NestPlan
from memopt.ir.reasons import Reason, Rejected, VerifyError
from memopt.ir.region import Region, with_room
from memopt.ir.scop import TRIPS
from memopt.options import FloatingPoint, Options
from memopt.session.replacing.capture import lift_here
from memopt.session.replacing.compilation import generate_versions, schedule
from memopt.session.replacing.history import History
from memopt.session.replacing.others import returning
from memopt.session.replacing.process import Process
from memopt.session.replacing.reservation import CODE_BYTES, FRAME_BYTES
from memopt.session.replacing.site import LoopCode
from memopt.session.snapshotting.emulating import emulated
from memopt.session.snapshotting.nest_of import code_of, displaced_of
from memopt.snapshots.form import Snapshot, SnapshotError
from memopt.x86.displacement import Displacement
from passes.planning import Candidate, candidate_of
from passes.version.generate import undo_log_offset
from passes.version.kernel import nest_scratch_bytes
from passes.version.rollback import undo_log_bytes
from runtime.replay.sandbox import sandbox, with_room_for
from runtime.target.ptrace import TargetEnded
from runtime.trial.agreement import check_agreement, own_memory
from runtime.trial.shadow import Shadow, ShadowStopped, copies_of
from runtime.trial.timing import run_original, run_version, settle_pages, write_code
from runtime.trial.trial import admitted

MOST_SECONDS = 60.0  # for all runs, besides those that the user asked for
ROUNDS = 5  # of timing, original and version in turn
_SHARE = 10  # one round may take a part of the time for all
_SLOWER = 200  # and the emulator, which is slow, runs what takes a smaller part of it here

LEAST_SECONDS = 2e-6  # below, the ratio says nothing

Ran = tuple[bool, str]
_Times = tuple[float, float, float]  # seconds for stopping, of the original, of the version


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user asked for. ``seconds``: of processor time for running the nest, about."""

    isa: Isa | None = None
    plan: NestPlan | None = None
    fp: FloatingPoint = "exact"
    seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class _Replay:
    """A snapshot in its sandbox, lifted."""

    snapshot: Snapshot
    asked: Asked
    shadow: Shadow
    process: Process
    code: LoopCode
    region: Region
    values: dict[str, int]
    displaced: Displacement


def replay(snapshot: Snapshot, asked: Asked) -> Iterator[Ran]:
    """A line for the nest, and one for each version; with each whether all agreed so far as it says.

    Raises ``SnapshotError`` where nothing can be run, in words for the user."""
    until = time.monotonic() + MOST_SECONDS + ROUNDS * asked.seconds
    try:
        with sandbox(snapshot) as shadow:
            shadow.given_up = lambda: time.monotonic() > until
            made = _lifted(snapshot, asked, shadow)
            candidates = _candidates(made)
            scratch = undo_log_bytes(made.region) + undo_log_offset(
                max(4096, *(nest_scratch_bytes(parts, plan) for parts, plan in candidates)))
            sizes = CODE_BYTES, FRAME_BYTES, scratch
            placement = with_room_for(shadow, made.region.header, snapshot.nest.file, sizes)
            versions = generate_versions(made.process, made.region, candidates, placement, made.displaced.code)
            iterations, few = _iterations(made, versions[0])
            yield True, (f"{snapshot.nest.function or 'the nest'} ({snapshot.nest.header:#x} in {snapshot.nest.file}): "
                         f"{iterations:,} of {made.values[TRIPS]:,} iterations")
            for version in versions:
                yield _compared(made, version, iterations)
            if all(plan.isa is Isa.SSE2 for _, plan in candidates):
                machine = replace(made.process.machine(), xcr0=0)
                process = replace(made.process, machine=lambda: machine)
                native = _pages_after(made, versions[0], few)
                for version in generate_versions(process, made.region, candidates, placement, made.displaced.code):
                    yield emulated(snapshot, version, few, asked.seconds, native)
    except Rejected as rejected:
        raise SnapshotError(f"the nest cannot be replayed: {rejected}") from rejected
    except ShadowStopped as stopped:
        raise SnapshotError(f"the original cannot be run from it: {stopped}") from stopped
    except (VerifyError, TargetEnded) as error:
        raise SnapshotError(f"it cannot be run: {error}") from error


def _lifted(snapshot: Snapshot, asked: Asked, shadow: Shadow) -> _Replay:
    options = Options(fp=asked.fp, isa=asked.isa if asked.plan is None else asked.plan.isa)
    process = Process(shadow.pid, options, nullcontext, time.monotonic())
    code = code_of(snapshot, shadow)
    lifted = lift_here(process, code, History(), shadow, False)
    values = admitted(lifted.region, shadow)
    if values is None:
        raise Rejected(Reason.GUARD_FAILED, "at the state that it was lifted from")
    displaced = displaced_of(snapshot, code)
    region = returning(lifted.region, code.site, values, shadow.origin)
    region = replace(with_room(region, lifted.entry, values[TRIPS]), displaced=displaced.original)
    return _Replay(snapshot, asked, shadow, process, code, region, values, displaced)


def _candidates(made: _Replay) -> tuple[Candidate, ...]:
    if made.asked.plan is not None:
        return (candidate_of(made.region, made.asked.plan),)
    return schedule(made.process, made.region, made.values[TRIPS], made.code.vector_bytes, made.values)


def _iterations(made: _Replay, version: CompiledRegion) -> tuple[int, int]:
    """How many iterations are run, here and in the emulator: as many as a version may, or as there is time for. Raises
    Rejected(TOO_SHORT)."""
    most = made.values[TRIPS] - 1 - made.region.original_iterations
    if most < 1:
        raise Rejected(Reason.TOO_SHORT, f"{made.values[TRIPS]} iterations")
    with copies_of(made.shadow, 1) as (copy,):
        copy.given_up = made.shadow.given_up
        write_code(copy, version)
        seconds = max(run_original(copy, version, 1, made.asked.seconds), 1e-7)
    whole, emulated_part = (max(1, min(most, int(made.asked.seconds / part / seconds))) for part in (_SHARE, _SLOWER))
    return whole, emulated_part


def _compared(made: _Replay, version: CompiledRegion, iterations: int) -> Ran:
    """Run original and version from the header, and compare their states; then time them."""
    name, limit = version.plan.summary, made.asked.seconds
    left = made.region.original_iterations * made.region.period
    try:
        with copies_of(made.shadow, 2) as (original, other):
            for copy in (original, other):
                copy.given_up = made.shadow.given_up
                write_code(copy, version)
                settle_pages(copy, version, made.values, iterations)
            times = [_times(original, other, version, iterations, limit)]
            for copy in (original, other):
                copy.run_to(made.region.header, limit, hits=left)
            check_agreement(original, other, version, made.values, own_memory(version.placement),
                            made.asked.fp == "exact")
            times += _again(made, version, original, other, iterations)
    except ShadowStopped as stopped:
        return False, f"{name}: cannot be run: {stopped}"
    except Rejected as rejected:
        why = rejected.detail if rejected.reason is Reason.SHADOW_MISMATCH else str(rejected)
        return False, f"{name}: {'different' if rejected.reason is Reason.SHADOW_MISMATCH else 'not run'}: {why}"
    overhead, before, after = map(median, zip(*times[len(times) > 1:], strict=True))
    if min(before, after) - overhead < LEAST_SECONDS:
        return True, f"{name}: identical, too short to be timed"
    return True, f"{name}: identical, {(before - overhead) / (after - overhead):.2f} times as fast"


def _times(original: Shadow, other: Shadow, version: CompiledRegion, iterations: int, limit: float) -> _Times:
    return (run_original(original, version, 0, limit), run_original(original, version, iterations, limit),
            run_version(other, version, iterations))


def _pages_after(made: _Replay, version: CompiledRegion, iterations: int) -> dict[int, bytes]:
    """The pages behind ``iterations`` of the original, and those that a version leaves to it."""
    with copies_of(made.shadow, 1) as (copy,):
        copy.given_up = made.shadow.given_up
        write_code(copy, version)
        run_original(copy, version, iterations, made.asked.seconds)
        copy.run_to(made.region.header, made.asked.seconds,
                    hits=made.region.original_iterations * made.region.period)
        return {p.start: copy.read(p.start, len(p.content)) for p in made.snapshot.pages}


def _again(made: _Replay, version: CompiledRegion, original: Shadow, other: Shadow,
           iterations: int) -> Iterator[_Times]:
    """Times of original and version in turn, a few times, now that pages and caches are warm: each begins again at
    the header, with the same registers, on what the run before has left. None where that is another entry."""
    registers, limit = made.shadow.registers(), made.asked.seconds
    with suppress(ShadowStopped, Rejected):
        for _ in range(ROUNDS):
            for copy in (original, other):
                copy.set_registers(registers)
                if admitted(made.region, copy) != made.values:
                    return
            yield _times(original, other, version, iterations, limit)
