"""The stages of ``memopt exec`` on a traced program, one nest after the other: no sampling, no trial.

The program stops at int3 before each call of a nest; breakpoints at the headers of its loops then show where a loop
is entered, and the driver's own stages (memopt.session.replacing.stages) are run with the program itself in the place
of the copy they would work on. What stays in the program is what they install.
"""

from __future__ import annotations

import functools
import os
import signal
import struct
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from unittest import mock

from memopt.elf.image import Image
from memopt.ir.graph import Loop
from memopt.ir.plan import Isa
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Region
from memopt.ir.scop import TRIPS
from memopt.machine.description import Machine
from memopt.options import Options
from memopt.session.replacing.decision import TRANSIENT, Installed
from memopt.session.replacing.history import History
from memopt.session.replacing.process import Process
from memopt.session.replacing.site import Ranges, Site, find_site
from memopt.session.replacing.stages import replace_loop
from memopt.session.rewriting.movable import check_movable
from memopt.session.rewriting.training import Trained
from passes.context import Context
from passes.contraction_schedule.base import ScheduledRegion
from passes.contraction_schedule.profitability import Profitability
from passes.loop_schedule.candidates import loop_plans
from runtime.target import ptrace
from runtime.target.memory import Mapping, mappings
from runtime.target.ptrace import Registers, Stop, StopKind, TargetEnded
from runtime.target.tracee import Tracee
from runtime.trial.agreement import general_registers
from runtime.trial.shadow import Shadow
from runtime.trial.trial import live_values
from tests.support.random_nests.build import Batch

PATIENCE = 200.0  # seconds for one call of a nest
STAGE_SECONDS = 15.0  # for all stages on one loop
RETRIES = 3
SMALL, OTHER = 1 << 20, 3  # what may be a size, and by how much it was another one
PRINT_AFTER = tuple(os.environ.get("PRINT_AFTER", "").split(","))  # lift, plan, generate: shown on stderr
_TRAP = b"\xcc"
REPLACED, INTERNAL = "replaced", "internal-error"


@dataclass
class LoopResult:
    """``reason``: REPLACED, or why not. ``iterations``: of the patched loop, run by the version."""

    header: int
    reason: str
    detail: str = ""
    iterations: int = 0
    entries: int = 0
    seconds: float = 0.0


class Standing(Tracee):
    """A tracee that is never let go on from within a stage."""

    def run_for(self, seconds: float) -> None:
        raise Rejected(Reason.BLOCKED, "a return address inside the patch")

    def stand(self) -> None:
        """Take the breakpoint it stopped at for an interruption: nothing is to be delivered."""
        self._stops[self.pid] = Stop(StopKind.INTERRUPT)


class Here:
    """The program itself as the copy a stage works on: it stands at the header already."""

    def __init__(self, tracee: Tracee) -> None:
        self.tracee, self.pid, self.zombie, self.confined = tracee, tracee.pid, 0, False

    @property
    def origin(self) -> tuple[Mapping, ...]:
        """Copies that look ahead are real ones, of the program as it stands."""
        return self.maps()

    def run_to(self, address: int, timeout_s: float, hits: int = 1) -> float:
        assert self.tracee.registers().rip == address
        return 0.0

    def run_out(self, addresses: frozenset[int], timeout_s: float) -> None:
        raise Rejected(Reason.NOT_REACHED, "the program stays where it is")

    def registers(self) -> Registers:
        return self.tracee.registers()

    def vector_state(self) -> bytes:
        return self.tracee.vector_state()

    def read(self, address: int, size: int) -> bytes:
        return self.tracee.memory.read(address, size)

    def maps(self) -> tuple[Mapping, ...]:
        return mappings(self.pid)


@dataclass(frozen=True, kw_only=True)
class StandingProcess(Process):
    """The program stopped at the header, which is its own copy."""

    tracee: Tracee

    @contextmanager
    def traced(self) -> Iterator[Tracee]:
        yield self.tracee

    @contextmanager
    def shadows(self, count: int, given_up: Callable[[], bool], inside: Ranges = ()) -> Iterator[tuple[Here, ...]]:
        yield (Here(self.tracee),) * count

    def earlier(self, loop: Loop) -> History:
        """As if small numbers had been others at an earlier entry of ``loop``."""
        registers = general_registers(self.tracee.registers())
        return History(earlier={loop.header: [{r: v + OTHER if v < SMALL else v for r, v in registers.items()}]})


