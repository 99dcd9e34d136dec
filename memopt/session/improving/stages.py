"""The stages that one loop goes through: find, capture, lift, schedule, generate, validate, install.

Invariant: a stage that fails leaves nothing in the program, and nothing is installed that was not proved, guarded and
(unless the user forbids it) tried in forked copies.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from memopt.console import say
from memopt.ir.reasons import Reason, Rejected
from memopt.options import Options
from memopt.session.improving.decision import Decision
from memopt.session.improving.kept_shadow import KeptShadow
from memopt.session.improving.service import Service
from memopt.session.improving.versions import Attached, followed_by, line
from runtime import faults
from runtime.patching import perf_map
from runtime.target.proc import running_seconds

if TYPE_CHECKING:
    from memopt.ir.code import CompiledRegion, Placement
    from memopt.ir.graph import Loop
    from memopt.ir.operations import Block
    from memopt.ir.plan import NestPlan
    from memopt.ir.region import Footprint, Region, Sample
    from memopt.lifting.lift import Lifted
    from memopt.machine.description import Machine
    from memopt.session.improving.site import Site
    from memopt.x86.displacement import Displacement
    from passes.planning import Candidate
    from runtime.patching.code_cache import CodeCache
    from runtime.trial.shadow import Shadow
    from runtime.trial.trial import Measurement

CANDIDATES = 2  # plans that are raced; each costs a tenth of a second
CLEARLY = 1.1  # by how much a candidate beats the one before it: copies fault in their pages, and trials are short
PATIENCE = 5.0  # processor seconds to understand one loop, and to plan it
ASK_SECONDS = 0.005  # from one look at how much was used to the next
FEW_TRIPS = 1 << 16  # left of an entry: the next one may be looked at
NEAR_SECONDS = 0.02  # within which it has to come
TRIALS = 6  # where one could not run to its end
UNLIKE_TRIALS = 2  # where several entries in a row came with other values
ONCE_SECONDS = 0.5  # of processor time to understand a loop: what takes longer is not tried again at once
NEXT_SECONDS = 2.0  # from one iteration of a loop to the next, where it is looked at twice
CODE_BYTES = 1 << 18
FRAME_BYTES = 1 << 15
LOOKS = 8  # at one loop whose sizes differ from entry to entry
SAME_LOOKS = 3  # of them, where the guards that fail are the same ones
TRANSIENT = frozenset({Reason.THREADS, Reason.NOT_REACHED, Reason.SHADOW_INCONCLUSIVE, Reason.BLOCKED,
                       Reason.TOO_SHORT, Reason.NO_MEMORY})
OF_THE_ENTRY = frozenset({Reason.TRIP_COUNT, Reason.DATA_DEPENDENT_BRANCH, Reason.DATA_DEPENDENT_ADDRESS,
                          Reason.CARRIED_VALUE, Reason.NON_AFFINE, Reason.UNPROVED, Reason.OVERLAP, Reason.TOO_SHORT,
                          Reason.PROTECTED_MAPPING})


@dataclass
class Stages:
    """For the loops of one process; ``attached`` is held while it is stopped, ``stages`` counts their seconds."""

    options: Options
    pid: int
    attached: Attached
    started: float
    decisions: list[Decision] = field(default_factory=list)
    stages: dict[str, float] = field(default_factory=dict)
    _earlier: dict[int, list[Sample]] = field(default_factory=dict)  # by header: entries with other values
    _stage: str = field(default="find", init=False)
    _copies: KeptShadow = field(default_factory=KeptShadow, init=False)
    _aside: Decision | None = field(default=None, init=False)  # while another version is made for its loop
    _to_the_end: bool = field(default=False, init=False)  # last iterations are asked for, too; see Code
    closed: bool = field(default=False, init=False)  # the program has ended, and what memopt left of it is gone

    def _find(self, address: int) -> Site:
        """The loops around a hot address, from the bytes in memory."""
        with self._timed("find"):
            from memopt.session.improving.site import find_site

            return find_site(self.pid, address)

    def _replace(self, decision: Decision, site: Site, candidate: Loop) -> None:
        from memopt.session.improving.site import isolated, screen, vector_bytes
        from memopt.x86.displacement import displacement
        from runtime.patching.install import unpatched
        from runtime.target.eligibility import check_process

        around, (site, loop) = site, isolated(self.pid, site, candidate)
        operations = screen(site, loop)
        check_process(self.pid)
        with self._timed("capture"):
            decision.entry, decision.guards = None, ()
            lifted, trips = self._capture_and_lift(site, loop, operations)
            decision.entry, decision.guards = lifted.entry, lifted.region.guards
        with unpatched(self.pid) as code:  # all of the text is looked at: not before there is something to gain
            moved = displacement(code.read, site.graph, loop, site.text)
        lifted = replace(lifted, region=replace(lifted.region, displaced=moved.original))
        machine = detected_machine()
        candidates = self._schedule(lifted, machine, trips, vector_bytes(site, loop))
        cache = self._reserve(loop, lifted.region, candidates)
        try:
            versions = self._generate(lifted, candidates, cache, machine, moved.code)
            compiled, decision.measurement = (self._validate(site, loop, versions) if self.options.shadow
                                              else (versions[0], None))
            decision.plan = compiled.plan
            if self.options.dry_run:
                raise Rejected(Reason.DRY_RUN)
            behind = self._aside if self._aside is not None and self._aside.address == loop.header else None
            self._install(compiled, cache, moved, behind)
        except Exception:
            self._give_back(cache)
            cache.close()
            raise
        decision.cache, decision.behind, decision.loop = cache, behind, candidate
        decision.period = lifted.region.period
        decision.compiled = None if moved.places(cache.placement.code) else compiled
        decision.address, (_, decision.ranges) = loop.header, around.decided(candidate)
        decision.installed_after = time.monotonic() - self.started
        measured = decision.measurement
        decision.service = Service(measured.original if measured is not None and measured.even else None,
                                   began=(time.monotonic(), running_seconds(self.pid)),
                                   speedup=measured.speedup if measured is not None else None,
                                   period=lifted.region.period,
                                   again=len(self._earlier.get(loop.header, ())) < LOOKS - 1,
                                   alone=lifted.region.confined or not lifted.region.flags_dead)
        perf_map.add(self.pid, compiled.placement.code, len(compiled.code),
                     site.function or hex(compiled.region.header), compiled.plan.isa.value)
        if self.closed:
            perf_map.delete(self.pid)

    def _reserve(self, loop: Loop, region: Region, candidates: tuple[Candidate, ...]) -> CodeCache:
        """Memory for a version in the target, enough for each candidate."""
        from passes.version.generate import undo_log_offset
        from passes.version.kernel import nest_scratch_bytes
        from passes.version.rollback import undo_log_bytes
        from runtime.patching.code_cache import CodeCache
        from runtime.target.sigsegv import check_handler
        from runtime.target.tracee import attach

        with self._timed("reserve"), self.attached(), attach(self.pid) as tracee:
            tracee.stop()
            scratch = undo_log_offset(max(4096, *(nest_scratch_bytes(parts, plan) for parts, plan in candidates)))
            scratch += undo_log_bytes(region)
            cache = CodeCache.create(tracee, loop.header, CODE_BYTES, FRAME_BYTES, scratch)
            try:
                check_handler(tracee, cache.placement.scratch)
            except Rejected:
                cache.release(tracee)
                cache.close()
                raise
            return cache

    def _give_back(self, cache: CodeCache) -> bool:
        """Nothing stays in a program that was not improved, as far as it can still be reached; was it?

        What failed may have failed after the commit: then the original code has to go back first.
        """
        from runtime.patching.install import find_installed, remove
        from runtime.target.ptrace import TargetEnded
        from runtime.target.tracee import attach

        gone = False
        with suppress(Rejected, TargetEnded), self.attached(), attach(self.pid) as tracee:
            tracee.stop()
            committed = [x for x in find_installed(self.pid) if x.placement.code == cache.placement.code]
            for installed in committed:
                remove(tracee, installed)
            if not committed:
                cache.release(tracee)
            gone = True
        return gone

    def _left(self) -> bool:
        """Whether the program seems to have left the loop that is worked on."""
        return False

    @contextmanager
    def _shadows(self, count: int) -> Iterator[tuple[Shadow, ...]]:
        """``count`` copies of one instant of the target; no trace of them stays, in the target either."""
        from runtime.target.ptrace import TargetEnded
        from runtime.target.tracee import attach
        from runtime.trial.shadow import fork_shadow, reap

        shadows: list[Shadow] = []
        try:
            with ExitStack() as stack:
                with self.attached(), attach(self.pid) as tracee:
                    tracee.stop()
                    for _ in range(count):
                        shadows.append(stack.enter_context(fork_shadow(tracee, copies=count)))
                        shadows[-1].given_up = self._left
                yield tuple(shadows)
        finally:
            if any(shadow.zombie for shadow in shadows):
                with suppress(Rejected, TargetEnded), self.attached(), attach(self.pid) as tracee:
                    tracee.stop()
                    reap(tracee, shadows)

    def _capture_and_lift(self, site: Site, loop: Loop,
                          operations: Callable[[int], Block]) -> tuple[Lifted, int]:
        """The region, without the displaced bytes, and the trip count to plan for."""
        from memopt.ir.region import confined, with_room
        from memopt.session.improving.single_thread import one_thread
        from runtime.target.memory import mappings

        with ExitStack() as stack:
            with self._timed("reach"):
                shadow = stack.enter_context(self._copies.at(loop.header, functools.partial(self._shadows, 1)))
            began = time.thread_time()
            try:
                lifted, places = self._lift(site, loop, operations, shadow)
            except Rejected as first:
                if time.thread_time() - began > ONCE_SECONDS:
                    raise
                lifted, places = self._lift_later(site, loop, operations, shadow, first)
            trips, maps = self._trips(lifted.region, exits(site, loop), shadow), mappings(shadow.pid)
        if lifted.region.confined:
            lifted = replace(lifted, region=one_thread(confined(lifted.region, places), self.pid, maps))
        entries = (lifted.entry, *self._earlier.get(loop.header, ()))
        lifted = replace(lifted, region=with_room(lifted.region, lifted.entry, trips))
        return lifted, max(trips, *map(lifted.trips, entries))

    def _trips(self, region: Region, out: frozenset[int], shadow: Shadow) -> int:
        """Iterations of an entry as they come: where few are left of the one that was met, those of the next one. One
        stop where the loop ends: on a busy machine a stop at every iteration takes seconds."""
        from memopt.ir.scop import TRIPS
        from runtime.trial.shadow import ShadowStopped, copies_of
        from runtime.trial.trial import live_values

        trips = live_values(region, shadow)[TRIPS]
        if 0 < trips <= FEW_TRIPS:
            with suppress(Rejected, ShadowStopped), copies_of(shadow, 1) as (ahead,):
                ahead.run_out(out, NEAR_SECONDS)
                ahead.run_to(region.header, NEAR_SECONDS)
                trips = max(trips, live_values(region, ahead)[TRIPS])
        return trips

    def _lift_later(self, site: Site, loop: Loop, operations: Callable[[int], Block], shadow: Shadow,
                    first: Rejected) -> tuple[Lifted, dict[Footprint, tuple[int, int]]]:
        """Where the shadow comes to the header next: compilers make the first iteration go a way of its own, and end
        it in the middle of the second. Raises ``first`` where that is no better."""
        from runtime.trial.shadow import ShadowStopped

        if first.reason not in OF_THE_ENTRY:
            raise first
        try:
            with self._timed("reach"):
                shadow.run_to(loop.header, NEXT_SECONDS)
            return self._lift(site, loop, operations, shadow)
        except (Rejected, ShadowStopped):
            raise first from None

    def _lift(self, site: Site, loop: Loop, operations: Callable[[int], Block],
              shadow: Shadow) -> tuple[Lifted, dict[Footprint, tuple[int, int]]]:
        """The region as the shadow stands there, and where its footprints may lie."""
        from memopt.cfg.dead_registers import flags_dead
        from memopt.ir.region import Progression
        from memopt.lifting.lift import Code, lift_region
        from runtime.target.eligibility import other_threads
        from runtime.target.memory import check_private, mappings
        from runtime.trial.trial import admitted, general_registers, live_values, peek, vector_registers

        for other in line(self._aside):
            if other.compiled is not None and other.address == loop.header and admitted(
                    other.compiled.region, shadow) is not None:
                raise Rejected(Reason.NOT_REACHED, "with other values than before")
        with self._timed("lift"):
            code = Code(site.graph, site.forest, operations, bool(site.links.calls), self._to_the_end)
            lifted = lift_region(code, loop, general_registers(shadow.registers()), functools.partial(peek, shadow),
                                 b"", vector_registers(shadow), _patient(PATIENCE),
                                 tuple(self._earlier.get(loop.header, ())))
            dead = flags_dead(site.graph, operations, loop.header)
            lifted = replace(lifted, region=replace(lifted.region, flags_dead=dead))
        if (not dead or lifted.region.confined) and other_threads(self.pid):
            raise Rejected(Reason.THREADS, "they cannot be kept apart in this loop")
        self._print_after("lift", lifted.region)
        values = live_values(lifted.region, shadow)
        maps = mappings(shadow.pid)
        places = {f: check_private(maps, f.interval.low.evaluate(values), f.interval.high.evaluate(values),
                                   written=f.written) for f in lifted.region.footprints}
        for words in (g for g in lifted.region.guards if isinstance(g, Progression)):
            check_private(maps, words.low, words.high, written=False)
        return lifted, places

    def _schedule(self, lifted: Lifted, machine: Machine, trips: int, packed: int) -> tuple[Candidate, ...]:
        from memopt.machine.description import usable_isas
        from memopt.polyhedral.isl import patience
        from passes.planning import plan_candidates

        with self._timed("schedule"), patience(_patient(PATIENCE)):
            isa = self.options.isa or usable_isas(machine)[0]
            if isa not in usable_isas(machine):
                raise Rejected(Reason.NO_PLAN, f"this machine has no {isa.value}")
            made = plan_candidates(lifted.region, machine, isa, self.options.fp, trips=trips, packed=packed,
                                   observer=self._print_after, most=CANDIDATES if self.options.shadow else 1)
            for _, plan in made:
                self._print_after("plan", plan)
            return made

    def _generate(self, lifted: Lifted, candidates: tuple[Candidate, ...], cache: CodeCache,
                  machine: Machine, displaced: Callable[[int], bytes]) -> tuple[CompiledRegion, ...]:
        """Code for each candidate that can be generated, all for the same place; one at least."""
        from passes.version.generate import generate
        from passes.version.kernel import nest_kernel

        versions: list[CompiledRegion] = []
        refusal: Rejected | None = None
        with self._timed("generate"):
            for parts, plan in candidates:
                kernel = functools.partial(nest_kernel, parts, plan, placement=cache.placement)
                try:
                    versions.append(generate(lifted.region, plan, kernel, cache.placement, displaced, machine.xcr0))
                except Rejected as rejected:
                    refusal = refusal or rejected
                    continue
                self._print_after("generate", versions[-1].listing)
        if not versions:
            raise refusal or Rejected(Reason.NO_PLAN)
        return tuple(versions)

    def _validate(self, site: Site, loop: Loop,
                  versions: tuple[CompiledRegion, ...]) -> tuple[CompiledRegion, Measurement]:
        """The fastest of those that did what the original did, in a race of copies.

        The first copies are made of the one in which the loop was captured, which costs the program nothing: they go on
        to the next entry, or stay. Where that decides nothing, they are made of the program, a little later each time.
        """
        with self._timed("validate"):
            kept, on = self._copies.standing(loop.header), True
            for number in range(1, TRIALS + 1):
                try:
                    with (self._beside(kept, versions[0].placement) if kept is not None
                          else self._later(loop.header)) as shadow:
                        return self._race(shadow, versions, exits(site, loop), on)
                except Rejected as rejected:
                    transient = rejected.reason in TRANSIENT
                    if not transient and (rejected.reason is not Reason.GUARD_FAILED or number >= UNLIKE_TRIALS):
                        raise
                    if number == TRIALS:
                        raise
                if kept is None:
                    time.sleep(0.02 * number)
                elif not on or not transient:
                    kept = None
                on = False
        raise AssertionError

    @contextmanager
    def _beside(self, kept: Shadow, placement: Placement) -> Iterator[Shadow]:
        """A copy of the copy that was kept, with pages for a version."""
        from runtime.patching.code_cache import map_alike
        from runtime.trial.shadow import copies_of

        with ExitStack() as stack:
            try:
                shadow, = stack.enter_context(copies_of(kept, 1))
                map_alike(shadow.tracee, placement)
            except Rejected as rejected:
                raise Rejected(Reason.SHADOW_INCONCLUSIVE, str(rejected)) from rejected
            yield shadow

    @contextmanager
    def _later(self, header: int) -> Iterator[Shadow]:
        """A copy of the program as it is by now, at ``header``."""
        from runtime.trial.trial import reach

        with self._shadows(1) as (shadow,):
            reach(shadow, header)
            yield shadow

    def _race(self, shadow: Shadow, versions: tuple[CompiledRegion, ...], out: frozenset[int],
              on: bool) -> tuple[CompiledRegion, Measurement]:
        """``shadow`` stands at the header, with the pages of the versions; ``out``: where the program goes on behind
        the loop; ``on``: see ``come_to_entry``."""
        from runtime.trial.shadow import copies_of
        from runtime.trial.trial import Measurement, come_to_entry, race

        values = come_to_entry(versions[0], shadow, on)
        with copies_of(shadow, len(versions)) as copies:
            results = race(shadow, tuple(zip(copies, versions, strict=True)), values,
                           max(slice_of(v.plan) for v in versions), out, exact=self.options.fp == "exact",
                           others=[d.cache.placement for d in self.decisions if d.cache is not None])
        finished = [(v, r) for v, r in zip(versions, results, strict=True) if isinstance(r, Measurement)]
        if not finished:
            raise next(r for r in results if isinstance(r, Rejected))
        return min(finished, key=lambda f: f[1].version * (1.0 if f[0] is versions[0] else CLEARLY))

    def _install(self, compiled: CompiledRegion, cache: CodeCache, moved: Displacement,
                 behind: Decision | None) -> None:
        from runtime.patching.install import install, jump
        from runtime.target.eligibility import check_threads
        from runtime.target.tracee import attach

        with self._timed("install"):
            region = compiled.region
            cache.clear_statistics()
            with self.attached(), attach(self.pid) as tracee:
                cache.write_code(followed_by(compiled, None if behind is None else behind.compiled), tracee)
                tracee.stop()
                check_threads(self.pid)
                install(tracee, jump(region.header, compiled.entry, region.displaced), cache,
                        moved=moved.places(compiled.placement.code))

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        self._stage = stage
        faults.point(stage)
        before = time.monotonic()
        try:
            yield
        finally:
            self.stages[stage] = self.stages.get(stage, 0.0) + time.monotonic() - before

    def _print_after(self, name: str, value: object) -> None:
        if name in self.options.print_after:
            say(f"after {name}:\n{value}")


def _patient(seconds: float) -> Callable[[], bool]:
    """Whether this thread has worked for less than ``seconds`` from now. What it has worked is a question to the
    kernel, so it is only asked now and then."""
    deadline, asked = time.thread_time() + seconds, time.monotonic()
    patient = True

    def goes_on() -> bool:
        nonlocal asked, patient
        if (now := time.monotonic()) >= asked + ASK_SECONDS:
            asked, patient = now, time.thread_time() < deadline
        return patient

    return goes_on


def exits(site: Site, loop: Loop) -> frozenset[int]:
    """Where the program goes on behind ``loop``; the code of called functions is a copy that it never runs."""
    return frozenset(out for _, out in loop.exits if site.text[0] <= out < site.text[1])


def slice_of(plan: NestPlan) -> int:
    """Outer iterations of a trial: one full register tile and a ragged one, whichever dimension is patched."""
    return max(p.trial_iterations for p in plan.parts)


@functools.cache
def detected_machine() -> Machine:
    from memopt.machine.detect import detect

    return detect()
