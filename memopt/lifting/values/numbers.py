"""Numbers in symbolic execution: samples, what has to hold for a number to be right, and specialisation.

Every symbol has a sample: the number it had when the program was captured. A value that is a number only under
conditions has them recorded as obligations; a value that is linear only for a known number asks for it by raising
Specialise, and the lifter starts again with that equation as a guard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from memopt.ir.evaluate import evaluate
from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason
from memopt.lifting.values.extensions import WIDE, DeferredExtensions
from memopt.lifting.values.requests import AssumeEqual, PromoteCell
from memopt.lifting.values.values import Formula, Integer, Loaded, Node, Truth, Value, constant, constant_of, data

LOOP_COUNTER = "c:"  # prefix of the counter symbol of an inner or outer loop
TRIAL = "?"  # prefix of a symbol that stands for an unknown header value during a trial


def fixable(linear: Linear) -> bool:
    """Only live-in symbols, so that its value can be captured and guarded."""
    return not any(s.startswith((LOOP_COUNTER, TRIAL, WIDE)) for s in linear.symbols)


def uneven_part(linear: Linear, divisor: int) -> Linear:
    """What of ``linear`` a division leaves a rest of, whatever the other symbols are."""
    return Linear(tuple(t for t in linear.terms if t[1] % divisor), linear.constant % divisor)


@dataclass(frozen=True, slots=True)
class Obligation:
    """``linear >= 0`` must hold at ``address`` for every iteration of the loops around it.

    ``widening``: without it a 64-bit value is still right modulo 2**32, which is all a 32-bit comparison looks at.
    ``given``: only where all of these are >= 0. ``branch``: the branch that is taken to go one way.
    ``reason``: what it means where it does not hold.
    """

    linear: Linear
    address: int
    why: str
    widening: bool = False
    given: tuple[Linear, ...] = ()
    branch: int | None = None
    reason: Reason = Reason.UNPROVED


@dataclass(frozen=True, slots=True)
class _Known:
    """What was found out of parts of one value, which may be in many places of it."""

    numbers: dict[Value, Integer | None] = field(default_factory=dict)
    without_data: set[Value] = field(default_factory=set)


@dataclass
class Numbers:
    """``sample`` gives a number for every symbol; ``load_address`` the address of a load event."""

    sample: dict[str, int]
    load_address: Callable[[int], Linear]
    condition: Callable[..., Value]
    decide: Callable[[Formula], bool] = bool  # which way a condition goes in every iteration
    obligations: list[Obligation] = field(default_factory=list)
    address: int = 0
    exploring: bool = False  # one iteration is run to see what moves: samples stand for what would be specialised
    trial: int = 0  # loops being tried, whose header values have no names yet
    ranges: dict[str, Linear] = field(default_factory=dict)  # counter -> its largest value
    given: tuple[Linear, ...] = ()  # >= 0 where the code being run is reached
    copy: str = ""  # tells apart the loops of code that is run more than once
    depth: int = 0  # how many such ways the code being run is in
    selections: dict[Value, int] = field(default_factory=dict)  # conditional moves -> their addresses
    joined: dict[Value, int] = field(default_factory=dict)  # what ways leave that differ -> where they part
    written: frozenset[int] = frozenset()  # addresses of cells that hold data, as captured
    low_bytes: Mapping[Linear, Linear] = field(default_factory=dict)  # of registers of which only that byte counts
    distances: list[Linear] = field(default_factory=list)  # to bounds, waiting to be divided by a step

    def __post_init__(self) -> None:
        self.widenings = DeferredExtensions(self.sample)

    # -- numbers ------------------------------------------------------------------------------------------------

    def require(self, linear: Linear, why: str, widening: bool = False, branch: int | None = None,
                reason: Reason = Reason.UNPROVED) -> None:
        if not linear.is_constant or linear.constant < 0:
            self.obligations.append(Obligation(linear, self.address, why, widening, self.given, branch, reason))

    @contextmanager
    def under(self, conditions: tuple[Linear, ...], number: int = 0, mark: str = "~") -> Iterator[None]:
        """What is required inside is required only where ``conditions`` are >= 0; its loops are named by the
        ``number`` of this way and of those around it: no two loops have one name, whose ranges would be one."""
        before = self.given, self.copy, self.depth
        level = str(self.depth) if self.depth else ""
        self.given, self.copy = self.given + conditions, self.copy + (mark + level) * number
        self.depth += 1
        try:
            yield
        finally:
            self.given, self.copy, self.depth = before

    def settled(self, linear: Linear) -> Linear:
        """``linear`` with numbers for widened values, which must not have wrapped around here."""
        for wide in self.widenings.within(linear):
            for need in wide.needs:
                self.require(need, wide.why, True)
        return self.widenings.numbers(linear)

    def at_sample(self, linear: Linear) -> int:
        return linear.evaluate(self.sample)

    @property
    def reached(self) -> bool:
        """Whether the captured iteration gets here; if not, samples tell nothing."""
        return all(self.at_sample(known) >= 0 for known in self.given)

    def in_range(self, value: Integer, signed: bool) -> tuple[Linear, tuple[Linear, ...]]:
        """The mathematical value as a signed or unsigned number, and what must be >= 0 for that to be right."""
        size = 1 << value.width
        low = -(size >> 1) if signed else 0
        linear = self.settled(value.linear)
        turns = (self.at_sample(linear) - low) // size if self.reached or fixable(linear) else 0
        linear = linear - turns * size
        if linear.is_constant or (value.width == 64 and signed):
            return linear, ()
        if value.width == 64 and not turns:
            return linear, (linear,)
        return linear, (linear - low, -linear + (low + size - 1))

    def integer(self, value: Value, known: _Known | None = None) -> Integer | None:
        """``value`` as a linear number, asking for specialisation when that makes it one; None when it is data.
        ``known``: what was found on the way here."""
        match value:
            case Integer():
                return value
            case Loaded(event, width):
                where = self.load_address(event)
                if fixable(where) and self.at_sample(where) not in self.written:
                    raise PromoteCell(where, width)
                return None
            case Truth(bool() as holds, width):
                return constant(int(holds), width)
            case Node("select", (Truth(formula), *either), _) if value in self.selections and not list(data(formula)):
                before, self.address = self.address, self.selections[value]
                chosen = either[0 if self.decide(formula) else 1]
                self.address = before
                return self.integer(chosen, known)
            case Node("shr" | "sar", (Integer(linear, _), Integer() as count), _) if not self.exploring:
                uneven = uneven_part(self.widenings.numbers(linear), 1 << (constant_of(count) or 0))
                if uneven.terms and fixable(uneven):
                    raise AssumeEqual(Linear(uneven.terms))
                return None
            case Node():
                known = _Known() if known is None else known
                if value not in known.numbers:
                    known.numbers[value] = self._node_number(value.operator, value.operands, value.width, known)
                return known.numbers[value]
        return None

    def _is_data(self, values: Iterable[Value], known: _Known) -> bool:
        """Whether one is computed from what is loaded from a cell that changes with the iteration, or is stored to."""
        seen, pending = set[Value](), list(values)
        while pending:
            value = pending.pop()
            if value in seen or value in known.without_data:
                continue
            seen.add(value)
            match value:
                case Loaded(event, _):
                    where = self.load_address(event)
                    if not fixable(where) or self.at_sample(where) in self.written:
                        return True
                case Node(operator, operands, _) if operator != "select":
                    pending += operands
        known.without_data.update(seen)
        return False

    def compute(self, operator: str, operands: tuple[Value, ...], width: int) -> Value:
        raise NotImplementedError  # memopt.lifting.values.algebra

    def _node_number(self, operator: str, operands: tuple[Value, ...], width: int, known: _Known) -> Integer | None:
        """The number an operation gives once its operands are known numbers."""
        if self._is_data(operands, known):  # nothing is asked for in vain
            return None
        found = [self.integer(o, known) for o in operands]
        numbers = tuple(n for n in found if n is not None)
        if len(numbers) < len(operands):
            return None
        result = self.compute(operator, numbers, width) if numbers != operands else None
        if isinstance(result, Integer):
            return result
        unknown = [n.linear for n in numbers if not n.linear.is_constant]
        if unknown and not self.exploring:
            if all(map(fixable, unknown)):
                raise AssumeEqual(unknown[0])
            return None
        values = tuple(self.at_sample(n.linear) % (1 << n.width) for n in numbers)
        number = evaluate(operator, values, tuple(n.width for n in numbers), width)
        return None if number is None else constant(number, width)

    def linear(self, value: Value) -> Linear | None:
        number = self.integer(value)
        return None if number is None else number.linear

    def specialised(self, linear: Linear, symbolic: bool = False) -> Linear:
        """A number in place of ``linear``, which ``settles``: asks for it, or takes the sample in a guess."""
        if self.exploring or not fixable(linear):
            return Linear.of(self.at_sample(linear))
        raise AssumeEqual(linear, symbolic=symbolic, factor=not symbolic)

    def settles(self, linear: Linear) -> bool:
        """Whether there is a number for ``linear``: in a trial, for what keeps its value, as far as one can tell."""
        steady = not any(s.startswith((LOOP_COUNTER, WIDE)) for s in linear.symbols)
        return self.exploring or fixable(linear) or (self.trial > 0 and steady)
