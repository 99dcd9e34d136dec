"""A region: one hot loop nest with everything a version of it needs to be entered, guarded and left.

The patch sits at the header of the outermost loop. A version is entered with the header's live state, checks the
guards, runs iterations 0 .. H-1 (counted from the current one), gives every location of ``rejoin`` its header
value for iteration H, restores everything else, and goes on in the original code at the header, which runs
iterations H .. R-1 (at least one, or as many as the region asks for).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count

from memopt.ir.linear import Linear
from memopt.ir.scop import TRIPS, Scop

ROOM = 2  # times what is written at the captured values: the next entry may come with more iterations

Sample = Mapping[str, int]
"""Values of live-in symbols, by symbol, as they were seen at one entry of a loop."""


@dataclass(frozen=True, slots=True)
class Register:
    """A general-purpose register by its 64-bit name ("rax")."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Cell:
    """``width`` bytes of memory at ``[base + displacement]``; ``base`` is a 64-bit register that holds its
    header value, or "" for an absolute address; for a live-in also the symbol of another one, of 8 bytes."""

    base: str
    displacement: int
    width: int

    def __str__(self) -> str:
        return f"[{self.base}{self.displacement:+#x}]:{self.width}"


@dataclass(frozen=True, slots=True)
class Lane:
    """``width`` bytes of a vector register ("xmm3") from byte ``offset`` on (16 to 31: the upper half of ymm3)."""

    register: str
    offset: int
    width: int

    def __str__(self) -> str:
        return f"{self.register}[{self.offset}:{self.offset + self.width}]"


Location = Register | Cell | Lane


@dataclass(frozen=True, slots=True)
class LiveIn:
    """``symbol`` stands for what ``location`` holds at entry: its low ``width`` bytes (1, 2, 4 or 8),
    sign-extended when ``signed``, else zero-extended, as a mathematical integer. Only 4-byte values may be unsigned.
    A cell is read only when the guards on the symbols in ``after`` hold."""

    symbol: str
    location: Location
    width: int = 8
    signed: bool = True
    after: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.symbol} = {'s' if self.signed else 'u'}{self.width * 8} {self.location}"


@dataclass(frozen=True, slots=True)
class Relation:
    """Guard: ``expression == 0`` (``equal``) or ``expression >= 0``, over live-in symbols and ``R``.

    Evaluated in 64 bits with every overflow counted as failure.
    """

    expression: Linear
    equal: bool
    why: str

    def __str__(self) -> str:
        return f"{self.expression} {'==' if self.equal else '>='} 0"


@dataclass(frozen=True, slots=True)
class Interval:
    """Bytes ``[low, high)``, Linear over live-in symbols and ``R``."""

    low: Linear
    high: Linear

    def __str__(self) -> str:
        return f"[{self.low}, {self.high})"


@dataclass(frozen=True, slots=True)
class Disjoint:
    """Guard: the two intervals share no byte, whichever comes first."""

    first: Interval
    second: Interval
    why: str

    def __str__(self) -> str:
        return f"{self.first} disjoint {self.second}"


@dataclass(frozen=True, slots=True)
class Progression:
    """Guard: the 8-byte words from ``low`` on and below ``high`` hold ``first``, ``first + step``, ..., and each of
    ``pointers`` is ``low`` plus a multiple of 8. Read only when every guard that is no progression holds."""

    low: int
    high: int
    first: int
    step: int
    pointers: tuple[Linear, ...]
    why: str

    def words(self) -> Iterator[tuple[int, int]]:
        """Addresses, and what is there."""
        return zip(range(self.low, self.high, 8), count(self.first, self.step), strict=False)

    def __str__(self) -> str:
        words = f"words [{self.low:#x}, {self.high:#x}) are {self.first:#x}, and {self.step:+#x} each"
        return words + "".join(f", {p} among them" for p in self.pointers)


Guard = Relation | Disjoint | Progression


@dataclass(frozen=True, slots=True)
class Trips:
    """``R = numerator / divisor``, iterations that remain at entry, the current one included; the guard also
    checks that the division is exact and that R >= 2."""

    numerator: Linear
    divisor: int

    def __str__(self) -> str:
        return f"R = ({self.numerator}) / {self.divisor}"


@dataclass(frozen=True, slots=True)
class Rejoin:
    """At the header for iteration H, ``location`` holds ``value`` (Linear over live-in symbols and ``H``),
    stored as the low ``width`` bytes; a 4-byte value in a register is zero-extended."""

    location: Register | Cell
    value: Linear
    width: int = 8

    def __str__(self) -> str:
        return f"{self.location} := {self.value}"


@dataclass(frozen=True, slots=True)
class MemoryBacked:
    """At the header for iteration H, ``location`` holds bit for bit what memory holds at ``cell`` (Linear over live-in
    symbols, R and H). The nest reads the cell instead: the guard compares both at entry (H = 0), the rejoin loads the
    cell for H into ``location``: 4 bytes into a register with the rest cleared, other lanes as at entry.

    ``near``: an address that the original certainly touches. The guard reads the cell only where it lies in the same
    page; None: the original certainly touches the cell itself."""

    location: Register | Lane
    width: int
    cell: Linear
    near: Linear | None

    def __str__(self) -> str:
        near = "" if self.near is None else f", in the page of [{self.near}]"
        return f"{self.location} is [{self.cell}]:{self.width}{near}"


@dataclass(frozen=True, slots=True)
class RegisterCarried:
    """A value that ``location`` passes from one header to the next, and no cell of the program holds: while a version
    runs it is the one cell of the private ``array``, which lies in the slot of the live-in ``symbol``, so that it
    starts with what the location holds at entry. The rejoin loads what it holds by then, as for a mirror."""

    location: Register | Lane
    width: int
    array: str
    symbol: str

    def __str__(self) -> str:
        return f"{self.location} is {self.array}:{self.width}"


