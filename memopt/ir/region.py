"""Regions: one hot loop nest, with all that a version of it needs to be entered, guarded and left.

The patch is a jump at the header of the outermost loop. A version is entered with the live-ins of the header, checks
the guards, runs iterations 0 .. H-1 (counted from the current one), gives every location of ``rejoin`` the value it
has at the header for iteration H, restores everything else, and continues in the original code at the header. That
runs iterations H .. R-1: at least one, or ``original_iterations``.

The text form lists all fields, defaults left out, and memopt.ir.parse reads it back. The reason for a guard follows it
in quotation marks (JSON)::

    region 0x401030, flags dead
      displaced 90 90 90 90 90
      r12 = s64 r12
      rbp = s64 rbp
      R = (-rbp + 23) / 1
      guard rbp >= 0 "inner loops run in the last iterations"
      rejoin rbp := H + rbp
      footprint A0 [r12, 184*R + r12) rw
      array A0: f64 at r12, strides (184, 8)
      S0[i<R, j<23]: A0[i, j] = mul(A0[i, j], xmm0)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace

from memopt.ir.cells import CellSet
from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear, spelled
from memopt.ir.scop import LIMIT, TRIPS, Access, Scop, Statement

ROOM = 2  # times the written bytes at the captured values: the next entry may have more iterations

Sample = Mapping[str, int]
"""Values of live-in symbols, by symbol, captured at one entry of a loop."""


@dataclass(frozen=True, slots=True)
class Register:
    """A general-purpose register by its 64-bit name ("rax"), or the program counter ("rip"), which is the header's
    address."""

    name: str

    def __str__(self) -> str:
        return self.name


PROGRAM_COUNTER = Register("rip")


@dataclass(frozen=True, slots=True)
class Cell:
    """``width`` bytes of memory at ``[base + displacement]``. ``base`` is a 64-bit register with the value it has at
    the header, or "" for an absolute address. For a live-in or a rejoin, ``base`` may also be the symbol of another
    live-in of 8 bytes."""

    base: str
    displacement: int
    width: int

    def __str__(self) -> str:
        return f"[{spelled(self.base) if self.base else ''}{self.displacement:+#x}]:{self.width}"


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
    """``symbol`` is the value of ``location`` at entry: its low ``width`` bytes (1, 2, 4 or 8), sign-extended if
    ``signed``, else zero-extended, as a mathematical integer. Only 4-byte values may be unsigned. A cell is read only
    after the guards on the symbols in ``after`` hold."""

    symbol: str
    location: Location
    width: int = 8
    signed: bool = True
    after: frozenset[str] = frozenset()

    def __str__(self) -> str:
        after = ", after " + ", ".join(map(spelled, sorted(self.after))) if self.after else ""
        return f"{spelled(self.symbol)} = {'s' if self.signed else 'u'}{self.width * 8} {self.location}{after}"


@dataclass(frozen=True, slots=True)
class Relation:
    """Guard: ``expression == 0`` (``equal``) or ``expression >= 0``, over live-in symbols and ``R``.

    The version evaluates it in 64 bits; if that overflows, the guard fails.
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

    @property
    def symbols(self) -> frozenset[str]:
        """The symbols of both ends."""
        return self.low.symbols | self.high.symbols

    def __str__(self) -> str:
        return f"[{self.low}, {self.high})"


@dataclass(frozen=True, slots=True)
class Disjoint:
    """Guard: the two intervals share no byte; either may come first in memory."""

    first: Interval
    second: Interval
    why: str

    def __str__(self) -> str:
        return f"{self.first} disjoint {self.second}"


