"""The parts of an entry that only code for a file has: nobody prepares its frame, and nobody takes a version out.

Example: a program that was rewritten runs on another machine. At the first entry the version asks the processor once
whether it may run there. Where it may not, the frame stays taken for good, and the original runs.

In: the layout of the frame, its address, the instruction set of the kernel. Out: code for places in
``passes.version.entry``. It makes no system call and reads no clock. CPUID and XGETBV take microseconds on a virtual
machine, so they are executed once.

- *First entry.* The frame starts as zeros (.bss). The holder of the lock asks the processor, sets the limits on
  iterations that are zero to none, and keeps the address of the frame and the components of the vector state. A trial
  has set limits of its own.
- *Rest.* Where the guards fail ``MISSES_IN_A_ROW`` times with no run in between, the next 1,024 passes by the header
  go to the original at the cost of a comparison, then 2,048, and so on up to 2**20. Threads that count at the same
  moment may lose a count; ``rest`` is compared as a signed number, so that a count too many ends the rest as well.

All flags are dead at the header of such a loop (``Region.flags_dead``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from memopt.ir.linear import Linear
from memopt.ir.plan import Isa
from memopt.ir.region import Region, Relation
from memopt.ir.scop import TRIPS
from memopt.x86.frame import COMPONENTS, FRAME, MISSES, READY, REST, FrameLayout
from memopt.x86.instructions import Bytes, Item, Label, Mem, instruction, jump

LEAST_INSTANCES = 1500
NO_LIMIT = (1 << 63) - 1
MISSES_IN_A_ROW = 1024  # a power of two
_SEVERAL_THREADS = Bytes(bytes.fromhex("64 83 3c 25 18 00 00 00 00"))  # cmp dword ptr fs:[0x18], 0
_LONGEST = 11  # the rests take 2**10 to 2**20 passes
_FITS = 1
_OSXSAVE, _FMA = 27, 12  # bits of ecx, CPUID leaf 1
_AVX2, _BMI2, _AVX512F = 5, 8, 16  # bits of ebx, CPUID leaf 7
_FEATURES = {Isa.SSE2: (), Isa.AVX2: (_AVX2,), Isa.AVX512: (_AVX2, _BMI2, _AVX512F)}
STATE_NEEDED = {Isa.SSE2: 0, Isa.AVX2: 0x6, Isa.AVX512: 0xe6}  # XCR0 bits
VECTOR_STATE = 0xe6  # XCR0: SSE, AVX, opmask, ZMM_Hi256, Hi16_ZMM (Intel SDM volume 1, 13.1)


def least_work(region: Region) -> tuple[Relation, ...]:
    """Guards that an entry has enough to do: entering and leaving a version takes as long as some hundred statement
    instances of the original, and in a file nobody takes out a version that loses.

    Trip counts that are known at entry only are each at least the same number, so that the deepest statement has
    ``LEAST_INSTANCES`` instances. Loops whose trip count varies within the nest count as one iteration.

    Example: a product of n x n matrices, with n a live-in value, wants n >= 12."""
    statement = max(region.scop.statements, key=lambda s: len(s.dimensions), default=None)
    if statement is None:
        return ()
    counters = {d.name for d in statement.dimensions}
    trips = [Linear.symbol(TRIPS), *(d.trips for d in statement.dimensions[1:]
                                     if not d.trips.symbols & counters and not d.trips.quotients)]
    unknown = [t for t in trips if not t.is_constant]
    known = math.prod(t.constant for t in trips if t.is_constant)
    least = math.ceil((LEAST_INSTANCES / max(1, known)) ** (1 / len(unknown)))
    wanted = dict.fromkeys(unknown) if least > 1 else ()
    return tuple(Relation(t - least, False, "there is enough to do") for t in wanted)


@dataclass(frozen=True, slots=True)
class FileEntry:
    """``frame``: its address. ``chunk``: iterations after which the version goes through its guards again, None: as
    many as there are."""

    layout: FrameLayout
    frame: int
    isa: Isa
    chunk: int | None

    def rest(self) -> Iterator[Item]:
        """At the entry, before the lock is taken: go on in the original while the version rests."""
        yield instruction("cmp", self._slot(REST, 4), 0)
        yield jump("entry_resting", "g")

    def first(self) -> Iterator[Item]:
        """With the lock, all registers saved: at the first entry ask whether the version may run here."""
        yield instruction("cmp", self._slot(READY, 4), _FITS)
        yield jump("entry_first", "ne")
        yield Label("entry_ready")

    def alone(self) -> Iterator[Item]:
        """Jumps to ``fail`` where the program has started a second thread: glibc notes that in the thread control
        block."""
        yield _SEVERAL_THREADS
        yield jump("fail", "ne")

    def hit(self) -> Iterator[Item]:
        """All guards hold."""
        yield instruction("mov", self._slot(MISSES, 4), 0)

    def missed(self) -> Iterator[Item]:
        """A guard has failed; changes rax and rcx."""
        misses = self._slot(MISSES, 4)
        yield instruction("mov", "eax", misses)
        yield instruction("add", "eax", 1)
        yield instruction("mov", misses, "eax")
        yield instruction("test", "eax", MISSES_IN_A_ROW - 1)
        yield jump("entry_awake", "ne")
        yield instruction("shr", "eax", MISSES_IN_A_ROW.bit_length() - 1)
        yield instruction("mov", "ecx", _LONGEST)
        yield instruction("cmp", "eax", "ecx")
        yield instruction("cmova", "eax", "ecx")
        yield instruction("mov", "ecx", "eax")
        yield instruction("mov", "eax", MISSES_IN_A_ROW // 2)
        yield instruction("shl", "eax", "cl")
        yield instruction("mov", self._slot(REST, 4), "eax")
        yield Label("entry_awake")

    def aside(self) -> Iterator[Item]:
        """Code that is jumped to: a pass that rests, and the first entry."""
        yield Label("entry_resting")
        yield instruction("sub", self._slot(REST, 4), 1)
        yield jump("displaced")
        yield Label("entry_first")
        yield from self._check_processor()
        for word in (self.layout.limit, self.layout.chunk):
            yield instruction("mov", "rax", NO_LIMIT if word == self.layout.limit or self.chunk is None else self.chunk)
            yield instruction("cmp", self._word(word), 0)
            yield jump(f"entry_set_{word}", "ne")
            yield instruction("mov", self._word(word), "rax")
            yield Label(f"entry_set_{word}")
        yield instruction("lea", "rax", self._word(0))
        yield instruction("mov", self._slot(FRAME), "rax")
        yield instruction("mov", self._slot(READY, 4), _FITS)
        yield instruction("mov", "rbx", self._word(self.layout.register("rbx")))
        yield jump("entry_ready")
        yield Label("entry_unfit")  # the lock stays taken, by nobody
        for name in ("rbx", "rcx", "rdx", "rax"):
            yield instruction("mov", name, self._word(self.layout.register(name)))
        yield instruction("mov", self._word(self.layout.holder), 0)
        yield jump("displaced")

    def _check_processor(self) -> Iterator[Item]:
        """Changes rax, rbx, rcx and rdx. Intel SDM volume 1, 14.3 and 15.2."""
        yield instruction("xor", "eax", "eax")
        yield instruction("cpuid")
        yield instruction("cmp", "eax", 7)
        yield jump("entry_unfit", "b")
        yield instruction("mov", "eax", 1)
        yield instruction("cpuid")
        for bit in (_OSXSAVE, *(() if self.isa is Isa.SSE2 else (_FMA,))):
            yield instruction("bt", "ecx", bit)
            yield jump("entry_unfit", "ae")
        yield instruction("mov", "eax", 7)
        yield instruction("xor", "ecx", "ecx")
        yield instruction("cpuid")
        for bit in _FEATURES[self.isa]:
            yield instruction("bt", "ebx", bit)
            yield jump("entry_unfit", "ae")
        yield instruction("xor", "ecx", "ecx")
        yield instruction("xgetbv")
        yield instruction("and", "eax", VECTOR_STATE)
        yield instruction("mov", self._slot(COMPONENTS), "rax")
        yield instruction("and", "eax", STATE_NEEDED[self.isa])
        yield instruction("cmp", "eax", STATE_NEEDED[self.isa])
        yield jump("entry_unfit", "ne")

    def _slot(self, name: str, size: int = 8) -> Mem:
        return self._word(self.layout.symbols[name], size)

    def _word(self, offset: int, size: int = 8) -> Mem:
        return Mem("rip", displacement=self.frame + offset, size=size)
