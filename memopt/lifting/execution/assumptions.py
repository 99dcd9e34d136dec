"""What one lift knows about the captured program, and the locations that hold its values.

Locations are named like the guest state ("rax", "xmm0.1", "cc_op") or, on the stack, "slot:<displacement from
rsp>:<bits>".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Sample
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
from memopt.lifting.values.values import Value

GENERAL = ("rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", *(f"r{n}" for n in range(8, 16)))
LANES = tuple(f"xmm{n}.{lane}" for n in range(16) for lane in range(4))
TO_THE_END = 3
SLOT = "slot:"  # prefix of a location on the stack: "slot:<displacement from rsp>:<bits>"

MOST_TABLES = 8  # of one instruction

State = dict[str, Value]


@dataclass
class Assumptions:
    """What the lift knows about the captured program: it grows from attempt to attempt.

    ``registers``: captured values, signed; ``vectors``: 32 bytes of each vector register ("xmm3"). ``equations``:
    (linear over live-in symbols, its value) to be guarded, each solved for one symbol in ``solved``. ``cells``: live-in
    memory cells, symbol -> (address, bits). ``eager``: also specialise on how registers relate that only follow one
    another; such a guard seldom holds at first entry; ``declined``: where attempts that are not ``eager`` would have
    gone on otherwise if they were. ``turns``: after how many iterations the loop with a header has what its iterations
    exchange where it was (memopt.cfg.unroll). ``by_trips``: express the exit test's counter by the iterations
    that remain. ``split``: branches that go different ways in different iterations, by address: 1 where the difference
    is whether a loop runs at all, or on which side of a bound a counter is, 2 in general, 3 up to the end of the
    iteration.
    ``masked``: branches on data on whose ways operands are masked (memopt.lifting.execution.if_conversion).
    ``deferred``: instructions
    whose widenings wait (memopt.lifting.values.extensions). ``inlined``: headers of loops that never go round.
    ``lanes``:
    vector lanes that hold one number throughout. ``kept``: registers whose carried values are used after the loop.
    ``calls``: the loop calls functions, so what lies below rsp when it is entered is nothing to rely on. ``tables``: of
    pointers to rows, by the address of the instruction that loads from them. ``ordered``: the order of operands is to
    be kept. ``earlier``: live-in values at other entries; what differs between entries becomes a function of one of
    ``parameters`` (live-in symbols; memopt.lifting.execution.parameters) where that is possible, not a number; none of
    ``moving`` is, which advance with the patched loop. ``to_the_end``: the last iteration is looked at, too, where it
    ends in the middle; no code is made of it. ``framed``: rbp is as far from rsp as it was captured: what is
    stored relative to it is on the stack. ``written``: addresses, as captured, of cells that are data: the loop stores
    to them.
    """

    registers: Mapping[str, int]
    peek: Callable[[int, int], int]
    vectors: Mapping[str, bytes] = field(default_factory=dict)
    equations: list[tuple[Linear, int]] = field(default_factory=list)
    solved: dict[str, Linear] = field(default_factory=dict)
    cells: dict[str, tuple[Linear, int]] = field(default_factory=dict)
    eager: bool = False
    by_trips: bool = False
    split: dict[int, int] = field(default_factory=dict)
    masked: set[int] = field(default_factory=set)
    deferred: set[int] = field(default_factory=set)
    inlined: set[int] = field(default_factory=set)
    lanes: dict[str, int] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)
    calls: bool = False
    tables: dict[int, tuple[RowTable, ...]] = field(default_factory=dict)
    ordered: bool = False
    earlier: Sequence[Sample] = ()
    parameters: dict[str, None] = field(default_factory=dict)
    moving: frozenset[str] = frozenset()
    to_the_end: bool = False
    framed: bool = False
    written: frozenset[int] = frozenset()
    declined: set[int] = field(default_factory=set)
    turns: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.framed:
            distance = self.registers["rbp"] - self.registers["rsp"]
            self.equations.append((Linear.symbol("rbp") - Linear.symbol("rsp"), distance))
            self._solve("rbp", Linear.symbol("rsp") + distance)

    def eagerly(self, address: int) -> bool:
        """Whether to go on, at the instruction at ``address``, as only ``eager`` attempts do."""
        if not self.eager:
            self.declined.add(address)
        return self.eager

    def samples(self) -> dict[str, int]:
        values = dict(self.registers)
        values |= {low_byte(r): (v + 128) % 256 - 128 for r, v in self.registers.items()}
        values |= {parameter(s): v for s, v in values.items()}
        for symbol, (address, width) in self.cells.items():
            values[symbol] = values[parameter(symbol)] = self.peek(address.evaluate(values), width)
        return values

    def low_bytes(self) -> dict[Linear, Linear]:
        """Registers that seem to hold a truth in their low byte, and above it what a caller left there: what that byte
        is. Compilers keep what they found out about aliases before a loop in such bytes."""
        return {Linear.symbol(r): self.symbol(low_byte(r)) for r, v in self.registers.items()
                if v % 256 in (0, 1) and not 0 <= v < 256 and r not in self.solved}

    def differs(self, linear: Linear) -> bool:
        """Whether it was seen with another value at an earlier entry."""
        return varies(linear, self.samples(), self.earlier)

    def specialised(self) -> Assumptions:
        """To start again with numbers for all sizes."""
        return replace(self.afresh(), earlier=(), moving=frozenset())

    def moved(self, symbol: str) -> Assumptions:
        """To start again with ``symbol`` as no parameter."""
        return replace(self.afresh(), moving=self.moving | {symbol})

    def stored(self, address: int) -> Assumptions:
        """To start again with the cell at ``address`` as data."""
        return replace(self.afresh(), written=self.written | {address})

    def afresh(self) -> Assumptions:
        """Without what attempts asked for so far."""
        return Assumptions(self.registers, self.peek, self.vectors, eager=self.eager, calls=self.calls,
                           earlier=self.earlier,
                           moving=self.moving, to_the_end=self.to_the_end, framed=self.framed, written=self.written,
                           declined=self.declined, turns=self.turns)

    def add_equation(self, linear: Linear, unknowns: frozenset[str] = frozenset(), symbolic: bool = False) -> None:
        """``symbolic``: a single symbol that differs between entries may stay one, as a parameter."""
        factor, samples = math.gcd(*(c for _, c in linear.terms)), self.samples()
        value = (linear.evaluate(samples) - linear.constant) // factor
        linear = Linear(tuple((s, c // factor) for s, c in linear.terms))
        if not parametric(linear) and varies(linear, samples, self.earlier):
            if symbolic and len(linear.terms) == 1 and linear.symbols.isdisjoint(self.moving):
                found = counted(linear, self._candidates(linear), samples, self.earlier)
                if found is None:
                    self._add_parameter(*linear.symbols)
                    return
            else:
                found = fit(linear, self._candidates(linear), samples, self.earlier)
            if found is not None:
                (chosen,) = found.symbols
                self._add_parameter(live_in(chosen))
                difference = linear.substitute({live_in(chosen): Linear.symbol(chosen)}) - found
                linear, value = Linear(difference.terms), -difference.constant
        unit = [s for s, c in linear.terms if abs(c) == 1]
        if not unit:
            for symbol in sorted(linear.symbols):
                self.add_equation(Linear.symbol(symbol))
            return
        symbol = max(unit, key=lambda s: (not is_parameter(s), s in unknowns, s))
        coefficient = linear.coefficient(symbol)
        solution = (linear.without(symbol) - value) * -coefficient
        self.equations.append((linear, value))
        self._solve(symbol, solution)

    def _candidates(self, linear: Linear) -> Iterator[str]:
        """Live-in symbols that may explain how ``linear`` differs between entries, the likely ones first."""
        excluded = self.moving | (linear.symbols if len(linear.terms) == 1 else frozenset())
        for symbol in dict.fromkeys((*self.parameters, *sorted(linear.symbols), *self.registers, *self.cells)):
            itself = (Linear.symbol(symbol), Linear.symbol(parameter(symbol)))
            if symbol not in excluded and not is_parameter(symbol) and self.symbol(symbol) in itself:
                yield symbol

    def _add_parameter(self, symbol: str) -> None:
        if symbol not in self.parameters:
            self.parameters[symbol] = None
            self._solve(symbol, Linear.symbol(parameter(symbol)))

    def _solve(self, symbol: str, solution: Linear) -> None:
        self.solved = {s: e.substitute({symbol: solution}) for s, e in self.solved.items()} | {symbol: solution}

    def add_cell(self, address: Linear, width: int) -> str:
        symbol = f"m[{address}]:{width}"
        self.cells.setdefault(symbol, (address, width))
        return symbol

    def add_table(self, address: int, place: int) -> None:
        known = self.tables.get(address, ())
        found = None if any(place in t for t in known) else table_around(place, self.peek)
        if found is None or len(known) >= MOST_TABLES:
            raise Rejected(Reason.DATA_DEPENDENT_ADDRESS, f"loaded at {address:#x}")
        self.tables[address] = (*known, found)

    def symbol(self, name: str) -> Linear:
        return self.solved.get(name, Linear.symbol(name))


def slot_name(displacement: int, bits: int) -> str:
    return f"{SLOT}{displacement}:{bits}"


@cache
def slot_range(slot: str) -> tuple[int, int]:
    """Displacement from rsp and size in bytes."""
    _, low, bits = slot.split(":")
    return int(low), int(bits) // 8


def bits_of(location: str) -> int:
    return slot_range(location)[1] * 8 if location.startswith(SLOT) else 64
