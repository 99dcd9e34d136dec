"""What earlier runs found out about the loops of a process (memopt.plans), and what this run will leave to later ones.

Example: the loop at 0x1550 of ``dgemm`` was lifted. An earlier run has stored a plan for a region with the same text:
it is a ``Known``, and the stages prove it again for this region instead of looking for one. In: sites, regions, the
decisions of the stages. Out: plans, refusals, and at the end of the program a merged file in the cache.

Nothing here decides what is right: a stored plan is proved again, and code that differs from the code of an earlier
trial is tried. A file that is odd costs one line (``notes``); a cache that cannot be used costs nothing.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

from memopt.ir.frozen import dataclass
from memopt.ir.reasons import Reason, Rejected
from memopt.plans import folder as folders
from memopt.plans.entries import Entry, OddFile, StoredPlan, StoredRefusal, merged
from memopt.plans.identity import FileIdentity, file_identity, file_name, origin

if TYPE_CHECKING:
    from memopt.ir.code import CompiledRegion
    from memopt.ir.graph import Loop
    from memopt.ir.region import Region
    from memopt.options import Options
    from memopt.plans.addresses import Addresses
    from memopt.session.replacing.process import Process
    from memopt.session.replacing.site import Site
    from runtime.trial.trial import Measurement

ALIKE = 0.1  # by so much the work of an iteration may differ from that in the stored trial, for its times to hold

# Refusals that follow from the code, and in how many runs they have to be seen before one goes by them. Those by values
# might not occur with other arguments. Every ``LOOK_AGAIN`` runs the stages are asked again.
_FOR_GOOD = {Reason.UNSUPPORTED_INSTRUCTION: 1, Reason.ATOMIC: 1, Reason.DATA_DEPENDENT_ADDRESS: 2,
             Reason.DATA_DEPENDENT_BRANCH: 2, Reason.NON_AFFINE: 2, Reason.CARRIED_VALUE: 2}
LOOK_AGAIN = 16
_ADDRESS = re.compile(r"0x[0-9a-f]{4,16}\b")


@dataclass(slots=True)
class _File:
    """A program file. ``name`` is "" where there is no cache for it. ``found``: what this run adds."""

    name: str = ""
    identity: FileIdentity | None = None
    entries: tuple[Entry, ...] = ()
    found: list[Entry] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Lifted:
    """A lifted loop as entries tell it: link addresses, and the region's text without addresses."""

    header: int
    code: tuple[tuple[int, int], ...]
    digest: str
    text: str
    addresses: Addresses


@dataclass(frozen=True, slots=True)
class Known:
    """A stored plan that may fit a region. ``work``: statement instances in an iteration of that region now."""

    path: str
    entry: Entry
    plan: StoredPlan
    work: float
    addresses: Addresses

    def measured(self, made: CompiledRegion) -> Measurement | None:
        """The measurements of an earlier trial, if it was one of the code ``made`` with about as much work."""
        from runtime.trial.trial import Measurement

        same = made_digest(made, self.addresses) == self.plan.made and alike(self.work, self.plan.work)
        plan = self.plan
        return Measurement(plan.original, plan.version, plan.iterations, plan.even) if same else None


