"""The sixteen x86 condition codes as comparisons of the operands of the instruction that set the flags.

Example: ``cmp rax, rbx; jl`` jumps if rax < rbx, signed: condition "l" after "sub" is ``slt(rax, rbx)``.

In: the number of a condition, and a lazy flag state as in Valgrind (guest_amd64_helpers.c): the number ``cc_op`` says
which operation set the flags, and at which width; ``dep1``, ``dep2`` and ``ndep`` are the values from which the flags
follow. Out: a ``Comparison``. The functions are generic in the type of values, so that a symbolic executor can use them
with its own algebra.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from memopt.ir.frozen import dataclass
from memopt.ir.reasons import Reason, Rejected

Value = TypeVar("Value")
Build = Callable[[str, tuple[Value, ...], int], Value]
MakeLiteral = Callable[[int, int], Value]

_FAMILIES = ("add", "sub", "adc", "sbb", "logic", "inc", "dec", "shl", "shr", "rol", "ror", "umul", "smul")
_CONDITIONS = ("o", "no", "b", "nb", "z", "nz", "be", "nbe", "s", "ns", "p", "np", "l", "nl", "le", "nle")
_NEGATED = {"eq": "ne", "ne": "eq", "slt": "sle", "sle": "slt", "ult": "ule", "ule": "ult"}
CARRY = 2  # the number of condition "b" (below): the carry flag
COPY = 0  # cc_op if dep1 holds the flags themselves

_COPIED = {"b": 0x1, "p": 0x4, "z": 0x40, "be": 0x41, "s": 0x80, "o": 0x800}


@dataclass(frozen=True, slots=True)
class Comparison(Generic[Value]):
    """``left operator right``; the operator is one of eq ne slt sle ult ule, both sides are ``width`` bits wide."""

    operator: str
    left: Value
    right: Value
    width: int

    def negated(self) -> Comparison[Value]:
        """The comparison that holds exactly where this one does not."""
        operator = _NEGATED[self.operator]
        if self.operator in ("eq", "ne"):
            return Comparison(operator, self.left, self.right, self.width)
        return Comparison(operator, self.right, self.left, self.width)


def flag_family(cc_op: int) -> tuple[str, int]:
    """(name, width in bits) of the operation that ``cc_op`` stands for.

    ("copy", 64) where the flags themselves are kept, ("other", 64) for an operation that is not modelled.
    """
    if cc_op == COPY:
        return "copy", 64
    if 1 <= cc_op <= 4 * len(_FAMILIES):
        return _FAMILIES[(cc_op - 1) // 4], 8 << ((cc_op - 1) % 4)
    if cc_op in (53, 54):
        return "logic", 32 if cc_op == 53 else 64  # andn: like and
    return "other", 64


def expand_condition(
    condition: int, cc_op: int, dep1: Value, dep2: Value, ndep: Value, build: Build[Value],
    literal: MakeLiteral[Value], address: int = 0,
) -> Comparison[Value]:
    """The comparison that condition number ``condition`` (0..15, as in jcc opcodes) stands for.

    ``dep1``, ``dep2``, ``ndep`` are 64-bit values; ``build(operator, operands, width)`` and ``literal(value, width)``
    make new values (operators of memopt.ir.operations). Raises Rejected(UNSUPPORTED_INSTRUCTION) for a condition that
    does not follow from the state (parity, flags that a shift leaves undefined, rotates, multiplications).
    """
    name = _CONDITIONS[condition]
    if condition & 1:
        return expand_condition(condition - 1, cc_op, dep1, dep2, ndep, build, literal, address).negated()
    family, width = flag_family(cc_op)
    flags = _Flags(width, dep1, dep2, ndep, build, literal)
    rule = _RULES.get(family)
    found = rule(flags, name) if rule else None
    if found is None:
        raise Rejected(Reason.UNSUPPORTED_INSTRUCTION,
                       f"condition {name} after {family} of {width} bits at {address:#x}")
    return found


@dataclass(frozen=True, slots=True)
class _Flags(Generic[Value]):
    width: int
    dep1: Value
    dep2: Value
    ndep: Value
    build: Build[Value]
    literal: MakeLiteral[Value]

    def narrow(self, value: Value) -> Value:
        return value if self.width == 64 else self.build("trunc", (value,), self.width)

    @property
    def left(self) -> Value:
        return self.narrow(self.dep1)

    @property
    def right(self) -> Value:
        return self.narrow(self.dep2)

    def number(self, value: int) -> Value:
        return self.literal(value & ((1 << self.width) - 1), self.width)

    def op(self, operator: str, left: Value, right: Value) -> Value:
        return self.build(operator, (left, right), self.width)

    def compare(self, operator: str, left: Value, right: Value) -> Comparison[Value]:
        return Comparison(operator, left, right, self.width)

    def bit(self, comparison: Comparison[Value]) -> Value:
        return self.build(comparison.operator, (comparison.left, comparison.right), 1)

    def combine(self, operator: str, first: Comparison[Value], second: Comparison[Value]) -> Comparison[Value]:
        value = self.build(operator, (self.bit(first), self.bit(second)), 1)
        return Comparison("ne", value, self.literal(0, 1), 1)

    def never(self) -> Comparison[Value]:
        return Comparison("ne", self.literal(0, 1), self.literal(0, 1), 1)


def _result(flags: _Flags[Value], name: str, result: Value) -> Comparison[Value] | None:
    """The conditions that depend on the result only: zero and sign."""
    if name == "z":
        return flags.compare("eq", result, flags.number(0))
    if name == "s":
        return flags.compare("slt", result, flags.number(0))
    return None


def _copy(flags: _Flags[Value], name: str) -> Comparison[Value] | None:
    def test(mask: int) -> Comparison[Value]:
        return flags.compare("ne", flags.op("and", flags.dep1, flags.number(mask)), flags.number(0))

    if name in _COPIED:
        return test(_COPIED[name])
    less = flags.combine("xor", test(_COPIED["s"]), test(_COPIED["o"]))
    return less if name == "l" else flags.combine("or", less, test(_COPIED["z"]))


def _sub(flags: _Flags[Value], name: str) -> Comparison[Value] | None:
    left, right = flags.left, flags.right
    direct = {"b": "ult", "be": "ule", "z": "eq", "l": "slt", "le": "sle"}
    if name in direct:
        return flags.compare(direct[name], left, right)
    result = flags.op("sub", left, right)
    if name == "o":
        signs = flags.op("and", flags.op("xor", left, right), flags.op("xor", left, result))
        return flags.compare("slt", signs, flags.number(0))
    return _result(flags, name, result)


def _add(flags: _Flags[Value], name: str) -> Comparison[Value] | None:
    left, right = flags.left, flags.right
    result = flags.op("add", left, right)
    zero, carry = flags.compare("eq", result, flags.number(0)), flags.compare("ult", result, left)
    if name == "b":
        return carry
    if name == "be":
        return flags.combine("or", carry, zero)
    if name in ("o", "l", "le"):
        signs = flags.op("and", flags.op("xor", left, result), flags.op("xor", right, result))
        overflow = flags.compare("slt", signs, flags.number(0))
        less = flags.combine("xor", flags.compare("slt", result, flags.number(0)), overflow)
        return overflow if name == "o" else less if name == "l" else flags.combine("or", less, zero)
    return _result(flags, name, result)


def _add_carry(flags: _Flags[Value], name: str) -> Comparison[Value] | None:
    """adc: dep2 is the right operand xor the old carry; ndep holds the old carry."""
    carry = flags.narrow(flags.ndep)
    right = flags.op("xor", flags.right, carry)
    return _result(flags, name, flags.op("add", flags.op("add", flags.left, right), carry))


def _sub_borrow(flags: _Flags[Value], name: str) -> Comparison[Value] | None:
    carry = flags.narrow(flags.ndep)
    right = flags.op("xor", flags.right, carry)
    return _result(flags, name, flags.op("sub", flags.op("sub", flags.left, right), carry))


def _logic(flags: _Flags[Value], name: str) -> Comparison[Value] | None:
    result = flags.left
    if name in ("o", "b"):
        return flags.never()
    if name == "le":
        return flags.compare("sle", result, flags.number(0))
    return _result(flags, {"be": "z", "l": "s"}.get(name, name), result)


def _step(flags: _Flags[Value], name: str, step: int) -> Comparison[Value] | None:
    """inc (step 1) and dec (step -1): dep1 is the result, ndep the carry flag, which these instructions keep."""
    result = flags.left
    extreme = 1 << (flags.width - 1) if step == 1 else (1 << (flags.width - 1)) - 1
    carry = Comparison("ne", flags.build("and", (flags.ndep, flags.literal(1, 64)), 64), flags.literal(0, 64), 64)
    if name == "o":
        return flags.compare("eq", result, flags.number(extreme))
    if name == "b":
        return carry
    if name == "be":
        return flags.combine("or", carry, flags.compare("eq", result, flags.number(0)))
    if name in ("l", "le"):  # result < 0 (<= 0) without wrap-around: old < -step
        old = flags.op("sub", result, flags.number(step))
        return flags.compare("slt" if name == "l" else "sle", old, flags.number(-step))
    return _result(flags, name, result)


def _increment(flags: _Flags[Value], name: str) -> Comparison[Value] | None:
    return _step(flags, name, 1)


def _decrement(flags: _Flags[Value], name: str) -> Comparison[Value] | None:
    return _step(flags, name, -1)


def _shift(flags: _Flags[Value], name: str, carry: Comparison[Value]) -> Comparison[Value] | None:
    """dep1 is the result, dep2 the result of a shift by one less. Overflow is defined for a count of one only."""
    if name == "b":
        return carry
    if name == "be":
        return flags.combine("or", carry, flags.compare("eq", flags.left, flags.number(0)))
    return _result(flags, name, flags.left)


def _shift_left(flags: _Flags[Value], name: str) -> Comparison[Value] | None:
    return _shift(flags, name, flags.compare("slt", flags.right, flags.number(0)))


def _shift_right(flags: _Flags[Value], name: str) -> Comparison[Value] | None:
    low = flags.op("and", flags.right, flags.number(1))
    return _shift(flags, name, flags.compare("ne", low, flags.number(0)))


def _multiply(flags: _Flags[Value], name: str, signed: bool) -> Comparison[Value] | None:
    """Carry and overflow: the upper half of the product is not the extension of the lower. Other flags: undefined."""
    if name not in ("b", "o"):
        return None
    low = flags.op("mul", flags.left, flags.right)
    high = flags.op("smulhi" if signed else "umulhi", flags.left, flags.right)
    shift = flags.literal(flags.width - 1, 8)
    extension = flags.build("sar", (low, shift), flags.width) if signed else flags.number(0)
    return flags.compare("ne", high, extension)


_RULES: dict[str, Callable[[_Flags[Value], str], Comparison[Value] | None]] = {
    "copy": _copy, "sub": _sub, "add": _add, "adc": _add_carry, "sbb": _sub_borrow, "logic": _logic,
    "umul": lambda flags, name: _multiply(flags, name, signed=False),
    "smul": lambda flags, name: _multiply(flags, name, signed=True),
    "inc": _increment, "dec": _decrement, "shl": _shift_left, "shr": _shift_right,
}
