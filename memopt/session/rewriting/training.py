"""One training: a program runs under memopt, and the versions that serve it to its end are kept for the file.

Example: ``./prog 2048`` is improved as by ``memopt exec``; one version of its product is in service when it ends. The
training gives the version's region and plan, and the live-in values for which it was made.

In: the file that is rewritten, a command line, what earlier trainings saw. Out: a ``Training``. It runs in a child
process, because a process of memopt starts one program in its life. The program's standard input is empty; its output
goes to files.

Loops are lifted so that addresses in the file are relative to the header (``Process.movable``), and new code is made as
it will be in the file (``Placement.in_file``). So the trial and the service of a training are evidence for the code in
the file, but for its place.
"""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from memopt.elf.image import Image
from memopt.ir.reasons import Reason, Rejected
from memopt.options import Options
from memopt.session.rewriting.movable import check_movable, own_memory
from memopt.session.rewriting.supposed import other_size
from memopt.session.watching.launched import Session
from runtime.launch.identify import CannotRun, identify
from runtime.launch.launch import launch_prepared, release_inherited_files
from runtime.target.memory import mappings

if TYPE_CHECKING:
    from memopt.ir.graph import Loop
    from memopt.ir.plan import NestPlan
    from memopt.ir.region import Region
    from memopt.ir.region import Sample as Entry
    from memopt.session.improving.improver import Improver
    from memopt.session.replacing.decision import Installed
    from memopt.session.replacing.history import History
    from memopt.session.replacing.process import Process
    from memopt.session.replacing.site import Site
    from memopt.x86.displacement import Displacement
    from runtime.launch.launch import Target
    from runtime.sampling.samples import Sampler

FAILED = 125  # exit code of a training that broke down


@dataclass(frozen=True, slots=True)
class Trained:
    """A version that was in service at the end of a training. ``bias``: the load bias of its process: addresses in
    ``region``, ``parts`` and ``displaced`` are those of that process. ``chunk``: see ``FileEntry``. ``gain``: the speed
    of the loop over that of the original, None if it was not measured. ``seconds``: spent in it."""

    bias: int
    function: str
    region: Region
    parts: tuple[Region, ...]
    plan: NestPlan
    displaced: Displacement
    entry: Entry
    chunk: int | None
    scratch: int
    gain: float | None
    seconds: float

    @property
    def header(self) -> int:
        """The link-time address of the loop's header."""
        return self.region.header - self.bias


@dataclass(frozen=True, slots=True)
class Refusal:
    """A hot loop that gets no version in the file. ``where``: the loop, for people; ``share``: of the time, 0 to 1."""

    where: str
    share: float
    why: str


@dataclass(frozen=True, slots=True)
class Training:
    """``exit_value``: the exit code, or minus the signal the program died by. ``entries``: live-in values of all loops
    that were lifted, by link-time address of the header. ``supposed``: values at another size, of loops that came with
    one size only."""

    exit_value: int
    output: bytes
    versions: tuple[Trained, ...]
    refusals: tuple[Refusal, ...]
    entries: Mapping[int, tuple[Entry, ...]]
    supposed: Mapping[int, Entry]


def train(file: str, arguments: Sequence[str], known: Mapping[int, tuple[Entry, ...]], options: Options) -> Training:
    """Run ``arguments`` under memopt, for versions in ``file``. ``known``: the ``entries`` of earlier trainings. Raises
    ``CannotRun`` where the program cannot be started, Rejected(INTERNAL) where the training broke down."""
    with tempfile.TemporaryFile() as result, tempfile.TemporaryFile() as output:
        pid = os.fork()
        if pid == 0:
            _in_child(file, arguments, known, options, result.fileno(), output.fileno())
        _, status = os.waitpid(pid, 0)
        found = _read(result.fileno())
        if not found:
            raise Rejected(Reason.INTERNAL, f"a training ended with status {os.waitstatus_to_exitcode(status)}")
        made = pickle.loads(found)
        if isinstance(made, Exception):
            raise made
        assert isinstance(made, Training)
        return made


def _read(descriptor: int) -> bytes:
    os.lseek(descriptor, 0, os.SEEK_SET)
    with open(descriptor, "rb", closefd=False) as file:
        return file.read()


def _in_child(file: str, arguments: Sequence[str], known: Mapping[int, tuple[Entry, ...]], options: Options,
              result: int, output: int) -> None:
    made: object
    try:
        null = os.open(os.devnull, os.O_RDWR)
        kept = os.dup(2)
        os.dup2(null, 0)
        os.dup2(output, 1)
        made = _trained(file, arguments, known, options, output)
        os.dup2(kept, 2)
    except (CannotRun, Rejected) as error:
        made = error
    except BaseException as error:  # noqa: BLE001 - the parent says it in one line
        made = Rejected(Reason.INTERNAL, f"{type(error).__name__}: {error}")
    try:
        with open(result, "wb", closefd=False) as stream:
            pickle.dump(made, stream)
        os._exit(0)
    finally:
        os._exit(FAILED)