class KnownLoops:
    """The cache as one process uses it. ``folder``: that of the cache; None: there is none."""

    def __init__(self, options: Options | None = None) -> None:
        self.notes: list[str] = []
        self.refused = 0  # loops that were left alone without asking the stages
        self._options, self._files = options, dict[str, _File]()
        self._folder = folders.plans_folder() if options is not None and options.cache else None
        self._expected: dict[tuple[int, int], int] = {}  # ranges of link addresses, with the header
        self._program = ""
        self._bias: int | None = None  # of the program
        self._origin: tuple[str, ...] = ()

    # -- what earlier runs found ----------------------------------------------------------------------------------

    def expect(self, path: str) -> bool:
        """Look up the program file ``path``; whether there are plans for loops of it."""
        self._program = os.path.realpath(path)
        for entry in self._file(self._program).entries:
            if isinstance(entry.what, StoredPlan) and entry.what.usable:
                self._expected |= {(low, low + size): entry.header for low, size in entry.code}
        return bool(self._expected)

    @property
    def expecting(self) -> bool:
        """Whether there is a plan for a loop that the program has not come to yet."""
        return bool(self._expected)

    def come_to(self, samples: Mapping[int, int], maps: Sequence[tuple[int, int, int, str]]) -> int | None:
        """The address of a sample in a loop with a plan, once for each loop: its header is to be captured at once.
        ``maps``: start, end, file offset and path of the executable mappings."""
        if not self._expected or not samples:
            return None
        if self._bias is None:
            where = next((m for m in maps if m[3] == self._program), None)
            self._bias = None if where is None else _bias(self._program, where[0], where[2])
        for address in samples if self._bias is not None else ():
            at = address - (self._bias or 0)
            header = next((h for (low, high), h in self._expected.items() if low <= at < high), None)
            if header is not None:
                self._expected = {r: h for r, h in self._expected.items() if h != header}
                return address
        return None

    def has_plan(self, site: Site, header: int) -> bool:
        """Whether an earlier run has replaced the loop at ``header``: then nobody has to plan for its trip count."""
        return self._folder is not None and any(
            isinstance(e.what, StoredPlan) and e.what.usable and e.header == header - site.bias
            for e in self._file(site.path).entries)

    def planned(self, site: Site, loops: Sequence[Loop]) -> Loop | None:
        """The loop among ``loops`` that an earlier run had replaced, the outermost first."""
        return next((loop for loop in loops if self.has_plan(site, loop.header)), None)

    def plan(self, process: Process, site: Site, region: Region, work: float) -> Known | None:
        """The stored plan for a region with this text; None where there is none."""
        found = self._lifted(process, site, region)
        for entry in self._file(site.path).entries if found is not None else ():
            what = entry.what
            if found is not None and isinstance(what, StoredPlan) and what.usable and (
                    entry.header, entry.code, entry.digest, what.region) == (
                    found.header, found.code, found.digest, found.text):
                return Known(site.path, entry, what, work, found.addresses)
        return None

    def refusal(self, site: Site, loop: Loop) -> Rejected | None:
        """Why an earlier run left ``loop`` alone, if that follows from its code."""
        code = _code_of(site, loop) if self._folder else None
        if code is None:
            return None
        for entry in self._file(site.path).entries:
            what = entry.what
            if (entry.header, entry.code, entry.digest) != (loop.header - site.bias, *code) or not isinstance(
                    what, StoredRefusal):
                continue
            reason = next((r for r in _FOR_GOOD if r.value == what.reason), None)
            if reason is None or what.seen < _FOR_GOOD[reason] or what.used % LOOK_AGAIN == LOOK_AGAIN - 1:
                continue
            self._note(site.path, replace(entry, what=replace(what, seen=0, used=1)))
            self.refused += 1
            return Rejected(reason, _moved(what.detail, site.bias))
        return None

    # -- what this run finds --------------------------------------------------------------------------------------

    def left_alone(self, site: Site, loop: Loop, why: Rejected) -> None:
        """Note that the stages refused ``loop``."""
        code = _code_of(site, loop) if self._folder and why.reason in _FOR_GOOD else None
        if code is not None:
            detail = _moved(why.detail, -site.bias, site.text)
            self._note(site.path, Entry(loop.header - site.bias, *code, StoredRefusal(why.reason.value, detail, 1)))

    def installed(self, process: Process, site: Site, compiled: CompiledRegion, work: float,
                  measured: Measurement | None) -> Entry | None:
        """Note a version that was put in service; its entry. None where it cannot be stored: there was no trial, or
        its plan or code are of this process alone."""
        found = None if measured is None else self._lifted(process, site, compiled.region)
        plan = str(compiled.plan)
        if found is None or measured is None or found.addresses.relative(plan) != plan or (
                found.addresses.told(plan)):
            return None
        what = StoredPlan(found.text, plan, made_digest(compiled, found.addresses), measured.original,
                          measured.version, measured.iterations, measured.even, work, used=1)
        entry = Entry(found.header, found.code, found.digest, what)
        self._note(site.path, entry)
        return entry

    def failed(self, path: str, entry: Entry | None, reason: Reason) -> None:
        """Note that the version of ``entry`` lost, or that its guard never held: its plan is not used any more."""
        if entry is not None and isinstance(entry.what, StoredPlan):
            unheld = reason is Reason.GUARD_FAILED
            self._note(path, replace(entry, what=replace(entry.what, used=0, lost=not unheld, unheld=unheld)))
            file = self._file(path)
            file.entries = tuple(e for e in file.entries if e.key != entry.key)

    def write(self) -> None:
        """Merge what was found into the cache. Imports nothing: the program has ended."""
        for file in self._files.values() if self._folder is not None else ():
            if self._folder is not None and file.identity is not None and file.found:
                folders.add(self._folder, file.name, self._origin, file.identity, _once(file.found))

    # -- files ----------------------------------------------------------------------------------------------------

    def _note(self, path: str, entry: Entry) -> None:
        self._find_origin()
        self._file(path).found.append(entry)

    def _file(self, path: str) -> _File:
        if path not in self._files:
            self._files[path] = self._loaded(path)
        return self._files[path]

    def _loaded(self, path: str) -> _File:
        identity = None if self._folder is None or self._options is None else file_identity(path)
        if identity is None or self._folder is None or self._options is None:
            return _File()
        name = file_name(identity, self._options.fp, self._isa)
        file = _File(name, identity)
        try:
            stored = folders.load(self._folder, name)
        except OddFile as odd:
            self.notes.append(f"the plan cache {os.path.join(self._folder, name)} is ignored: {odd}; it is removed")
            folders.remove(self._folder, name)
            return file
        if stored is not None and stored.file == identity and stored.origin == self._find_origin():
            file.entries = stored.entries
            folders.touch(self._folder, name)
        return file

    @property
    def _isa(self) -> str:
        return self._options.isa.value if self._options is not None and self._options.isa is not None else ""

    def _find_origin(self) -> tuple[str, ...]:
        if not self._origin and self._options is not None:
            from memopt.session.replacing.process import detected_machine

            self._origin = origin(detected_machine(), self._options.fp, self._isa)
        return self._origin

    def _lifted(self, process: Process, site: Site, region: Region) -> _Lifted | None:
        """``region`` as entries tell it; None where there is no cache for it, or its code is not that of one file."""
        if self._folder is None or not self._file(site.path).name:
            return None
        if not all(site.text[0] <= at and at + len(data) <= site.text[1] for at, data in region.code):
            return None
        addresses = _addresses(process, site)
        guards = tuple(sorted(region.guards, key=lambda guard: addresses.relative(str(guard))))
        told = addresses.relative(str(replace(region, code=(), displaced=b"", guards=guards,
                                              rollback=None if region.rollback is None else ())))
        if addresses.told(told):
            return None
        return _Lifted(region.header - site.bias, tuple((at - site.bias, len(data)) for at, data in region.code),
                       hashlib.sha256(b"".join(data for _, data in region.code)).hexdigest(),
                       told, addresses)


