"""Numbers in symbolic execution: samples, obligations and specialisation.

Example: the address p + i * stride is not affine while ``stride`` is a symbol. With the captured value of ``stride``
it is.

Every symbol has a sample: its value when the program was captured. A value that is a number only under conditions
records them as obligations. A value that is affine only for a known number raises a request (``AssumeEqual``). The
lifter then starts again with that equation, and a guard checks it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field

from memopt.ir.evaluate import evaluate
from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason
from memopt.lifting.values.extensions import WIDE, DeferredExtensions
from memopt.lifting.values.requests import AssumeEqual, PromoteCell
from memopt.lifting.values.values import Formula, Integer, Loaded, Node, Truth, Value, constant, constant_of, data

LOOP_COUNTER = "c:"  # prefix of the counter symbol of an inner or outer loop
TRIAL = "?"  # prefix of a symbol that stands for an unknown header value during a trial


def fixable(linear: Linear) -> bool:
    """Whether ``linear`` has live-in symbols only, so that its value can be captured and guarded."""
    return not any(s.startswith((LOOP_COUNTER, TRIAL, WIDE)) for s in linear.symbols)


def uneven_part(linear: Linear, divisor: int) -> Linear:
    """The part of ``linear`` that ``divisor`` does not divide: those terms, and the remainder of the constant."""
    return Linear(tuple(t for t in linear.terms if t[1] % divisor), linear.constant % divisor)


@dataclass(frozen=True, slots=True)
class Obligation:
    """A condition ``linear >= 0`` that must hold at ``address`` in every iteration of the loops around it."""

    linear: Linear
    address: int  # of the instruction that relies on it
    why: str  # the fact it states, for messages
    # It comes from an extension to 64 bits. Without it the value is still right modulo 2**32, which is enough for a
    # 32-bit comparison.
    widening: bool = False
    given: tuple[Linear, ...] = ()  # it must hold only where all of these are >= 0
    branch: int | None = None  # the branch that was assumed to go one way
    reason: Reason = Reason.UNPROVED  # for the refusal where it does not hold


@dataclass(frozen=True, slots=True)
class _Known:
    """Results for the parts of one value, so that a part that occurs many times is looked at once."""

    numbers: dict[Value, Integer | None] = field(default_factory=dict)
    without_data: set[Value] = field(default_factory=set)  # parts that depend on no data (_is_data)


@dataclass
class Numbers:
    """The state of symbolic execution that decides when a value is a number."""

    sample: dict[str, int]  # symbol -> its number at capture
    load_address: Callable[[int], Linear]  # identity of a load event -> its address
    condition: Callable[..., Value]  # the value of a condition code (memopt.x86.conditions)
    decide: Callable[[Formula], bool] = bool  # which way a condition goes in every iteration
    obligations: list[Obligation] = field(default_factory=list)
    address: int = 0  # of the instruction being executed
    exploring: bool = False  # one iteration is run to see what moves: samples are used where others specialise
    trial: int = 0  # the number of loops in a trial: their header values have no names yet
    ranges: dict[str, Linear] = field(default_factory=dict)  # counter -> its largest value
    given: tuple[Linear, ...] = ()  # path condition: these are >= 0 where the current instruction is reached
    copy: str = ""  # suffix of loop names, for code that is executed once for each path
    depth: int = 0  # the nesting depth of the current path
    selections: dict[Value, int] = field(default_factory=dict)  # conditional moves -> their addresses
    joined: dict[Value, int] = field(default_factory=dict)  # selects made where paths merge -> address of the branch
    written: frozenset[int] = frozenset()  # captured addresses of cells that are data: the loop stores to them
    low_bytes: Mapping[Linear, Linear] = field(default_factory=dict)  # register -> its low byte, if only that matters
    # Distances to bounds, each with the step that does not divide it yet.
    distances: list[tuple[Linear, int]] = field(default_factory=list)
    strides: frozenset[str] = frozenset()  # symbols that may be multiplied with counters (memopt.ir.linear.Product)

    def __post_init__(self) -> None:
        self.widenings = DeferredExtensions(self.sample)

    # -- numbers ------------------------------------------------------------------------------------------------

    def require(self, linear: Linear, why: str, widening: bool = False, branch: int | None = None,
                reason: Reason = Reason.UNPROVED) -> None:
        """Records the obligation ``linear >= 0`` at the current instruction, unless it holds for any symbols."""
        if not linear.is_constant or linear.constant < 0:
            self.obligations.append(Obligation(linear, self.address, why, widening, self.given, branch, reason))

    @contextmanager
    def under(self, conditions: tuple[Linear, ...], number: int = 0, mark: str = "~") -> Iterator[None]:
        """Executes a path: inside the ``with``, ``conditions`` are added to the path condition of all obligations.

        ``number`` is that of this path. Loops inside are named by the numbers of this path and of the paths around it,
        so that no two loops share a name, and with it a range.
        """
        before = self.given, self.copy, self.depth
        level = str(self.depth) if self.depth else ""
        self.given, self.copy = self.given + conditions, self.copy + (mark + level) * number
        self.depth += 1
        try:
            yield
        finally:
            self.given, self.copy, self.depth = before

    def settled(self, linear: Linear) -> Linear:
        """``linear`` with numbers in place of deferred extensions; that none has wrapped here becomes an obligation."""
        for wide in self.widenings.within(linear):
            for need in wide.needs:
                self.require(need, wide.why, True)
        return self.widenings.numbers(linear)

    def at_sample(self, linear: Linear) -> int:
        """The number of ``linear`` for the captured values."""
        return linear.evaluate(self.sample)

    @property
    def reached(self) -> bool:
        """Whether the captured iteration takes the current path. If not, samples say nothing about it."""
        return all(self.at_sample(known) >= 0 for known in self.given)

    def in_range(self, value: Integer, signed: bool) -> tuple[Linear, tuple[Linear, ...]]:
        """``value`` as a signed or unsigned mathematical number, and what must be >= 0 for that to be right."""
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
        """``value`` as an affine number; None when it is data.

        ``known``: results for parts of the same value. Raises a request (AssumeEqual, PromoteCell) where a captured
        value would make it a number.
        """
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
        """Whether one of ``values`` depends on a load from a changing address or from a cell that is stored to."""
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
        """The value of an operation."""
        raise NotImplementedError  # in memopt.lifting.values.algebra

    def _node_number(self, operator: str, operands: tuple[Value, ...], width: int, known: _Known) -> Integer | None:
        """The result of an operation whose operands are numbers; None when one is data, or the result is no number."""
        if self._is_data(operands, known):  # specialising one operand would not help
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
        """As ``integer``, the affine expression alone."""
        number = self.integer(value)
        return None if number is None else number.linear

    def specialised(self, linear: Linear, symbolic: bool = False) -> Linear:
        """The captured value of ``linear``, in a trial or while exploring; otherwise raises AssumeEqual to ask for it.

        Precondition: ``settles(linear)``. ``symbolic``: a parameter will do instead of a number.
        """
        if self.exploring or not fixable(linear):
            return Linear.of(self.at_sample(linear))
        raise AssumeEqual(linear, symbolic=symbolic, factor=not symbolic)

    def is_stride(self, linear: Linear) -> bool:
        """Whether ``linear`` is no number, and over strides alone."""
        return not linear.is_constant and not linear.products and linear.symbols <= self.strides

    def settles(self, linear: Linear) -> bool:
        """Whether ``linear`` may be specialised. In a trial, it may unless it is known to change in the loop."""
        steady = not any(s.startswith((LOOP_COUNTER, WIDE)) for s in linear.symbols)
        return self.exploring or fixable(linear) or (self.trial > 0 and steady)
