"""Symbolic values: the bit pattern that a register or memory cell holds during symbolic execution.

Example: in ``for (i) { rax = 4 * i + 8; xmm0 = a[i] + 1.0 }``, rax is ``Integer(4*i + 8, 64)`` and xmm0 is
``Node("fadd", (Loaded(..), ..), 64)``.

Invariant: an ``Integer`` is congruent to its ``linear`` modulo 2**width, exactly, whatever the symbols are. Where an
operation needs the mathematical value (extension, comparison), the executor records an obligation. A value that is
not affine is a ``Node`` and is never guessed.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Mapping
from weakref import WeakValueDictionary

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear


@dataclass(frozen=True, slots=True)
class Integer:
    """An affine value: congruent to ``linear`` modulo 2**width."""

    linear: Linear
    width: int

    def __str__(self) -> str:
        return f"{self.linear}:{self.width}"


@dataclass(frozen=True, slots=True)
class Loaded:
    """The value that the load event with the identity ``event`` read."""

    event: int
    width: int


@dataclass(frozen=True, slots=True)
class Carried:
    """The value of ``location`` at the header of ``loop`` in the current iteration, where it is not affine."""

    loop: str
    location: str
    width: int = 64


@dataclass(frozen=True, slots=True)
class Final:
    """The value of ``location`` when ``loop`` is left."""

    loop: str
    location: str
    width: int = 64


@dataclass(frozen=True, slots=True)
class LiveVector:
    """The live-in value of a 64-bit lane of a vector register ("xmm3.0")."""

    location: str
    width: int = 64


@dataclass(frozen=True, slots=True, init=False, eq=False, weakref_slot=True)
class Node:
    """An operation that is not affine. Equal nodes are the same object.

    This is hash consing (Ershov, On Programming of Arithmetic Operations, 1958): values share their parts, so a small
    graph may stand for a tree of any size. Comparing and hashing take constant time.
    """

    operator: str
    operands: tuple[Value, ...]
    width: int

    def __new__(cls, operator: str, operands: tuple[Value, ...], width: int) -> Node:
        key = operator, operands, width
        node = _nodes.get(key)
        if node is None:
            with _making:
                node = _nodes.get(key)
                if node is None:
                    node = object.__new__(cls)
                    for name, value in zip(("operator", "operands", "width"), key, strict=True):
                        object.__setattr__(node, name, value)
                    _nodes[key] = node
        return node

    def __reduce__(self) -> tuple[type[Node], tuple[str, tuple[Value, ...], int]]:
        return Node, (self.operator, self.operands, self.width)


_nodes: WeakValueDictionary[tuple[str, tuple[Value, ...], int], Node] = WeakValueDictionary()
_making = threading.Lock()


@dataclass(frozen=True, slots=True)
class Atom:
    """An affine comparison: ``linear == 0`` if ``equal``, else ``linear >= 0``."""

    linear: Linear
    equal: bool
    needs: tuple[Linear, ...] = ()  # it is right only where each of these is >= 0
    width: int = 64  # bits of the machine comparison


@dataclass(frozen=True, slots=True)
class Opaque:
    """A truth value that depends on data; ``value`` has one bit."""

    value: Value


@dataclass(frozen=True, slots=True)
class Not:
    """Negation."""

    operand: Formula


@dataclass(frozen=True, slots=True)
class Either:
    """Disjunction."""

    left: Formula
    right: Formula


Formula = bool | Atom | Opaque | Not | Either


@dataclass(frozen=True, slots=True)
class Truth:
    """A formula as a number of ``width`` bits: 1 when it holds, else 0."""

    formula: Formula
    width: int = 1


Value = Integer | Loaded | Carried | Final | LiveVector | Node | Truth


@functools.lru_cache(maxsize=1 << 12)
def constant(value: int, width: int) -> Integer:
    """The constant ``value``. It is kept as a signed number, so that the constants of sums stay small."""
    return Integer(Linear.of(centred(value, width)), width)


def centred(value: int, width: int) -> int:
    """The representative of ``value`` modulo 2**width in [-2**(width-1), 2**(width-1))."""
    half = 1 << (width - 1)
    return (value + half) % (2 * half) - half if width > 1 else value & 1


def constant_of(value: Value) -> int | None:
    """The number 0 <= n < 2**width if ``value`` is a constant; else None."""
    if isinstance(value, Integer) and value.linear.is_constant:
        return value.linear.constant % (1 << value.width)
    return None


def negate(formula: Formula) -> Formula:
    """``not formula``."""
    match formula:
        case bool():
            return not formula
        case Not(operand):
            return operand
    return Not(formula)


def either(left: Formula, right: Formula) -> Formula:
    """``left or right``; ``x < 0 or x == 0`` becomes ``-x >= 0``."""
    if left is True or right is True:
        return True
    if left is False:
        return right
    if right is False:
        return left
    for less, equal in ((left, right), (right, left)):
        match less, equal:
            case Not(Atom(linear, False, needs, width)), Atom(same, True, others, _) if linear == same:
                return Atom(-linear, False, needs + others, width)
    return Either(left, right)


def both(left: Formula, right: Formula) -> Formula:
    """``left and right``."""
    return negate(either(negate(left), negate(right)))


def data(formula: Formula) -> Iterator[Value]:
    """The values of data that ``formula`` depends on (of its ``Opaque`` parts)."""
    match formula:
        case Opaque(value):
            yield value
        case Not(operand):
            yield from data(operand)
        case Either(left, right):
            yield from data(left)
            yield from data(right)


def within(value: Value, into: Callable[[Value], bool] = lambda _: True) -> Iterator[Value]:
    """``value`` and all its parts, each once, in preorder from the left.

    The parts of a part are visited only if ``into(part)``.
    """
    seen: set[Value] = set()
    pending = [value]
    while pending:
        part = pending.pop()
        if part not in seen:
            seen.add(part)
            yield part
            if not into(part):
                continue
            if isinstance(part, Node):
                pending += reversed(part.operands)
            elif isinstance(part, Truth):
                pending += data(part.formula)


class Substitution:
    """A simultaneous substitution of expressions for the symbols of values and formulas.

    Shared parts are rewritten once and stay shared, since values written out as trees may be of any size.
    """

    def __init__(self, values: Mapping[str, Linear]) -> None:
        self._values = values
        self._done: dict[int, tuple[Value, Value]] = {}  # by id of the value, which the pair keeps alive
        self._formulas: dict[int, tuple[Formula, Formula]] = {}

    def linear(self, linear: Linear) -> Linear:
        """``linear`` after the substitution."""
        return linear.substitute(self._values)

    def value(self, value: Value) -> Value:
        """``value`` after the substitution."""
        if id(value) not in self._done:
            self._done[id(value)] = value, self._rewritten(value)
        return self._done[id(value)][1]

    def _rewritten(self, value: Value) -> Value:
        match value:
            case Integer(linear, width):
                new = self.linear(linear)
                return value if new is linear else Integer(new, width)
            case Node(operator, operands, width):
                rewritten = tuple(map(self.value, operands))
                same = all(new is old for new, old in zip(rewritten, operands, strict=True))
                return value if same else Node(operator, rewritten, width)
            case Truth(formula, width):
                return Truth(self.formula(formula), width)
        return value

    def formula(self, formula: Formula) -> Formula:
        """``formula`` after the substitution."""
        if isinstance(formula, bool):
            return formula
        if id(formula) not in self._formulas:
            self._formulas[id(formula)] = formula, self._rewritten_formula(formula)
        return self._formulas[id(formula)][1]

    def _rewritten_formula(self, formula: Formula) -> Formula:
        match formula:
            case Atom(linear, equal, needs, width):
                return Atom(self.linear(linear), equal, tuple(map(self.linear, needs)), width)
            case Opaque(value):
                return Opaque(self.value(value))
            case Not(operand):
                return Not(self.formula(operand))
            case Either(left, right):
                return Either(self.formula(left), self.formula(right))
        return formula