def _trained(file: str, arguments: Sequence[str], known: Mapping[int, tuple[Entry, ...]], options: Options,
             output: int) -> Training:
    from runtime.sampling.perf_events import Events
    from runtime.sampling.samples import sampler_of

    target, events = launch_prepared(identify(arguments[0], os.environ.get("PATH")), arguments,
                                     lambda pid: Events(pid, on_exec=True))
    release_inherited_files()
    sessions: list[_Session] = []
    sampler = sampler_of(events, lambda: sessions[0].look() if sessions else ())
    session = _Session(options, target, sampler)
    session.file, session.known = file, known
    sessions.append(session)
    note = target.executable.note
    if note is not None:
        session.leave_alone(note)
        raise Rejected(note.reason, note.detail)
    value = session.watch()
    return session.training(value, _read(output))


class _Session(Session):
    """A session that makes versions for ``file``, and for no other."""

    file: str = ""
    known: Mapping[int, tuple[Entry, ...]] = MappingProxyType({})

    def __init__(self, options: Options, target: Target, sampler: Sampler) -> None:
        super().__init__(options, target, sampler)
        self.unmovable: dict[int, Refusal] = {}  # by the identity of a version's memory
        self.supposed: dict[int, Entry] = {}

    def _new_improver(self) -> Improver:
        from memopt.session.improving.improver import Improver
        from memopt.session.replacing.process import Process

        process = Process(self.target.pid, self.options, self.attached, self.target.started, movable=True)
        return Improver(process, self.worker, replace_loop=self._replace)

    def _replace(self, process: Process, site: Site, loop: Loop, history: History) -> Installed:
        from memopt.session.replacing import stages

        if os.path.realpath(site.path) != self.file:
            raise Rejected(Reason.OTHER_FILE, os.path.basename(site.path))
        for entry in self.known.get(loop.header - site.bias, ()):
            earlier = history.earlier.setdefault(loop.header, [])
            if entry not in earlier:
                earlier.append(entry)
        installed = stages.replace_loop(process, site, loop, history)
        maps = mappings(process.pid)
        with Image(self.file) as image:
            own = own_memory(image, site.bias)
            if not history.entries(loop.header):
                self.supposed[loop.header - site.bias] = other_size(
                    installed.entry, lambda v: any(m.start <= v <= m.end for m in maps),
                    lambda v: any(low <= v <= high for low, high in own))
            try:
                check_movable(installed.compiled, image, site.bias, maps)
            except Rejected as rejected:
                self.unmovable[id(installed.cache)] = Refusal(site.function or hex(loop.header), 0.0, str(rejected))
        return installed

    def training(self, exit_value: int, output: bytes) -> Training:
        """The result, once the program has ended."""
        if self.improver is None:
            return Training(exit_value, output, (), (), {}, {})
        history = self.improver.history
        versions = tuple(self._version(x) for x in history.installed if id(x.cache) not in self.unmovable)
        entries = {found.address - found.site.bias: self._entries(found, history) for found in history.installed}
        report = self.improver.report(self.hotness, (), ())
        refusals = tuple(Refusal(x.function or hex(x.address), x.share, _why(x.reason, x.detail))
                         for x in report.loops if x.reason is not None) + tuple(self.unmovable.values())
        return Training(exit_value, output, versions, refusals, entries, self.supposed)

    def _entries(self, found: Installed, history: History) -> tuple[Entry, ...]:
        told = self.known.get(found.address - found.site.bias, ())
        return (*(e for e in history.earlier.get(found.address, ()) if e not in told), found.entry)

    def _version(self, found: Installed) -> Trained:
        from memopt.session.replacing.others import chunk

        assert self.improver is not None
        compiled, place = found.compiled, found.compiled.placement
        inside = self.hotness.seconds(place.code, place.code + place.code_size)
        speeds = found.service.speeds(found.cache.read_statistics(), inside)
        measured = found.measurement
        gain = speeds[0] / speeds[1] if speeds is not None else None if measured is None else measured.speedup
        pace = None if measured is None else measured.version
        return Trained(found.site.bias, found.site.function, compiled.region, compiled.parts, compiled.plan,
                       found.displaced, found.entry, chunk(compiled.region, found.entry, pace), compiled.scratch_needed,
                       gain, inside)


def _why(reason: Reason, detail: str) -> str:
    return reason.explain + (f" ({detail})" if detail else "")
