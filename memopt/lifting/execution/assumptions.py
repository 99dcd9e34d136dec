"""Assumptions of one attempt at lifting about the captured program, and names for the locations of its values.

Example: ``a[i * n]`` is affine once ``n == 1000`` is assumed, as captured. The attempt that needs this asks for it
(memopt.lifting.values.requests); ``Assumptions.granting`` makes the assumptions of the next attempt.

In: captured registers, memory and vectors, values at earlier entries. Out: what symbolic execution may rely on, as
equations over live-in symbols, live-in cells, and choices of how to model branches, loops and extensions. Equations
and invariant lanes become guards of the version, so that it only runs where they hold.

Locations are named like the guest state of VEX ("rax", "xmm0.1", "cc_op"); on the stack
"slot:<displacement from rsp>:<bits>".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cache

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear, Product, product
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Sample, Trips
from memopt.ir.scop import TRIPS
from memopt.lifting.execution.parameters import (
    counted,
    fit,
    is_parameter,
    live_in,
    low_byte,
    parameter,
    parametric,
    varies,
)
from memopt.lifting.execution.row_tables import RowTable, table_around
from memopt.lifting.values.requests import (
    AssumeAll,
    AssumeEqual,
    AssumeInvariantLane,
    AssumeRowTable,
    DeferExtension,
    ExpressByTrips,
    InlineLoop,
    KeepLiveOut,
    KeepOperandOrder,
    MaskOperands,
    NotAParameter,
    PromoteCell,
    RelateToTrips,
    Request,
    SplitPaths,
    TreatAsData,
)
from memopt.lifting.values.values import Value

GENERAL = ("rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", *(f"r{n}" for n in range(8, 16)))
BASES = (*GENERAL, "rip")  # whose values at the header addresses may contain; rip is the header itself
LANES = tuple(f"xmm{n}.{lane}" for n in range(16) for lane in range(4))
TO_THE_END = 3  # the level of ``Assumptions.split`` at which paths are not merged before the iteration ends
SLOT = "slot:"  # prefix of a location on the stack: "slot:<displacement from rsp>:<bits>"

MOST_TABLES = 8  # row tables that one instruction may load from

State = dict[str, Value]
Step = int | Linear
"""What an iteration adds to a location: a number, or a stride (over ``Assumptions.strides``)."""


@dataclass(frozen=True, slots=True)
class Hints:
    """Notes of attempts, from which ``lift_region`` knows which views are worth trying after them."""

    # Instructions at which an attempt that is not ``eager`` gave up a value that an eager one would specialise.
    declined: set[int] = field(default_factory=set)
    # Header -> number of iterations after which the values that iterations of its loop exchange are back where they
    # were (memopt.cfg.unroll): 2 where two buffers are swapped.
    exchange_periods: dict[int, int] = field(default_factory=dict)
    # Strides that differ between entries: ``Assumptions.strided`` decides what becomes of them.
    strides: set[Linear] = field(default_factory=set)


@dataclass(frozen=True)
class Assumptions:
    """The assumptions of an attempt at lifting about the captured program; ``granting`` a request makes new ones.

    Frozen, but for two things that an attempt adds to: ``hints``, and ``cells``, since the memory model meets stack
    cells while it executes, and the executor needs their symbols in the same attempt. A cell's symbol says which cell
    it is, so adding one assumes nothing. Attempts of one view share both, unless a request drops all cells.
    """

    registers: Mapping[str, int]  # captured values, signed
    peek: Callable[[int, int], int]  # (address, bits) -> captured memory as a signed number
    vectors: Mapping[str, bytes] = field(default_factory=dict)  # the known ones: "xmm3" -> 32 bytes
    # (linear over live-in symbols, its value): each becomes a guard.
    equations: tuple[tuple[Linear, int], ...] = ()
    solved: Mapping[str, Linear] = field(default_factory=dict)  # each equation solved for one symbol
    cells: dict[str, tuple[Linear, int]] = field(default_factory=dict)  # live-in cells: symbol -> (address, bits)
    # Also specialise on relations between registers that are only seen to follow one another. Such a guard seldom
    # holds at the first entry.
    eager: bool = False
    by_trips: bool = False  # express the exit test's counter by R, the iterations that remain
    # R as an earlier attempt found it, and what an iteration of the patched loop adds to each location: R may stand in
    # equations and solutions. None: it does not.
    trips: Trips | None = None
    steps: Mapping[str, Step] = field(default_factory=dict)
    # Branches that go different ways in different iterations, by address, with a level: 1 where the paths differ in
    # whether a loop runs at all, or on which side of a bound a counter is; 2 in general; 3 (``TO_THE_END``) where
    # they do not meet before the end of the iteration.
    split: Mapping[int, int] = field(default_factory=dict)
    masked: frozenset[int] = frozenset()  # branches on data whose paths run on masked operands (if_conversion)
    deferred: frozenset[int] = frozenset()  # instructions whose extensions are deferred (values.extensions)
    inlined: frozenset[int] = frozenset()  # headers of loops whose back edge is never taken
    lanes: Mapping[str, int] = field(default_factory=dict)  # vector lanes that hold one number throughout
    kept: frozenset[str] = frozenset()  # registers whose carried values are used after the loop
    calls: bool = False  # the loop calls functions: nothing below rsp at its header can be relied on
    tables: Mapping[int, tuple[RowTable, ...]] = field(default_factory=dict)  # by the address of the load
    ordered: bool = False  # operands keep the order of the machine code
    # Values of live-in symbols at earlier entries. A value that differs between entries becomes a function of a
    # parameter, where that is possible, instead of a number.
    earlier: Sequence[Sample] = ()
    parameters: tuple[str, ...] = ()  # live-in symbols that may differ between entries (execution.parameters)
    moving: frozenset[str] = frozenset()  # symbols that advance with the patched loop, and so are no parameters
    # A factor of counters that differs between entries becomes a stride: a parameter that is multiplied with counters
    # (memopt.ir.linear.Product). Otherwise it is a number, and with it every size.
    strided: bool = False
    strides: tuple[str, ...] = ()  # the parameters that are factors of counters
    # Registers that the loop writes. What they hold at one entry may explain a size by accident.
    overwritten: frozenset[str] = frozenset()
    # Execute the last iteration, too, where it ends in its middle. (For surveys: no code is made of it.)
    to_the_end: bool = False
    framed: bool = False  # rbp is a frame pointer: what is stored relative to it is on the stack
    written: frozenset[int] = frozenset()  # captured addresses of cells that hold data: the loop stores to them
    hints: Hints = field(default_factory=Hints)

    def eagerly(self, address: int) -> bool:
        """Whether this attempt is ``eager``. If it is not, the hints note that the instruction at ``address`` could be
        specialised.
        """
        if not self.eager:
            self.hints.declined.add(address)
        return self.eager

    def samples(self) -> dict[str, int]:
        """The captured value of each live-in symbol, of its low byte, and of it as a parameter; and R, if known."""
        values = dict(self.registers)
        values |= {low_byte(r): (v + 128) % 256 - 128 for r, v in self.registers.items()}
        values |= {parameter(s): v for s, v in values.items()}
        for symbol, (address, width) in self.cells.items():
            self._add_trips(values)  # an address may contain it, and it may depend on cells
            values[symbol] = values[parameter(symbol)] = self.peek(address.evaluate(values), width)
        self._add_trips(values)
        return values

    def _add_trips(self, values: dict[str, int]) -> None:
        if self.trips is not None and self.trips.numerator.symbols <= values.keys():
            values[TRIPS] = self.trips.numerator.evaluate(values) // self.trips.divisor

    def symbol(self, name: str) -> Linear:
        """A live-in value as an expression: the solution of its equation, if there is one, else its own symbol."""
        return self.solved.get(name, Linear.symbol(name))

    def step(self, linear: Linear, steps: Mapping[str, Step]) -> int:
        """The advance of ``linear``, over live-in symbols and R, in an iteration of the patched loop, which adds
        ``steps`` to locations. Raises Rejected(NON_AFFINE) where it is no number."""
        found = self.advance(linear, steps)
        if not found.is_constant:
            raise Rejected(Reason.NON_AFFINE, f"{linear} advances by {found}")
        return found.constant

    def advance(self, linear: Linear, steps: Mapping[str, Step]) -> Linear:
        """The same, over strides."""
        return sum((self._advance_of(s, steps) * c for s, c in linear.terms), Linear())

    def _advance_of(self, symbol: str, steps: Mapping[str, Step]) -> Linear:
        if isinstance(symbol, Product):
            one, two = symbol.factors
            first, second = self._advance_of(one, steps), self._advance_of(two, steps)
            if first != Linear() and second != Linear():
                raise Rejected(Reason.NON_AFFINE, f"{one} and {two} are multiplied, and both advance")
            return product(first, Linear.symbol(two)) + product(second, Linear.symbol(one))
        step = -1 if symbol == TRIPS else steps.get(self._location(live_in(symbol)), 0)
        return step if isinstance(step, Linear) else Linear.of(step)

    def _location(self, symbol: str) -> str:
        """The location of a live-in value; "" for memory that is not on the stack."""
        if symbol not in self.cells:
            return symbol
        address, width = self.cells[symbol]
        offset = address - self.symbol("rsp")
        return slot_name(offset.constant, width) if offset.is_constant else ""

    def low_bytes(self) -> dict[Linear, Linear]:
        """Registers with a truth value in the low byte and leftovers of a caller above it, and the symbol of that byte.

        Compilers keep the result of an alias test that they make before a loop in such a byte."""
        return {Linear.symbol(r): self.symbol(low_byte(r)) for r, v in self.registers.items()
                if v % 256 in (0, 1) and not 0 <= v < 256 and r not in self.solved}

    def add_cell(self, address: Linear, width: int) -> str:
        """The symbol of the live-in cell of ``width`` bits at ``address``, which is one of ``cells`` from now on."""
        symbol = f"m[{address}]:{width}"
        self.cells.setdefault(symbol, (address, width))
        return symbol

    def in_frame(self) -> Assumptions:
        """These assumptions, and that rbp is a frame pointer at its captured distance from rsp."""
        distance = self.registers["rbp"] - self.registers["rsp"]
        equation = (Linear.symbol("rbp") - Linear.symbol("rsp"), distance)
        return replace(self, framed=True, equations=(*self.equations, equation),
                       solved=self._solving("rbp", Linear.symbol("rsp") + distance))

    # -- requests -----------------------------------------------------------------------------------------------

    def granting(self, request: Request) -> Assumptions:
        """The assumptions of the next attempt. Raises Rejected(DATA_DEPENDENT_ADDRESS) where a row table is asked for
        and there is none."""
        match request:
            case AssumeEqual() | AssumeAll() | RelateToTrips():
                return self._granting_equations(request)
            case PromoteCell(address, width):
                self.add_cell(address, width)
                return self
            case SplitPaths(address, least):
                return replace(self, split={**self.split, address: max(self.split.get(address, 0) + 1, least)})
            case MaskOperands(address):
                return replace(self, masked=self.masked | {address})
            case DeferExtension(addresses):
                return replace(self, deferred=self.deferred | addresses)
            case InlineLoop(header):
                return replace(self, inlined=self.inlined | {header})
            case AssumeInvariantLane(lanes):
                return replace(self, lanes={**self.lanes, **lanes})
            case AssumeRowTable(address, place):
                return replace(self, tables={**self.tables, address: self._tables(address, place)})
            case KeepLiveOut(locations):
                return replace(self, kept=self.kept | locations)
            case KeepOperandOrder():
                return replace(self, ordered=True)
            case ExpressByTrips():
                return replace(self, by_trips=True)
            case NotAParameter(symbol):
                return replace(self._without_requests(), moving=self.moving | {symbol})
            case TreatAsData(cell):
                return replace(self._without_requests(), written=self.written | {cell})
        raise TypeError(f"a request of another kind: {request!r}")

    def _without_requests(self) -> Assumptions:
        """The assumptions of the first attempt; only ``moving`` and ``written`` are kept. All other requests were made
        under assumptions that do not hold any more, over symbols that may not exist now.
        """
        known = Assumptions(self.registers, self.peek, self.vectors, eager=self.eager, calls=self.calls,
                            earlier=self.earlier, moving=self.moving, strided=self.strided,
                            overwritten=self.overwritten, to_the_end=self.to_the_end, written=self.written,
                            hints=self.hints)
        return known.in_frame() if self.framed else known

    def _granting_equations(self, request: AssumeEqual | AssumeAll | RelateToTrips) -> Assumptions:
        match request:
            case AssumeEqual():
                return self._equating((request,))
            case AssumeAll(needs):
                return self._equating(needs)
            case RelateToTrips(trips, steps):
                return self._relating(trips, steps)

    def _relating(self, trips: Trips, steps: Mapping[str, Step]) -> Assumptions:
        """These assumptions, with R in them: the counter of the exit test follows from it, and each equation becomes
        one that has the same value at every entry."""
        parameters = {s: Linear.symbol(parameter(s)) for s in self.parameters}
        known = replace(self, trips=trips, steps=steps, equations=(), solved=parameters)
        known = known.in_frame() if self.framed else known
        for symbol, value in counted_down(trips, lambda symbol: self.step(Linear.symbol(symbol), steps)).items():
            known = replace(known, solved=known._solving(symbol, value))
        for linear, _ in self.equations:
            linear = known._steady(linear.substitute(known.solved))
            known = known if linear.is_constant else known._with_equation(linear)
        return known

    def _steady(self, linear: Linear) -> Linear:
        """``linear``, plus as many R as make it the same at every entry. Where R is not known, ``linear``."""
        return linear + Linear.symbol(TRIPS, self.step(linear, self.steps))

    def _equating(self, needs: Sequence[AssumeEqual]) -> Assumptions:
        """These assumptions, with an equation for each of ``needs``. If a stride differs between entries, each size
        needs a version of its own: the result is then the assumptions of the first attempt without ``earlier`` entries,
        so that all sizes are numbers; or, if the assumptions are ``strided``, the stride is a parameter.

        Raises Rejected(NON_AFFINE) where a stride would have to be a number all the same: it is multiplied with another
        value.
        """
        known = self
        for need in needs:
            linear = need.linear.substitute(known.solved)
            if linear.is_constant:  # it follows from the other equations
                continue
            if need.factor and varies(linear, known.samples(), known.earlier):  # a stride
                known.hints.strides.add(linear)
                if not self.strided:
                    return replace(known._without_requests(), earlier=(), moving=frozenset())
                if need.linear.substitute(self.solved).symbols <= frozenset(self.strides):
                    raise Rejected(Reason.NON_AFFINE, f"{linear} would have to be a number")
                known = known._with_stride(linear)
                continue
            known = known._with_equation(linear, need.unknowns, need.symbolic)
        return known

    def _with_stride(self, linear: Linear) -> Assumptions:
        """These assumptions, with ``linear``, over live-in symbols, as an expression over strides. Raises
        Rejected(NON_AFFINE) where it is none."""
        known = self if parametric(linear) else self._with_equation(linear, symbolic=True)
        stride = linear.substitute(known.solved)
        if not parametric(stride) or stride.is_constant or stride.products:
            raise Rejected(Reason.NON_AFFINE, f"the stride {linear} is no function of one parameter")
        return replace(known, strides=tuple(dict.fromkeys((*known.strides, *sorted(stride.symbols)))))

    def _with_equation(self, linear: Linear, unknowns: frozenset[str] = frozenset(),
                       symbolic: bool = False) -> Assumptions:
        """These assumptions, and that ``linear`` has its captured value. If it had other values at earlier entries, it
        becomes a function of a parameter, where that is possible; ``symbolic``: a single symbol may become a parameter
        itself.

        Where R is known, the equation is one over R that has the same value at every entry. Raises Rejected(TRIP_COUNT)
        where R itself would have to be a number.
        """
        linear, advancing = self._steady(linear), linear
        if linear.is_constant:
            raise Rejected(Reason.TRIP_COUNT, f"{advancing} is another number at every entry")
        factor, samples, known = math.gcd(*(c for _, c in linear.terms)), self.samples(), self
        value = (linear.evaluate(samples) - linear.constant) // factor
        linear = Linear(tuple((s, c // factor) for s, c in linear.terms))
        if not parametric(linear) and varies(linear, samples, self.earlier):
            if symbolic and len(linear.terms) == 1 and linear.symbols.isdisjoint(self.moving):
                found = counted(linear, self._candidates(linear), samples, self.earlier)
                if found is None:
                    return self._with_parameter(*linear.symbols)
            else:
                found = fit(linear, self._candidates(linear), samples, self.earlier)
            if found is not None:
                (chosen,) = found.symbols
                known = self._with_parameter(live_in(chosen))
                difference = linear.substitute({live_in(chosen): Linear.symbol(chosen)}) - found
                linear, value = Linear(difference.terms), -difference.constant
        inside = frozenset().union(*(p.inside for p in linear.products), linear.products)
        unit = [s for s, c in linear.terms if abs(c) == 1 and s != TRIPS and s not in inside]
        if not unit:
            if TRIPS in linear.symbols:
                raise Rejected(Reason.TRIP_COUNT, f"{advancing} is another number at every entry")
            if inside:
                raise Rejected(Reason.NON_AFFINE, f"{advancing} would have to be a number")
            for symbol in sorted(linear.symbols):
                known = known._with_equation(Linear.symbol(symbol))
            return known
        symbol = max(unit, key=lambda s: (not is_parameter(s), s in unknowns, s))
        coefficient = linear.coefficient(symbol)
        solution = (linear.without(symbol) - value) * -coefficient
        return replace(known, equations=(*known.equations, (linear, value)), solved=known._solving(symbol, solution))

    def _candidates(self, linear: Linear) -> Iterator[str]:
        """Live-in symbols that may explain how ``linear`` differs between entries, the likely ones first.

        One of its own symbols explains it only if the others are numbers. The two ends of an array move together, so
        that is unlikely. What the loop overwrites comes last.
        """
        excluded = self.moving | (linear.symbols if len(linear.terms) == 1 else frozenset())
        others = sorted((*sorted(linear.symbols), *self.registers, *self.cells),
                        key=lambda s: 2 if s in self.overwritten - linear.symbols else s in linear.symbols)
        for symbol in dict.fromkeys((*self.parameters, *others)):
            itself = (Linear.symbol(symbol), Linear.symbol(parameter(symbol)))
            moves = symbol == TRIPS or self.advance(Linear.symbol(symbol), self.steps) != Linear()
            if symbol not in excluded and not (moves or is_parameter(symbol)) and self.symbol(symbol) in itself:
                yield symbol

    def _with_parameter(self, symbol: str) -> Assumptions:
        if symbol in self.parameters:
            return self
        return replace(self, parameters=(*self.parameters, symbol),
                       solved=self._solving(symbol, Linear.symbol(parameter(symbol))))

    def _solving(self, symbol: str, solution: Linear) -> dict[str, Linear]:
        return {s: e.substitute({symbol: solution}) for s, e in self.solved.items()} | {symbol: solution}

    def _tables(self, address: int, place: int) -> tuple[RowTable, ...]:
        """The row tables that the instruction at ``address`` loads from, with the one around ``place``."""
        known = self.tables.get(address, ())
        found = None if any(place in t for t in known) else table_around(place, self.peek)
        if found is None or len(known) >= MOST_TABLES:
            raise Rejected(Reason.DATA_DEPENDENT_ADDRESS, f"the address is loaded at {address:#x}")
        return (*known, found)


def counted_down(trips: Trips, step: Callable[[str], int]) -> dict[str, Linear]:
    """The exit test's counter as an expression in R: {symbol: expression}; ``step``: the advance of a symbol.

    Example: R = n - i gives {i: n - R}. Empty if no advancing symbol has a coefficient that divides all others.
    """
    for symbol, coefficient in trips.numerator.terms:
        rest = Linear.symbol(TRIPS, trips.divisor) - trips.numerator.without(symbol)
        if step(symbol) and not any(n % coefficient for n in (rest.constant, *(c for _, c in rest.terms))):
            terms = tuple((s, c // coefficient) for s, c in rest.terms)
            return {symbol: Linear(terms, rest.constant // coefficient)}
    return {}


def slot_name(displacement: int, bits: int) -> str:
    """The location of ``bits`` bits on the stack at ``displacement`` from rsp."""
    return f"{SLOT}{displacement}:{bits}"


@cache
def slot_range(slot: str) -> tuple[int, int]:
    """The displacement from rsp and the size in bytes of a location on the stack."""
    _, low, bits = slot.split(":")
    return int(low), int(bits) // 8


def bits_of(location: str) -> int:
    """The width of a location: registers and lanes have 64 bits."""
    return slot_range(location)[1] * 8 if location.startswith(SLOT) else 64