@dataclass(frozen=True, slots=True)
class Progression:
    """Guard: words of a table of row pointers are an arithmetic progression. The word at ``place`` is ``first``, the
    next one ``first + step``, and so on; ``place`` itself need not be one of them.

    Example: ``a[i][j]`` in a nest over i < R loads the words ``[8*i + rdi: i<R]`` of the table in rdi. The guard
    compares these words, which the original certainly loads, and no other: the table may end behind the last of them.
    As in a statement, R stands for H in the outermost loop. The words are read only after all other kinds of guards
    hold.
    """

    place: int
    first: int
    step: int  # bytes, a multiple of 8
    words: tuple[CellSet, ...]  # their addresses; all have one base
    within: Interval  # where all of them lie. Nothing is read there because of it.
    why: str

    def holds(self, values: Mapping[str, int], peek: Callable[[int, int], int]) -> bool:
        """Whether each of the words that iterations 0 .. H-1 load has its place in the progression."""
        addresses = {a for cells in self.words for a in cells.addresses(values)}
        return all((at - self.place) % 8 == 0 and peek(at, 64) == self.first + (at - self.place) // 8 * self.step
                   for at in addresses)

    def __str__(self) -> str:
        words = " and ".join(map(str, self.words))
        return f"rows {self.first:#x} at {self.place:#x}, {self.step:+#x} each: words {words}, within {self.within}"


Guard = Relation | Disjoint | Progression


def symbols_of_guard(guard: Guard) -> frozenset[str]:
    """The symbols whose values ``guard`` needs, R among them where it does."""
    match guard:
        case Relation(expression):
            return expression.symbols
        case Progression(words=words, within=within):
            return frozenset().union(*(c.symbols for c in words), within.symbols)
    return guard.first.symbols | guard.second.symbols


@dataclass(frozen=True, slots=True)
class Trips:
    """The trip count ``R = numerator / divisor``: the iterations that remain at entry, the current one included. The
    guard also checks that the division is exact and that R >= 2."""

    numerator: Linear
    divisor: int

    def __str__(self) -> str:
        return f"R = ({self.numerator}) / {self.divisor}"


@dataclass(frozen=True, slots=True)
class Rejoin:
    """At the header for iteration H, ``location`` holds the low ``width`` bytes of ``value`` (Linear over live-in
    symbols and ``H``). A 4-byte value in a register is zero-extended. ``added``: the value is added to what the cell
    holds."""

    location: Register | Cell
    value: Linear
    width: int = 8
    added: bool = False

    def __str__(self) -> str:
        implied = self.location.width if isinstance(self.location, Cell) else 8
        width = f":{self.width}" if self.width != implied else ""
        return f"{self.location}{width} {'+=' if self.added else ':='} {self.value}"


@dataclass(frozen=True, slots=True)
class MemoryBacked:
    """A register that holds, at the header of every iteration H, the same bits as the memory at ``cell`` (Linear over
    live-in symbols, R and H). The nest reads the cell instead. The guard compares both at entry (H = 0), and the rejoin
    loads the cell for H into ``location``: 4 bytes are zero-extended in a register; other lanes keep their entry value.

    ``near``: an address that the original certainly touches. The guard reads the cell only if it lies in the same
    page. None: the original certainly touches the cell itself."""

    location: Register | Lane
    width: int
    cell: Linear
    near: Linear | None

    def __str__(self) -> str:
        near = "" if self.near is None else f", in the page of [{self.near}]"
        return f"{self.location} is [{self.cell}]:{self.width}{near}"


@dataclass(frozen=True, slots=True)
class RegisterCarried:
    """A loop-carried value in ``location`` that no cell of the program holds. While a version runs, it is the one cell
    of the private ``array``. That cell is the frame slot of the live-in ``symbol``, so it starts with the value that
    the location has at entry. The rejoin loads the cell into the location, as for ``MemoryBacked``."""

    location: Register | Lane
    width: int
    array: str
    symbol: str

    def __str__(self) -> str:
        return f"{self.location} is {self.array}:{self.width}"


@dataclass(frozen=True, slots=True)
class NanFree:
    """Guard, checked after all others hold: there is no NaN of ``size`` bytes in ``where``: a lane, or the elements of
    the array of that name that statements read in iterations 0 .. H-1."""

    where: str | Lane
    size: int

    def __str__(self) -> str:
        return f"no NaN of {self.size} bytes in {self.where}"