@dataclass
class Nest:
    """One program of the batch: what is left to try in it, and what was done."""

    waiting: dict[int, tuple[Site, Loop]] = field(default_factory=dict)  # by header
    skips: dict[int, int] = field(default_factory=dict)
    tries: dict[int, int] = field(default_factory=dict)
    results: list[LoopResult] = field(default_factory=list)
    installed: list[tuple[LoopResult, Installed]] = field(default_factory=list)


class Follower:
    """Runs a batch from its program number ``first`` on; ``results`` by program number. ``movable``: the versions are
    made for a file; ``kept`` by program number."""

    def __init__(self, batch: Batch, first: int, pid: int, machines: tuple[Machine, Machine],
                 on_internal: Callable[[int, BaseException], None], *, movable: bool = False) -> None:
        self.movable = movable
        self.kept: dict[int, list[Trained]] = defaultdict(list)
        self.batch, self.pid, self.machines, self.on_internal = batch, pid, machines, on_internal
        self.results: dict[int, list[LoopResult]] = {}
        self.current: Nest | None = None
        self.number = first
        self._saved: dict[int, bytes] = {}
        self.tracee = Standing(pid)
        self.tracee.seize_new_threads()
        text = next(m for m in mappings(pid) if m.path == str(batch.path))
        with open(batch.path, "rb") as file:
            self.bias = text.start if struct.unpack_from("<H", file.read(18), 16)[0] == 3 else 0

    def follow(self) -> int:
        """To the end of the program; its wait status. Raises ``ptrace.WaitTimeout`` when it does not come."""
        try:
            while True:
                stop = self.tracee.wait(self.pid, PATIENCE)
                number = 0
                if stop.kind is StopKind.SIGNAL and stop.signal == signal.SIGTRAP:
                    self._trapped()
                elif stop.kind is StopKind.SIGNAL:
                    number = stop.signal
                self.tracee.go(ptrace.CONT, self.pid, number)
        except TargetEnded as ended:
            return ended.status or 0
        finally:
            self._finish()
            self.tracee.memory.close()

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def _trapped(self) -> None:
        registers = self.tracee.registers()
        self.tracee.stand()
        address = registers.rip - 1
        nest = self.current
        self._clear()
        if nest is not None and address in nest.waiting:
            self.tracee.set_registers(replace(registers, rip=address))
            self._reached(nest, address)
        else:
            number, call = registers.rdi, registers.rsi
            if call == 0:
                self._finish()
                self.number, self.current = number, self._nest(number)
            elif call >> 63:
                self._finish()
        self._set()

    # -- breakpoints ----------------------------------------------------------------------------------------------

    def _set(self) -> None:
        for address in self.current.waiting if self.current else ():
            self._saved[address] = self.tracee.memory.read(address, 1)
        for address in self._saved:
            self.tracee.memory.write(address, _TRAP)

    def _clear(self) -> None:
        for address, byte in self._saved.items():
            self.tracee.memory.write(address, byte)
        self._saved = {}

    def _step(self) -> None:
        """Off the header by one instruction, with no breakpoints set."""
        self.tracee.go(ptrace.SINGLESTEP, self.pid)
        self.tracee.wait(self.pid, PATIENCE)
        self.tracee.stand()

    # -- a nest ---------------------------------------------------------------------------------------------------

    def _nest(self, number: int) -> Nest:
        nest = Nest()
        try:
            outline = find_site(self.pid, self.batch.functions[number] + self.bias)
        except Rejected as rejected:
            nest.results.append(LoopResult(0, rejected.reason.value, rejected.detail))
            return nest
        for loop in outline.forest.loops:
            if not loop.children:
                site = find_site(self.pid, loop.header)
                if site.loops:
                    self._wait_for(nest, site, site.loops[0])
        return nest

    def _wait_for(self, nest: Nest, site: Site, loop: Loop) -> None:
        header = loop.header
        if header not in nest.tries:
            nest.waiting[header] = (site, loop)
            nest.tries[header] = 0
            nest.skips[header] = self.batch.programs[self.number].skip

    def _reached(self, nest: Nest, header: int) -> None:
        if nest.skips[header]:
            nest.skips[header] -= 1
            self._step()
            return
        site, loop = nest.waiting[header]
        before = time.monotonic()
        try:
            with time_limit():
                installed = self._replaced(site, loop)
        except Rejected as rejected:
            nest.tries[header] += 1
            if rejected.reason in TRANSIENT and nest.tries[header] < RETRIES:
                self._step()
                return
            nest.results.append(LoopResult(header - self.bias, rejected.reason.value, rejected.detail,
                                           seconds=time.monotonic() - before))
            self._inner(nest, site, loop)
        except Exception as error:  # noqa: BLE001 - whatever fails inside is counted and shown
            self.on_internal(self.number, error)
            nest.results.append(LoopResult(header - self.bias, INTERNAL, f"{type(error).__name__}: {error}"))
            self._inner(nest, site, loop)
        else:
            result = LoopResult(header - self.bias, REPLACED, installed.compiled.plan.summary,
                                seconds=time.monotonic() - before)
            nest.results.append(result)
            nest.installed.append((result, installed))
            for other in [h for h in nest.waiting if h in loop.blocks]:
                del nest.waiting[other]

    def _inner(self, nest: Nest, site: Site, loop: Loop) -> None:
        """``loop`` is settled: the loops inside it come next."""
        del nest.waiting[loop.header]
        for leaf in site.forest.loops:
            chain = tuple(reversed(tuple(site.forest.chain(leaf))))
            if not leaf.children and loop in chain[:-1]:
                inner = find_site(self.pid, leaf.header)
                following = [x for x in inner.loops if x.depth == loop.depth + 1]
                for each in following:
                    self._wait_for(nest, inner, each)

    def _replaced(self, site: Site, loop: Loop) -> Installed:
        program = self.batch.programs[self.number]
        options = Options(arguments=(str(self.batch.path),), shadow=False, quiet=True, print_after=PRINT_AFTER,
                          isa=Isa(program.isa) if program.isa else None)
        process = StandingProcess(self.pid, options, nullcontext, time.monotonic(), tracee=self.tracee,
                                  movable=self.movable,
                                  machine=lambda: self.machines[program.small_caches])
        history = process.earlier(loop) if program.seed % 2 == 0 else History()
        with any_gain_at_any_entry(), preferring(program.prefer):
            installed = replace_loop(process, site, loop, history)
        if self.movable:
            self._keep(installed)
        return installed

    def _keep(self, installed: Installed) -> None:
        """Keep the version for a file, if it would work in another process."""
        compiled = installed.compiled
        try:
            with Image(str(self.batch.path)) as image:
                check_movable(compiled, image, self.bias, mappings(self.pid))
        except Rejected:
            return
        self.kept[self.number].append(Trained(
            self.bias, "", compiled.region, compiled.parts, compiled.plan, installed.displaced, installed.entry,
            None, compiled.scratch_needed, None, 1.0))

    def _finish(self) -> None:
        """Read the statistics of what was installed for the current program."""
        if self.current is None:
            return
        for result, installed in self.current.installed:
            statistics = installed.cache.read_statistics()
            result.iterations, result.entries = statistics.iterations, statistics.entries
            if self.tracee.stopped:  # nothing enters it again, and there is not room for many
                installed.cache.release(self.tracee)
            installed.cache.close()
        self.current.results += [LoopResult(h - self.bias, Reason.NOT_REACHED.value) for h in self.current.waiting]
        self.results[self.number] = self.current.results
        self.current = None