@dataclass(frozen=True, slots=True)
class NanFree:
    """Guard, checked when all others hold: no floating-point number of ``size`` bytes in ``where`` is a NaN."""

    where: Interval | Lane
    size: int

    def __str__(self) -> str:
        return f"no NaN of {self.size} bytes in {self.where}"


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes of one array the region touches in iterations 0 .. R-1."""

    array: str
    interval: Interval
    written: bool


@dataclass(frozen=True, slots=True)
class Region:
    """``displaced`` holds the original bytes at ``header`` that the 5-byte jump will cover (whole instructions).

    ``flags_dead``: every way from the header sets the flags before it reads one. The guard then takes its frame by a
    locked instruction, and threads may meet there. ``left``: iterations that the original has to run itself,
    H <= R - left. ``rollback``: when not None, some iterations leave the loop where a square root is invalid. The
    version then copies every written footprint (in their order; that many bytes at most) before it starts, and when
    the invalid flag has come up it takes everything back, runs never again, and the original runs all iterations.
    ``wider``: the version reads cells, and writes cells with what they hold already, that the original passes over.
    ``stale``: cells on the stack that the version leaves as they were at entry: those that the loop writes but, as has
    been proved, nobody reads before the last iterations have written them. ``dead``: general registers that it leaves
    as they were, too: whatever they hold at the header, they are written before they are read.
    ``period``: iterations of the original loop that are one of the region (memopt.cfg.unroll).
    ``nan_free``: where there may be no NaN, so that the order of operands does not matter; when there are any, all
    footprints are read as a whole."""

    header: int
    displaced: bytes
    live_ins: tuple[LiveIn, ...]
    trips: Trips
    guards: tuple[Guard, ...]
    rejoin: tuple[Rejoin, ...]
    footprints: tuple[Footprint, ...]
    scop: Scop
    flags_dead: bool = False
    original_iterations: int = 1
    rollback: tuple[int, ...] | None = None
    memory_backed: tuple[MemoryBacked, ...] = ()
    register_carried: tuple[RegisterCarried, ...] = ()
    speculative_accesses: bool = False
    nan_free: tuple[NanFree, ...] = ()
    dead_stack_cells: tuple[Cell, ...] = ()
    dead_registers: tuple[str, ...] = ()
    period: int = 1

    @property
    def confined(self) -> bool:
        """Whether the version touches more of its footprints than the original does: then they lie in memory that was
        looked at, and belong to one thread."""
        return self.speculative_accesses or self.rollback is not None or bool(self.nan_free)

    @property
    def nonnegative(self) -> tuple[Linear, ...]:
        """What the guards on live-in symbols and R make sure is >= 0."""
        relations = [g for g in self.guards if isinstance(g, Relation)]
        return tuple(e for g in relations for e in ((g.expression, -g.expression) if g.equal else (g.expression,)))

    def __str__(self) -> str:
        lines = [f"region {self.header:#x}"
                 + (f", {self.original_iterations} iterations left" if self.original_iterations > 1 else "")
                 + ("" if self.rollback is None else ", taken back when a root is invalid")
                 + (", chosen by data" if self.speculative_accesses else "")]
        lines += [f"  {x}" for x in (*self.live_ins, self.trips)]
        lines += [f"  guard {g}" for g in self.guards]
        lines += [f"  rejoin {r}" for r in self.rejoin]
        lines += [f"  guard {n}" for n in self.nan_free]
        lines += [f"  mirror {m}" for m in self.memory_backed]
        lines += [f"  passed {p}" for p in self.register_carried]
        lines += [f"  footprint {f.array} {f.interval} {'rw' if f.written else 'r'}" for f in self.footprints]
        lines += [f"  {x}" for x in str(self.scop).splitlines()]
        return "\n".join(lines)


def admits(region: Region, values: Mapping[str, int], peek: Callable[[int, int], int]) -> bool:
    """Whether the guards of ``region`` hold for ``values`` of its live-in symbols and R; ``peek(address, bits)`` reads
    memory."""
    for guard in region.guards:
        if isinstance(guard, Disjoint):
            one, two = guard.first, guard.second
            if one.low.evaluate(values) < two.high.evaluate(values) and (
                    two.low.evaluate(values) < one.high.evaluate(values)):
                return False
        elif isinstance(guard, Progression):
            if any(peek(at, 64) != word for at, word in guard.words()):
                return False
        elif (number := guard.expression.evaluate(values)) < 0 or (guard.equal and number):
            return False
    return True


def confined(region: Region, places: Mapping[Footprint, tuple[int, int]]) -> Region:
    """``region`` with guards that every footprint lies in the bytes ``[low, high)`` given for it.

    What is copied as a whole, or touched where the original may pass over it, may have parts that the loop itself
    never touches."""
    guards = [Relation(bound, False, "the array lies in memory that was looked at")
              for footprint, (low, high) in places.items()
              if footprint.written or region.speculative_accesses or region.nan_free
              for bound in (footprint.interval.low - low, -footprint.interval.high + high)]
    return replace(region, guards=(*region.guards, *guards))


def with_room(region: Region, sample: Sample, trips: int) -> Region:
    """``region`` with room for copies of what is written, where it has to be copied: for entries with ``trips``
    iterations to go, and some more."""
    if region.rollback is None:
        return region
    known = {**sample, TRIPS: trips}
    written = [f.interval for f in region.footprints if f.written]
    return replace(region, rollback=tuple(ROOM * (i.high - i.low).evaluate(known) for i in written))