def _once(found: list[Entry]) -> tuple[Entry, ...]:
    """Each entry once: a version that was installed and lost in one run counts as both."""
    return tuple(reversed(merged((), found)))


def alike(one: float, two: float) -> bool:
    return abs(one - two) <= ALIKE * max(one, two)


def made_digest(compiled: CompiledRegion, addresses: Addresses) -> str:
    """SHA-256 of the listing of generated code as it would be at any other place."""
    from memopt.plans.addresses import Addresses

    place = compiled.placement
    own = Addresses([(place.code, place.code + place.code_size, "code", place.code),
                     (place.frame, place.frame + place.frame_size, "frame", place.frame),
                     (place.statistics, place.statistics + 4096, "statistics", place.statistics),
                     (place.scratch, place.scratch + place.scratch_size, "scratch", place.scratch)])
    return hashlib.sha256(addresses.relative(own.relative(compiled.listing)).encode()).hexdigest()


def _addresses(process: Process, site: Site) -> Addresses:
    from memopt.plans.addresses import Addresses, of_file
    from runtime.target.memory import mappings

    return Addresses(of_file([(m.start, m.end, m.path) for m in mappings(process.pid)], site.path, site.bias))


def _code_of(site: Site, loop: Loop) -> tuple[tuple[tuple[int, int], ...], str] | None:
    """Link addresses and digest of the code of ``loop``; None where it calls functions, whose code counts as well."""
    from memopt.ir.graph import Kind

    blocks = [site.graph.blocks[b] for b in sorted(loop.blocks)]
    if any(b.kind is Kind.CALL for b in blocks) or not site.path.startswith("/"):
        return None
    return (tuple((b.start - site.bias, len(b.code)) for b in blocks),
            hashlib.sha256(b"".join(b.code for b in blocks)).hexdigest())


def _moved(detail: str, by: int, within: tuple[int, int] | None = None) -> str:
    """``detail`` with its addresses moved; "" where one of them is not ``within`` the code."""
    found = [int(a, 16) for a in _ADDRESS.findall(detail)]
    if within is not None and not all(within[0] <= a < within[1] for a in found):
        return ""
    return _ADDRESS.sub(lambda a: f"{int(a[0], 16) + by:#x}", detail)


def _bias(path: str, start: int, offset: int) -> int | None:
    from memopt.elf.image import ElfError, Image

    try:
        with Image(path) as image:
            return image.load_bias(start, offset)
    except (ElfError, OSError):
        return None
