"""Writes a snapshot of a nest after its trial: registers, vector state, memory map, and the pages that it needs.

Example: ``memopt snapshot -o nest.snapshot -- ./prog`` keeps the hottest nest that would be replaced; ``memopt exec
--on-mismatch FILE`` the nest whose version gave other results in a trial.

In: the ``Trial``, whose shadow still stands at the header. Out: the file, and one line for the user. The pages are
those that lifting reads, those of the arrays, and those that the original and the versions access in copies of the
shadow (runtime.trial.touched_pages). Arguments and environment are blanked: they stand above the first frame. Nothing
fails but the snapshot: an error is a line for the user.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memopt import __version__
from memopt.cfg.inlining import COPY
from memopt.console import say
from memopt.ir.code import FRAME_CHUNK, FRAME_LIMIT, CompiledRegion
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.scop import TRIPS
from memopt.session.replacing.capture import lift_here
from memopt.session.replacing.history import History
from memopt.session.replacing.process import Process
from memopt.session.replacing.site import LoopCode, callees_in, code_of, find_site, site_from
from memopt.session.snapshotting.recording import Notes, NotingLinkage, NotingMemory, NotingShadow
from memopt.snapshots.file import write
from memopt.snapshots.form import PAGE, REGISTERS, TOP, MappedRange, Nest, Pages, Snapshot, SnapshotError
from runtime.patching.install import unpatched
from runtime.replay.vector_image import state_of
from runtime.target.memory import Mapping, mapping_at, mappings
from runtime.target.proc import stat_fields
from runtime.target.ptrace import TargetEnded
from runtime.trial.agreement import own_memory
from runtime.trial.shadow import Shadow, ShadowStopped, copies_of
from runtime.trial.timing import write_code
from runtime.trial.touched_pages import Interval, always_accessible, touched_pages, union, whole_pages, without
from runtime.trial.trial import Measurement, live_values

if TYPE_CHECKING:
    from memopt.options import Keeping
    from memopt.session.replacing.validation import Trial

ASKED = "asked for"
RUN_SECONDS = 10.0  # of processor time, for the original and for each version
RED_ZONE = 128  # bytes below rsp that a function may use (System V ABI, AMD64 supplement, 3.2.2)
_ARGUMENTS, _STAT_FIRST = 48, 3  # numbers of fields in /proc/PID/stat (proc_pid_stat(5)): arg_start, the first one


@dataclass
class Keeper:
    """Looks at the trials of one or several processes; writes at most one snapshot. ``wanted``: the last reason why
    there is none."""

    asked: Keeping
    written: bool = False
    wanted: str = "no hot nest was met that memopt would replace"

    def of(self, process: Process) -> Process:
        """``process``, whose trials are looked at."""
        return replace(process, after_trial=functools.partial(self.keep, process))

    def keep(self, process: Process, trial: Trial) -> None:
        """Write the snapshot after ``trial``, if it is the one that was asked for. Where the nest cannot be kept at
        this entry, but perhaps at another, raises Rejected(SHADOW_INCONCLUSIVE), and there is another trial."""
        why, path = self._why(trial), self.asked.path
        if self.written or why is None:
            return
        name = trial.code.site.function or f"{trial.code.loop.header:#x}"
        try:
            snapshot = taken(process, trial, self.asked.limit, why)
            size = write(path, snapshot)
        except (Rejected, ShadowStopped, TargetEnded, SnapshotError, OSError) as error:
            if self.wanted != (failed := f"{name}: {error}"):
                say(f"no snapshot of {failed}")
            self.wanted = failed
            if not self.asked.mismatch and isinstance(error, Rejected | ShadowStopped):
                raise Rejected(Reason.SHADOW_INCONCLUSIVE, "for a snapshot") from error
            return
        self.written = True
        what = "" if not self.asked.mismatch else ", whose new code gave other results in a trial"
        say(f"snapshot of {name}{what}: {path}, {-(-size >> 10)} KiB; it holds memory of the program (memopt replay)")

    def _why(self, trial: Trial) -> str | None:
        """The reason to keep the nest of ``trial``; None if there is none."""
        if self.asked.mismatch:
            return next((f"mismatch: {r.detail}" for r in trial.results
                         if isinstance(r, Rejected) and r.reason is Reason.SHADOW_MISMATCH), None)
        if not any(isinstance(r, Measurement) for r in trial.results) or not _meant(self.asked.nest, trial.code):
            return None
        return ASKED


@functools.cache
def keeper_of(asked: Keeping) -> Keeper:
    """The one keeper of this run, for all processes that it looks after."""
    return Keeper(asked)


def _meant(nest: str, code: LoopCode) -> bool:
    """Whether ``nest``, a function or an address at run or link time, names the nest of ``code``."""
    try:
        address = int(nest, 16) if nest.startswith("0x") else None
    except ValueError:
        address = None
    if address is None:
        return nest in ("", code.site.function)
    return any(low <= at < high for low, high in code.ranges for at in (address, address + code.site.bias))


def taken(process: Process, trial: Trial, limit: int, why: str) -> Snapshot:
    """The snapshot of the nest of ``trial``. Raises ``SnapshotError`` above ``limit`` bytes; ``Rejected`` where the
    nest cannot be lifted from it."""
    shadow, code, versions, notes = trial.shadow, trial.code, trial.versions, Notes()
    own = whole_pages(span for v in versions for span in own_memory(v.placement))
    maps = tuple(m for m in shadow.maps() if m.start < TOP and not m.path.startswith("/memfd:memopt"))
    noted = _noted_code(process, code, notes)
    with nullcontext() if why == ASKED else suppress(Rejected):  # a mismatch is kept in any case
        lift_here(process, noted, History(), NotingShadow(shadow, notes), False)
    values = live_values(versions[0].region, NotingShadow(shadow, notes))
    known = whole_pages((*notes.read, *_known(versions[0], values, shadow, code), *always_accessible(shadow)))
    _check(known, limit)
    touched = _touched(shadow, versions, code, [*known, *own])
    kernel = [(m.start, m.end) for m in maps if m.path.startswith("[v")]
    pages = [part for low, high in whole_pages((*known, *((p, p + PAGE) for p in touched)))
             for part in without((low, high), union((*own, *kernel)))]
    _check(pages, limit)
    blanked = _arguments(shadow, maps)
    nest = Nest(code.site.function, os.path.basename(code.site.path), code.loop.header, code.site.bias, code.site.text,
                code.site.extent, tuple(sorted(code.exits)), values[TRIPS])
    registers = shadow.registers().outside_call()
    return Snapshot(nest, {name: getattr(registers, name) for name in REGISTERS},
                    state_of(shadow.tracee.vector_state()), tuple(map(_range, maps)),
                    tuple(_contents(shadow, pages, maps, code, blanked)), notes.symbols,
                    tuple(str(v.plan) for v in versions), why,
                    ("arguments and environment: their bytes are zero",), __version__)


def _noted_code(process: Process, code: LoopCode, notes: Notes) -> LoopCode:
    """The nest once more, found from its header; what that reads is noted."""
    header = code.loop.header
    site = find_site(process.pid, header)
    mapping = mapping_at(mappings(process.pid), header)
    if mapping is None:
        raise Rejected(Reason.ENDED, f"{header:#x} is not mapped any more")
    with unpatched(process.pid) as text:
        site = site_from(mapping, site.bias, site.function, site.extent, header, notes.noting(text.read_some), set())
    loop = next((x for x in site.loops if x.header == header), None)
    if loop is None:
        raise Rejected(Reason.NOT_A_NEST, f"at {header:#x}, as seen from there")
    memory = NotingMemory(process.pid, notes)
    try:
        with callees_in(process.pid, site) as callees:
            noting = replace(callees, memory=memory, linkage=NotingLinkage(callees.linkage, notes))
            return code_of(site, loop, lambda: nullcontext(noting))
    finally:
        memory.close()


def _known(compiled: CompiledRegion, values: dict[str, int], shadow: Shadow, code: LoopCode) -> Iterator[Interval]:
    """The bytes that are known to be needed: arrays, code, the end of the stack."""
    region, stack = compiled.region, shadow.registers().rsp
    for footprint in region.footprints:
        yield footprint.interval.low.evaluate(values), footprint.interval.high.evaluate(values)
    for start, content in region.code:
        yield start, start + len(content)
    for start, block in code.site.graph.blocks.items():
        yield start % COPY, start % COPY + block.end - start
    yield stack - RED_ZONE, stack + 8


def _check(pages: Sequence[Interval], limit: int) -> None:
    size = sum(high - low for low, high in pages)
    if size > limit:
        mib = -(-size >> 20)
        raise SnapshotError(f"the nest touches {mib} MiB of memory, and the limit is {limit >> 20}; --limit {mib} "
                            "permits it")


def _touched(shadow: Shadow, versions: Sequence[CompiledRegion], code: LoopCode, spared: list[Interval]) -> set[int]:
    """The pages that the original accesses up to the end of this entry, and those of each version."""
    runs: list[Callable[[Shadow], object]] = [lambda copy: copy.run_out(code.exits, RUN_SECONDS)]
    runs += [functools.partial(_run_version, compiled) for compiled in versions]
    found: set[int] = set()
    for number, run in enumerate(runs):
        with copies_of(shadow, 1) as (copy,):
            if number:
                _prepare(copy, versions[number - 1])
            found |= touched_pages(copy, spared, [run])
    return found


def _prepare(copy: Shadow, compiled: CompiledRegion) -> None:
    write_code(copy, compiled)
    for word in (FRAME_LIMIT, FRAME_CHUNK):
        copy.write(compiled.placement.frame + word, ((1 << 63) - 1).to_bytes(8, "little"))
    copy.set_registers(replace(copy.registers(), rip=compiled.entry))


def _run_version(compiled: CompiledRegion, copy: Shadow) -> None:
    copy.run_to(compiled.placement.code, RUN_SECONDS)


def _range(mapping: Mapping) -> MappedRange:
    path = mapping.path.removesuffix(" (deleted)")
    name = os.path.basename(path) if path.startswith("/") else path
    return MappedRange(mapping.start, mapping.end, mapping.perms, mapping.shared, name)


def _arguments(shadow: Shadow, maps: Sequence[Mapping]) -> Interval:
    """Where arguments, environment and the program's path stand: from the first argument to the end of the stack."""
    _, fields = stat_fields(shadow.pid)
    start = int(fields[_ARGUMENTS - _STAT_FIRST]) if len(fields) > _ARGUMENTS - _STAT_FIRST else 0
    stack = mapping_at(maps, start)
    if stack is None:
        raise SnapshotError("the system does not tell where arguments and environment are, which must not be kept")
    return start, stack.end


def _contents(shadow: Shadow, pages: Sequence[Interval], maps: Sequence[Mapping], code: LoopCode,
              blanked: Interval) -> Iterator[Pages]:
    """The bytes of ``pages``, as far as they can be read; the code is the original one, ``blanked`` is zero."""
    for low, high in pages:
        for at in range(low, high, PAGE):
            if mapping_at(maps, at) is None:
                raise SnapshotError(f"the nest touches {at:#x}, which the program got only now")
        with suppress(Rejected):
            content = bytearray(shadow.read(low, high - low))
            for start, block in code.site.graph.blocks.items():
                _overlay(content, low, start % COPY, block.code)
            _overlay(content, low, blanked[0], bytes(blanked[1] - blanked[0]))
            yield Pages(low, bytes(content))


def _overlay(content: bytearray, low: int, start: int, data: bytes) -> None:
    """Put ``data``, which begins at address ``start``, into ``content``, which begins at ``low``, where they meet."""
    first, last = max(low, start), min(low + len(content), start + len(data))
    if first < last:
        content[first - low:last - low] = data[first - start:last - start]