@contextmanager
def time_limit() -> Iterator[None]:
    """``TimeoutError`` when the stages use more than ``STAGE_SECONDS`` of processor time."""

    def expired(*_: object) -> None:
        raise TimeoutError(f"more than {STAGE_SECONDS:.0f} s for one loop")

    before = signal.signal(signal.SIGVTALRM, expired)
    signal.setitimer(signal.ITIMER_VIRTUAL, STAGE_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)


@contextmanager
def any_gain_at_any_entry() -> Iterator[None]:
    """Any loop plan is worth while; of a loop's entries only the one at which the program stands is looked at."""

    def trip_count(region: Region, exits: frozenset[int], shadow: Shadow) -> int:
        return live_values(region, shadow)[TRIPS]

    with (mock.patch("passes.planning.loop_plans", functools.partial(loop_plans, least_gain=0.0)),
          mock.patch("memopt.session.replacing.capture.trip_count", trip_count), any_work()):
        yield


def any_work() -> AbstractContextManager[object]:
    """An entry is worth while in a file, however little it has to do."""
    return mock.patch("passes.version.file_entry.LEAST_INSTANCES", 1)


@contextmanager
def preferring(what: str) -> Iterator[None]:
    """Which nests are planned as "contractions": all that can be, those where it pays, or none ("loops")."""
    decide = Profitability.run

    def run(self: Profitability, state: ScheduledRegion, context: Context) -> ScheduledRegion:
        match what:
            case "contractions":
                return state
            case "loops":
                raise Rejected(Reason.NO_PLAN, "a loop plan is wanted")
        return decide(replace(self, least_work=0.0), state, context)

    with mock.patch.object(Profitability, "run", run):
        yield