@dataclass(frozen=True, slots=True)
class Footprint:
    """The bytes of one array that the region touches in iterations 0 .. R-1."""

    array: str
    interval: Interval
    written: bool


@dataclass(frozen=True, slots=True)
class Region:
    """One hot loop nest, and what its versions need to be entered, guarded and left."""

    header: int
    # The original bytes at ``header`` that the 5-byte jump will cover: whole instructions.
    displaced: bytes
    # Cells that are not on the stack are in the order in which the guards may read them: for each, the guards on the
    # ones before it come first.
    live_ins: tuple[LiveIn, ...]
    trips: Trips
    guards: tuple[Guard, ...]
    rejoin: tuple[Rejoin, ...]
    footprints: tuple[Footprint, ...]
    scop: Scop
    # Every path from the header writes the flags before it reads one. The guard then takes its frame by a locked
    # instruction, and several threads may arrive at once.
    flags_dead: bool = False
    # Where the flags are live: a general register that every path from the header writes before it reads it, "" without
    # one. The guard may use it to take its frame.
    free_register: str = ""
    # The machine code that was lifted, as intervals (address, bytes), by address. The guard compares it at every entry.
    code: tuple[tuple[int, bytes], ...] = ()
    # Iterations that the original has to run itself: H <= R - original_iterations.
    original_iterations: int = 1
    # Not None: some iterations leave the loop for a call where a square root is invalid. The version then copies every
    # cell that it is going to write before it starts (at most that many bytes of each written footprint, in their
    # order). If the invalid flag is raised, it restores the copies and is never run again, and the original runs all
    # iterations.
    rollback: tuple[int, ...] | None = None
    memory_backed: tuple[MemoryBacked, ...] = ()
    register_carried: tuple[RegisterCarried, ...] = ()
    # These may contain no NaN, so that the order of operands does not matter.
    nan_free: tuple[NanFree, ...] = ()
    # Cells on the stack that the loop writes and the version leaves as they were at entry. It is proved that nobody
    # reads them before the last iterations, the original's, have written them.
    dead_stack_cells: tuple[Cell, ...] = ()
    # General registers that the version leaves as they were at entry: every path from the header writes them before it
    # reads them.
    dead_registers: tuple[str, ...] = ()
    # Iterations of the original loop that are one iteration of the region (memopt.cfg.unroll).
    period: int = 1
    # Others may wait for this loop: it reads a cell in each iteration that a version reads once, at entry (a stop
    # flag), or it stores how far it is. A version then goes through its guards again every few milliseconds.
    returns_often: bool = False

    @property
    def publishes(self) -> bool:
        """Whether another thread could see the order of the stores: the nest stores to several places, so that a store
        to one may say that the other is complete (on x86 a plain store is a release store). A shallower statement that
        only initialises the cells of a deeper one says nothing.

        Example: ``for (i...) { ready = i; for (j...) c[i][j] = ...; }``."""
        private = {a.name for a in self.scop.arrays if a.private}
        stores = [s for s in self.scop.statements if s.write.array not in private]
        cells = {str(r.location) for r in self.rejoin if isinstance(r.location, Cell) and r.location.base != "rsp"}
        depth = max((len(s.dimensions) for s in stores), default=0)
        deepest = {_written(s) for s in stores if len(s.dimensions) == depth}
        return len({s.write.array for s in stores} | cells) > 1 or any(
            len(s.dimensions) < depth and _written(s) not in deepest for s in stores)

    @property
    def single_threaded(self) -> bool:
        """Whether no other thread may look while a version runs: at the order of its stores, or at a cell that goes
        back to an earlier value, because the version takes back what it has stored."""
        return self.publishes or self.rollback is not None

    @property
    def nonnegative(self) -> tuple[Linear, ...]:
        """Expressions over live-in symbols and R that are >= 0 once the guards hold; none has products."""
        relations = [g for g in self.guards if isinstance(g, Relation) and not g.expression.products]
        return tuple(e for g in relations for e in ((g.expression, -g.expression) if g.equal else (g.expression,)))

    def __str__(self) -> str:
        lines = [f"region {self.header:#x}"
                 + (", flags dead" if self.flags_dead else "")
                 + (f", {self.original_iterations} original iterations" if self.original_iterations != 1 else "")
                 + (f", period {self.period}" if self.period != 1 else "")
                 + (", returns often" if self.returns_often else "")]
        lines += [f"  displaced {self.displaced.hex(' ')}"] if self.displaced else []
        lines += [f"  free {self.free_register}"] if self.free_register else []
        lines += [f"  code {address:#x} {data.hex(' ')}" for address, data in self.code]
        lines += [f"  {x}" for x in (*self.live_ins, self.trips)]
        lines += [f"  guard {g}" + (f" {json.dumps(g.why)}" if g.why else "") for g in self.guards]
        lines += [f"  rejoin {r}" for r in self.rejoin]
        lines += [f"  guard {n}" for n in self.nan_free]
        lines += [f"  mirror {m}" for m in self.memory_backed]
        lines += [f"  passed {p}, in the slot of {spelled(p.symbol)}" for p in self.register_carried]
        lines += [f"  footprint {f.array} {f.interval} {'rw' if f.written else 'r'}" for f in self.footprints]
        lines += [] if self.rollback is None else [f"  rollback ({', '.join(map(str, self.rollback))})"]
        for name, dead in (("stack cells", self.dead_stack_cells), ("registers", self.dead_registers)):
            lines += [f"  dead {name} {', '.join(map(str, dead))}"] if dead else []
        lines += [f"  {x}" for x in str(self.scop).splitlines()]
        return "\n".join(lines)


