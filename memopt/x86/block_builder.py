"""Builds the operations of one basic block, with constant folding, algebraic simplification and value numbering.

Example: ``zext.64(trunc.32(and(x, 0xffffffff)))``, as VEX writes a 32-bit register, becomes ``zext.64(trunc.32(x))``.

In: operations, one after the other. Out: a ``Block`` without the packing and unpacking of registers that VEX adds,
without overwritten Puts (dead stores) and without unused values. Every rule is an identity on bit patterns, and no rule
touches an operator that raises exception flags.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from memopt.ir.evaluate import evaluate
from memopt.ir.graph import DecodedInstruction
from memopt.ir.operations import (
    CLOBBERED,
    AlignmentCheck,
    Block,
    Compute,
    Exit,
    Forget,
    Get,
    Jump,
    Literal,
    Load,
    Operand,
    Operation,
    Put,
    Store,
    Temp,
)
from memopt.x86.dead_operations import drop_overwritten, drop_unused, renumbered

_EXTENDED = (8, 16, 32)  # bits
_NEGATED = {"eq": "ne", "ne": "eq", "slt": "sle", "sle": "slt", "ult": "ule", "ule": "ult"}
_COMPARISONS = frozenset(_NEGATED)
_COMMUTATIVE = frozenset(("add", "mul", "and", "or", "xor", "eq", "ne"))


class BlockBuilder:
    """Mutable builder of one ``Block``.

    ``compute`` numbers values: the same computation gives the same operand. ``get`` forwards what ``put`` wrote.
    ``finish`` drops dead code. ``address`` is that of the instruction that is lifted. ``instructions``: the decoded
    instructions by their addresses.
    """

    def __init__(self, instructions: Mapping[int, DecodedInstruction] = MappingProxyType({})) -> None:
        self.address = 0
        self._instructions = instructions
        self.operations: list[Operation] = []
        self.locations: dict[str, Operand] = {}
        self._widths: list[int] = []
        self._definitions: dict[int, Compute] = {}
        self._numbers: dict[tuple[str, tuple[Operand, ...], int], Temp] = {}
        self._narrowed: dict[tuple[Operand, int], Operand | None] = {}

    @property
    def instruction(self) -> DecodedInstruction | None:
        """The instruction that is lifted; None where the operations come from no machine code."""
        return self._instructions.get(self.address)

    def begins(self, *prefixes: str) -> bool:
        """Whether the mnemonic of the instruction that is lifted, without the v of AVX, begins with one of
        ``prefixes``."""
        found = self.instruction
        return found is not None and found.mnemonic.removeprefix("v").startswith(prefixes)

    def width(self, operand: Operand) -> int:
        """The width of an operand in bits."""
        return operand.width if isinstance(operand, Literal) else self._widths[operand.index]

    def definition(self, operand: Operand) -> Compute | None:
        """The ``Compute`` that made ``operand``; None for literals, loads and locations."""
        return self._definitions.get(operand.index) if isinstance(operand, Temp) else None

    def _fresh(self, width: int) -> Temp:
        self._widths.append(width)
        return Temp(len(self._widths) - 1)

    def get(self, location: str) -> Operand:
        """The current value of a location, 64 bits."""
        if location not in self.locations:
            result = self._fresh(64)
            self.operations.append(Get(self.address, result.index, location, 64))
            self.locations[location] = result
        return self.locations[location]

    def put(self, location: str, value: Operand) -> None:
        """Write a location; nothing if it holds ``value`` already."""
        if self.locations.get(location) == value:
            return
        self.locations[location] = value
        self.operations.append(Put(self.address, location, value))

    def load(self, pointer: Operand, width: int) -> Operand:
        """A load of ``width`` bits. Loads are never shared: a store may come between them."""
        result = self._fresh(width)
        self.operations.append(Load(self.address, result.index, pointer, width))
        return result

    def store(self, pointer: Operand, value: Operand) -> None:
        """A store of ``value`` at its own width."""
        self.operations.append(Store(self.address, pointer, value, self.width(value)))

    def exit(self, condition: Operand, target: int) -> None:
        """A conditional exit from the block to ``target``; nothing if the condition is false."""
        if condition != Literal(0, 1):
            self.operations.append(Exit(self.address, condition, target))

    def check_alignment(self, pointer: Operand, size: int) -> None:
        """The instruction faults unless ``pointer`` is a multiple of ``size``."""
        self.operations.append(AlignmentCheck(self.address, pointer, size))

    def forget(self, *, in_rax: bool) -> None:
        """A call that leaves unknown values in the registers that calls clobber (``memopt.ir.operations.Forget``)."""
        self.operations.append(Forget(self.address, in_rax))
        for location in (*CLOBBERED, "rax"):
            self.locations.pop(location, None)

    def jump(self, target: Operand | int, kind: str) -> None:
        """The jump that ends the block; ``kind``: "fallthrough", "boring", "indirect", "call", "ret"."""
        self.operations.append(Jump(self.address, target, kind))

    def compute(self, operator: str, operands: tuple[Operand, ...], width: int) -> Operand:
        """The value of an operator, simplified; the same computation gives the same operand."""
        if operator in _COMMUTATIVE and isinstance(operands[0], Literal):
            operands = (operands[1], operands[0])
        folded = self._fold(operator, operands, width)
        if folded is not None:
            return folded
        key = (operator, operands, width)
        if key not in self._numbers:
            result = self._fresh(width)
            operation = Compute(self.address, result.index, operator, operands, width)
            self.operations.append(operation)
            self._numbers[key] = result
            self._definitions[result.index] = operation
        return self._numbers[key]

    def finish(self, address: int, size: int) -> Block:
        """The block at ``address``, ``size`` bytes of code: without dead code, temporaries numbered from 0 on."""
        kept = drop_unused(drop_overwritten(self.operations))
        numbers: dict[int, int] = {}
        for operation in kept:
            if isinstance(operation, (Get, Load, Compute)):
                numbers[operation.result] = len(numbers)
        return Block(address, size, tuple(renumbered(o, numbers) for o in kept), len(numbers))

    # -- folding ---------------------------------------------------------------------------------------------------

    def _fold(self, operator: str, operands: tuple[Operand, ...], width: int) -> Operand | None:
        if all(isinstance(o, Literal) for o in operands):
            literals = [o for o in operands if isinstance(o, Literal)]
            values, widths = tuple(o.value for o in literals), tuple(o.width for o in literals)
            value = evaluate(operator, values, widths, width)
            if value is not None:
                return Literal(value, width)
        rule = _RULES.get(operator)
        return rule(self, operands, width) if rule else None

    def is_a(self, operand: Operand, *operators: str) -> Compute | None:
        """The definition of ``operand`` if its operator is one of ``operators``, else None."""
        definition = self.definition(operand)
        return definition if definition and definition.operator in operators else None

    def narrow(self, operand: Operand, width: int) -> Operand | None:
        """The low ``width`` bits of an operand that was extended from that width, or a sum of those; else None."""
        if isinstance(operand, Literal):
            return Literal(operand.value & _ones(width), width)
        if (operand, width) not in self._narrowed:
            self._narrowed[operand, width] = self._made_narrow(operand, width)
        return self._narrowed[operand, width]

    def _made_narrow(self, operand: Operand, width: int) -> Operand | None:
        found = self.is_a(operand, "zext", "sext", "add", "sub")
        if found is None:
            return None
        if found.operator in ("zext", "sext"):
            return found.operands[0] if self.width(found.operands[0]) == width else None
        first, second = (self.narrow(o, width) for o in found.operands)
        return None if first is None or second is None else self.compute(found.operator, (first, second), width)

    def resize(self, operand: Operand, width: int, extension: str = "zext") -> Operand:
        """``operand`` truncated or extended to ``width``."""
        own = self.width(operand)
        return operand if own == width else self.compute("trunc" if width < own else extension, (operand,), width)


# -- the rules: (builder, operands, width of the result) -> simpler value or None -----------------------------------

Rule = Callable[[BlockBuilder, tuple[Operand, ...], int], Operand | None]


def _ones(width: int) -> int:
    return (1 << width) - 1


def _add(b: BlockBuilder, operands: tuple[Operand, ...], width: int) -> Operand | None:
    left, right = operands
    if not isinstance(right, Literal):
        return None
    if right.value == 0:
        return left
    inner = b.is_a(left, "add")
    if inner and isinstance(inner.operands[1], Literal):
        total = (inner.operands[1].value + right.value) & _ones(width)
        return b.compute("add", (inner.operands[0], Literal(total, width)), width)
    return None


def _sub(b: BlockBuilder, operands: tuple[Operand, ...], width: int) -> Operand | None:
    left, right = operands
    if left == right:
        return Literal(0, width)
    if isinstance(right, Literal):
        return b.compute("add", (left, Literal(-right.value & _ones(width), width)), width)
    return None


def _mul(_b: BlockBuilder, operands: tuple[Operand, ...], width: int) -> Operand | None:
    if operands[1] == Literal(1, width):
        return operands[0]
    return operands[1] if operands[1] == Literal(0, width) else None


def _and(b: BlockBuilder, operands: tuple[Operand, ...], width: int) -> Operand | None:
    left, right = operands
    if left == right:
        return left
    if not isinstance(right, Literal):
        return None
    mask = right.value
    if mask in (0, _ones(width)):
        return left if mask else right
    if mask in (0xFF, 0xFFFF, 0xFFFFFFFF):
        return b.compute("zext", (b.compute("trunc", (left,), mask.bit_length()),), width)
    inner = b.is_a(left, "zext", "or", "and")
    if inner is None:
        return None
    if inner.operator == "zext" and _ones(b.width(inner.operands[0])) & ~mask == 0:
        return left
    if inner.operator == "and" and isinstance(inner.operands[1], Literal):
        return b.compute("and", (inner.operands[0], Literal(inner.operands[1].value & mask, width)), width)
    if inner.operator == "or":
        parts = [b.compute("and", (o, right), width) for o in inner.operands]
        if Literal(0, width) in parts:
            return b.compute("or", (parts[0], parts[1]), width)
    return None


def _or(_b: BlockBuilder, operands: tuple[Operand, ...], width: int) -> Operand | None:
    left, right = operands
    if left == right or right == Literal(0, width):
        return left
    return right if right == Literal(_ones(width), width) else None


def _xor(b: BlockBuilder, operands: tuple[Operand, ...], width: int) -> Operand | None:
    left, right = operands
    if left == right:
        return Literal(0, width)
    if right == Literal(0, width):
        return left
    return b.compute("not", (left,), width) if right == Literal(_ones(width), width) else None


def _not(b: BlockBuilder, operands: tuple[Operand, ...], _width: int) -> Operand | None:
    inner = b.definition(operands[0])
    if inner is None:
        return None
    if inner.operator == "not":
        return inner.operands[0]
    if inner.operator in _COMPARISONS:
        left, right = inner.operands
        swap = inner.operator not in ("eq", "ne")
        return b.compute(_NEGATED[inner.operator], (right, left) if swap else (left, right), 1)
    return None


def _fneg(b: BlockBuilder, operands: tuple[Operand, ...], _width: int) -> Operand | None:
    """A negation flips the sign bit, of a NaN too, and raises nothing."""
    inner = b.is_a(operands[0], "fneg")
    return inner.operands[0] if inner else None


def _shift(_b: BlockBuilder, operands: tuple[Operand, ...], _width: int) -> Operand | None:
    return operands[0] if isinstance(operands[1], Literal) and operands[1].value == 0 else None


def _shr(b: BlockBuilder, operands: tuple[Operand, ...], width: int) -> Operand | None:
    value, count = operands
    if isinstance(count, Literal) and count.value == width // 2 >= 8:
        return b.compute("zext", (b.compute("high", (value,), width // 2),), width)
    return _shift(b, operands, width)


def _trunc(b: BlockBuilder, operands: tuple[Operand, ...], width: int) -> Operand | None:
    value = operands[0]
    if b.width(value) == width:
        return value
    inner = b.definition(value)
    if inner is None:
        return None
    match inner.operator, inner.operands:
        case ("zext" | "sext", (source,)):
            return b.resize(source, width, inner.operator)
        case ("trunc", (source,)):
            return b.compute("trunc", (source,), width)
        case ("concat", (_, low)) if b.width(low) >= width:
            return b.resize(low, width)
        case ("and", (source, Literal(value=mask))) if mask & _ones(width) == _ones(width):
            return b.compute("trunc", (source,), width)
        case ("select", (condition, first, second)):
            arms = tuple(b.compute("trunc", (o,), width) for o in (first, second))
            return b.compute("select", (condition, *arms), width)
        case ("or", sources) if Literal(0, width) in (parts := [b.compute("trunc", (s,), width) for s in sources]):
            return b.compute("or", (parts[0], parts[1]), width)
        case ("and" | "or" | "xor" | "not", sources) if width == 1 or any(isinstance(s, Literal) for s in sources):
            return b.compute(inner.operator, tuple(b.compute("trunc", (s,), width) for s in sources), width)
        case ("shr", (source, Literal(value=count))) if width == 1 and count == inner.width - 1:
            return b.compute("slt", (source, Literal(0, inner.width)), 1)
        case ("shr", (source, Literal(value=count))) if width == 1 and count + 1 in _EXTENDED:
            narrow = b.narrow(source, count + 1)
            return None if narrow is None else b.compute("slt", (narrow, Literal(0, count + 1)), 1)
        case ("add" | "sub", _):
            return b.narrow(value, width)
    return None


def _extend(b: BlockBuilder, operands: tuple[Operand, ...], width: int, operator: str) -> Operand | None:
    value = operands[0]
    if b.width(value) == width:
        return value
    inner = b.is_a(value, "zext", operator)
    return b.compute(inner.operator, inner.operands, width) if inner else None


def _zext(b: BlockBuilder, operands: tuple[Operand, ...], width: int) -> Operand | None:
    return _extend(b, operands, width, "zext")


def _sext(b: BlockBuilder, operands: tuple[Operand, ...], width: int) -> Operand | None:
    return _extend(b, operands, width, "sext")


def _high(b: BlockBuilder, operands: tuple[Operand, ...], width: int) -> Operand | None:
    inner = b.definition(operands[0])
    if inner is None:
        return None
    match inner.operator, inner.operands:
        case ("concat", (high, _)):
            return high
        case ("zext", (source,)) if b.width(source) <= width:
            return Literal(0, width)
        case ("sext", (source,)) if b.width(source) == width:
            return b.compute("sar", (source, Literal(width - 1, 8)), width)
        case ("and" | "or" | "xor" | "not", sources) if any(isinstance(s, Literal) for s in sources):
            return b.compute(inner.operator, tuple(b.compute("high", (s,), width) for s in sources), width)
    return None


def _concat(b: BlockBuilder, operands: tuple[Operand, ...], width: int) -> Operand | None:
    high, low = operands
    if isinstance(high, Literal) and high.value == 0:
        return b.compute("zext", (low,), width)
    upper, lower = b.is_a(high, "high", "sar"), b.is_a(low, "trunc")
    if upper and upper.operator == "high" and lower and upper.operands == lower.operands:
        return upper.operands[0] if b.width(upper.operands[0]) == width else None
    if upper and upper.operator == "sar" and upper.operands == (low, Literal(width // 2 - 1, 8)):
        return b.compute("sext", (low,), width)
    return None


def _select(b: BlockBuilder, operands: tuple[Operand, ...], width: int) -> Operand | None:
    condition, first, second = operands
    if isinstance(condition, Literal):
        return first if condition.value else second
    if first == second:
        return first
    if width == 1 and (first, second) == (Literal(1, 1), Literal(0, 1)):
        return condition
    inverse = b.is_a(condition, "not")
    return b.compute("select", (inverse.operands[0], second, first), width) if inverse else None


def _compare(b: BlockBuilder, operands: tuple[Operand, ...], operator: str) -> Operand | None:
    left, right = operands
    if left == right:
        return Literal(int(operator in ("eq", "sle", "ule")), 1)
    width = b.width(left)
    if width == 1 and isinstance(right, Literal) and operator in ("eq", "ne"):
        return left if (operator == "eq") == bool(right.value) else b.compute("not", (left,), 1)
    narrowed = _narrow_shifted(b, left, right, width) or _narrow_extended(b, left, right, operator)
    return b.compute(operator, narrowed, 1) if narrowed else None


def _narrow_shifted(b: BlockBuilder, left: Operand, right: Operand, width: int) -> tuple[Operand, Operand] | None:
    """The operands in the narrower width where both sides are shifted left by the remaining bits; else None.

    VEX compares narrow operands in that way, in the high bits of wider ones.
    """
    def unshift(operand: Operand, count: int) -> Operand | None:
        if isinstance(operand, Literal):
            aligned = operand.value & _ones(count) == 0
            return Literal(operand.value >> count, width - count) if aligned else None
        shift = b.is_a(operand, "shl")
        same = shift and shift.operands[1] == Literal(count, 8)
        return b.compute("trunc", (shift.operands[0],), width - count) if shift and same else None

    shift = b.is_a(left, "shl") or b.is_a(right, "shl")
    if shift is None or not isinstance(shift.operands[1], Literal):
        return None
    count = shift.operands[1].value
    if width - count not in (8, 16, 32):
        return None
    first, second = unshift(left, count), unshift(right, count)
    return (first, second) if first is not None and second is not None else None


def _narrow_extended(b: BlockBuilder, left: Operand, right: Operand, operator: str) -> tuple[Operand, Operand] | None:
    """The operands in the narrower width where both sides are extended from it (a literal must fit it); else None."""
    first, second = b.is_a(left, "zext", "sext"), b.is_a(right, "zext", "sext")
    source = first or second
    if source is None:
        return None
    extension, narrow = source.operator, b.width(source.operands[0])
    if operator[0] == "s" and extension == "zext":
        return None  # a signed comparison of the narrow operands would see another sign bit

    def reduce(operand: Operand) -> Operand | None:
        if isinstance(operand, Literal):
            fits = b.resize(Literal(operand.value & _ones(narrow), narrow), operand.width, extension) == operand
            return Literal(operand.value & _ones(narrow), narrow) if fits else None
        inner = b.is_a(operand, extension)
        return inner.operands[0] if inner and b.width(inner.operands[0]) == narrow else None

    pair = reduce(left), reduce(right)
    return (pair[0], pair[1]) if pair[0] is not None and pair[1] is not None else None


def _comparison(operator: str) -> Rule:
    return lambda b, operands, _width: _compare(b, operands, operator)


_RULES: dict[str, Rule] = {
    "add": _add, "sub": _sub, "mul": _mul, "and": _and, "or": _or, "xor": _xor, "not": _not, "shl": _shift,
    "sar": _shift, "shr": _shr, "trunc": _trunc, "zext": _zext, "sext": _sext, "high": _high, "concat": _concat,
    "select": _select, "fneg": _fneg, **{operator: _comparison(operator) for operator in _COMPARISONS},
}