def admits(region: Region, values: Mapping[str, int], peek: Callable[[int, int], int]) -> bool:
    """Whether the guards of ``region`` hold for ``values`` of its live-in symbols and R, if a version runs all
    iterations that it may. ``peek(address, bits)`` reads memory. ``nan_free`` is not looked at."""
    for guard in region.guards:
        if isinstance(guard, Disjoint):
            one, two = guard.first, guard.second
            if one.low.evaluate(values) < two.high.evaluate(values) and (
                    two.low.evaluate(values) < one.high.evaluate(values)):
                return False
        elif isinstance(guard, Progression):
            if not guard.holds({LIMIT: values[TRIPS] - region.original_iterations, **values}, peek):
                return False
        elif (number := guard.expression.evaluate(values)) < 0 or (guard.equal and number):
            return False
    return True


def with_room(region: Region, sample: Sample, trips: int) -> Region:
    """``region`` with ``rollback`` large enough for entries with ``trips`` iterations, times ``ROOM``. A region without
    rollback stays as it is. ``sample``: values of its live-in symbols."""
    if region.rollback is None:
        return region
    known = {**sample, TRIPS: trips}
    written = [f.interval for f in region.footprints if f.written]
    return replace(region, rollback=tuple(ROOM * (i.high - i.low).evaluate(known) for i in written))


def _written(statement: Statement) -> Access:
    """What ``statement`` writes in an iteration of the outermost loop, whatever its own loops are called: A[i, j] with
    j < 700 and A[i, l] with l < 700 are the same cells."""
    inner = {d.name: str(d.trips) for d in statement.dimensions[1:]}
    names = dict[str, Linear]()
    for subscript in statement.write.subscripts:
        for counter, _ in sorted(subscript.terms, key=lambda term: (term[1], inner.get(term[0], ""))):
            if counter in inner and counter not in names:
                names[counter] = Linear.symbol(f"{len(names)} < {inner[counter]}")
    return replace(statement.write, subscripts=tuple(s.substitute(names) for s in statement.write.subscripts))
