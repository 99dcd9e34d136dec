"""Expression trees of statements: a symbolic value becomes a typed expression over the cells that hold its leaves.

Example: ``fadd64(v0, v1)``, with v0 available in cell a and v1 in cell b, becomes ``add(Read(0), Read(1))`` of type F64
with the reads ``(a, b)``.

A symbolic value is a bit pattern without a type. It gets the type of the operation that computes it: floating-point for
floating-point operations, integer for all others and for values that are only moved. A ``bits`` operation marks where
one is used as the other; memopt.lifting.scop.element_types removes those that the arrays' types make superfluous.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from memopt.ir.linear import Linear
from memopt.ir.operations import AS_MXCSR_SAYS, CALL, PREDICATES, ROUNDINGS, TOWARDS_ZERO, called
from memopt.ir.reasons import Reason, Rejected, VerifyError
from memopt.ir.scop import Apply, Constant, ElementType, Expression, Index, Read, Scalar, plain_reads
from memopt.lifting.demotion.available import AvailableValues
from memopt.lifting.demotion.scalar_expansion import is_private
from memopt.lifting.demotion.statements import INDEX
from memopt.lifting.execution.assumptions import GENERAL
from memopt.lifting.values.bits import base_and_offset, extract
from memopt.lifting.values.values import Atom, Carried, Final, Integer, LiveVector, Node, Truth, Value, constant_of

MOST_OPERATIONS = 400  # in one expression

FLOATS = {64: ElementType.F64, 32: ElementType.F32}
INTEGERS = {64: ElementType.I64, 32: ElementType.I32, 16: ElementType.I16, 8: ElementType.I8}
_FLOATING = {"fadd": "add", "fsub": "sub", "fmul": "mul", "fdiv": "div", "fsqrt": "sqrt", "fmin": "min",
             "fmax": "max", "fneg": "neg", "fabs": "abs", "fma": "fma", "fms": "fms", "fnma": "fnma", "fnms": "fnms"}
_INTEGRAL = ("add", "sub", "mul", "smin", "smax", "umin", "umax")
_FROM_INTEGER = {"i32tof64": 32, "i64tof64": 64, "i32tof32": 32, "i64tof32": 64}
_FROM_FLOAT = {"f32to64": 32, "f64to32": 64}
_TO_INTEGER = {"f64toi32": 64, "f64toi64": 64, "f32toi32": 32, "f32toi64": 32}
_ROUNDINGS = {TOWARDS_ZERO: "z", AS_MXCSR_SAYS: ""}
_CHOICES = ("and", "or", "xor", "not", "select")  # in any type: they move bits


@dataclass
class Missing(Exception):
    """No cell holds ``value``, a part of a Loaded, Carried or Final value: it needs a private cell."""

    value: Value


def element_of(value: Value) -> ElementType:
    """The type that ``value`` is computed in; an integer type if it is only moved."""
    return (FLOATS if _is_float(value) else INTEGERS)[value.width]


def _is_float(value: Value) -> bool:
    match value:
        case Node(name, _, _) if name in _FLOATING or name in _FROM_INTEGER or name in _FROM_FLOAT or name == "fround":
            return True
        case Node(name, _, _) if called(name) is not None:
            return True
        case Node("select", (_, first, second), _):
            return _is_float(first) or _is_float(second)
        case Node("when", (_, stored), _):
            return _is_float(stored)
        case Node("and" | "or" | "xor" | "not", operands, width) if width in FLOATS:
            return any(map(_is_float, operands))
    return False


@dataclass
class ExpressionBuilder:
    """Builds the expression of one statement, which runs where all of ``given`` are >= 0.

    ``available``: the cells that hold values in front of it. ``require(linear, why)`` notes the obligation that
    ``linear`` >= 0 wherever it runs. ``reads`` and ``indices`` collect the operands of the statement.
    Raises ``Missing`` for a value in no cell, Rejected(UNSUPPORTED_INSTRUCTION) for an operation without an expression.
    """

    available: AvailableValues
    given: tuple[Linear, ...]
    require: Callable[[Linear, str], None]
    reads: dict[Linear, ElementType] = field(default_factory=dict)
    indices: list[Linear] = field(default_factory=list)
    operations: int = 0

    def build(self, value: Value, wanted: ElementType) -> Expression:
        """The expression for ``value`` in the type ``wanted``. Precondition: that type has the width of the value."""
        match value:
            case Integer(linear, _):
                return self._number(linear, wanted)
        found = self.available.place(value, self.given)
        if found is not None and not (is_private(found[0]) and self._is_narrowed(value)):
            return self._read(*found, wanted)
        match value:
            case LiveVector():
                return _scalar(value, 0, wanted)
            case Truth() | Node(_, _, 1):
                raise Rejected(Reason.UNSUPPORTED_INSTRUCTION, "a stored value is a single bit")
            case Node("part", _, _):
                return self._part(value, wanted)
            case Node():
                self.operations += 1
                if self.operations > MOST_OPERATIONS:
                    raise Rejected(Reason.UNSUPPORTED_INSTRUCTION,
                                   f"a stored value takes more than {MOST_OPERATIONS} operations")
                return self._node(value, wanted)
        raise Missing(value)

    def _read(self, cell: Linear, condition: Value | None, wanted: ElementType) -> Expression:
        truth = None if condition is None else self.truth(condition)
        known = self.reads.setdefault(cell, wanted)
        read: Expression = Read(list(self.reads).index(cell))
        if truth is not None:
            read = Apply("when", (truth, read), known)
        if known.size < wanted.size:
            raise Rejected(Reason.UNSUPPORTED_INSTRUCTION, "a statement reads a cell in two widths")
        if known.size > wanted.size:  # the statement reads the cell already: cut off its low end
            whole, integer = INTEGERS[8 * known.size], INTEGERS[8 * wanted.size]
            return cast(Apply("trunc", (cast(read, known, whole),), integer), integer, wanted)
        return cast(read, known, wanted)

    def _number(self, linear: Linear, wanted: ElementType) -> Expression:
        if linear.is_constant:
            return Constant(linear.constant % (1 << 8 * wanted.size), wanted)
        kind = ElementType.I64 if wanted.size == 8 else ElementType.I32
        if linear not in self.indices:
            self.indices.append(linear)
        index: Expression = Index(Linear.symbol(f"{INDEX}{self.indices.index(linear)}"), kind)
        integer = INTEGERS[8 * wanted.size]
        return cast(index if kind is integer else Apply("trunc", (index,), integer), integer, wanted)

    def _part(self, value: Node, wanted: ElementType) -> Expression:
        base, low = base_and_offset(value)
        if isinstance(base, LiveVector) and low % 8 == 0:
            return _scalar(base, low, wanted)
        if not isinstance(base, Node | LiveVector):
            base, low = self._around(value, base, low)
        if base.width not in INTEGERS:
            raise Rejected(Reason.UNSUPPORTED_INSTRUCTION, f"a part of a value of {base.width} bits is stored")
        whole, integer = INTEGERS[base.width], INTEGERS[value.width]
        expression = self.build(base, whole)
        if low:
            expression = Apply("shr", (expression, Constant(low, whole)), whole)
        return cast(Apply("trunc", (expression,), integer), integer, wanted)

    def _is_narrowed(self, value: Value) -> bool:
        """Whether ``value`` is the low 8 or 16 bits of a general register that lives in a wider private cell.

        A private cell is accessed as a whole, as a number; its bytes are no cells of their own.
        """
        base, low = base_and_offset(value)
        return isinstance(base, Carried | Final) and base.location in GENERAL and value.width < 32 and (
            self._around(value, base, low)[0].width > value.width)

    def _around(self, value: Value, base: Value, low: int) -> tuple[Value, int]:
        """The widest part of ``base`` in a cell that contains ``value``, and the bit of it where ``value`` starts.

        ``low``: the bit of ``base`` where ``value`` starts. Raises Missing if no cell holds such a part.
        """
        for size in sorted(INTEGERS, reverse=True):
            start = low - low % size
            if low + value.width <= start + size <= base.width:
                whole = extract(base, start, size)
                if self.available.place(whole, self.given) is not None:
                    return whole, low - start
        raise Missing(value)

    def _node(self, node: Node, wanted: ElementType) -> Expression:
        name, operands, width = node.operator, node.operands, node.width
        if name in _CHOICES:
            return self._choice(node, wanted)
        if name in _FLOATING:
            return self._apply(_FLOATING[name], operands, FLOATS[width], FLOATS[width], wanted)
        if name in _FROM_INTEGER:
            return self._apply(name, operands, INTEGERS[_FROM_INTEGER[name]], FLOATS[width], wanted)
        if name in _FROM_FLOAT:
            return self._apply(name, operands, FLOATS[_FROM_FLOAT[name]], FLOATS[width], wanted)
        if name in _TO_INTEGER and (rounding := constant_of(operands[0])) is not None and (
                rounding in _ROUNDINGS):
            name += _ROUNDINGS[rounding]
            return self._apply(name, operands[1:], FLOATS[_TO_INTEGER[name.removesuffix("z")]], INTEGERS[width], wanted)
        if name == "fround" and (rounding := constant_of(operands[0])) in ROUNDINGS:
            return self._apply(f"round{rounding}", operands[1:], FLOATS[width], FLOATS[width], wanted)
        if name in _INTEGRAL:
            return self._apply(name, operands, INTEGERS[width], INTEGERS[width], wanted)
        if name in ("shl", "shr", "sar") and (count := constant_of(operands[1])) is not None and count < width:
            shifted = self.build(operands[0], INTEGERS[width])
            count_operand = Constant(count, INTEGERS[width])
            return cast(Apply(name, (shifted, count_operand), INTEGERS[width]), INTEGERS[width], wanted)
        if name in ("sext", "zext"):
            return self._extension(node, wanted)
        if (address := called(name)) is not None:
            return self._apply(f"{CALL} {address:x}", operands, FLOATS[width], FLOATS[width], wanted)
        if name == "concat" and width in INTEGERS and width > 8:
            return self._side_by_side(node, wanted)
        raise Rejected(Reason.UNSUPPORTED_INSTRUCTION, f"a stored value is computed by {name}")

    def _apply(self, name: str, operands: tuple[Value, ...], taken: ElementType, made: ElementType,
               wanted: ElementType) -> Expression:
        return cast(Apply(name, tuple(self.build(o, taken) for o in operands), made), made, wanted)

    def _choice(self, node: Node, wanted: ElementType) -> Expression:
        """A bitwise operation or a select: it has no type of its own and is done in the ``wanted`` one."""
        if node.operator == "select":
            condition, *values = node.operands
            return Apply("select", (self.truth(condition), *(self.build(v, wanted) for v in values)), wanted)
        operands = node.operands
        if node.operator == "and":
            for inner, other in (operands, operands[::-1]):
                if isinstance(inner, Node) and inner.operator == "not":
                    return Apply("andnot", (self.build(inner.operands[0], wanted), self.build(other, wanted)), wanted)
        return Apply(node.operator, tuple(self.build(o, wanted) for o in operands), wanted)

    def _extension(self, node: Node, wanted: ElementType) -> Expression:
        (inner,), width = node.operands, node.width
        integer = INTEGERS[width]
        if inner.width == 1:
            ones = Constant(1 if node.operator == "zext" else (1 << width) - 1, integer)
            return cast(Apply("select", (self.truth(inner), ones, Constant(0, integer)), integer), integer, wanted)
        if inner.width not in INTEGERS:
            raise Rejected(Reason.UNSUPPORTED_INSTRUCTION, f"a stored value is extended from {inner.width} bits")
        return cast(Apply(node.operator, (self.build(inner, INTEGERS[inner.width]),), integer), integer, wanted)

    def _side_by_side(self, node: Node, wanted: ElementType) -> Expression:
        half, whole = INTEGERS[node.width // 2], INTEGERS[node.width]
        high, low = (Apply("zext", (self.build(o, half),), whole) for o in node.operands)
        moved = Apply("shl", (high, Constant(node.width // 2, whole)), whole)
        return cast(Apply("or", (moved, low), whole), whole, wanted)

    def stored(self, value: Value, element: ElementType, beside: tuple[Value, ...] = ()) -> Expression:
        """The expression of a statement that stores ``value``, with the operations ``beside`` it for their flags."""
        match value:
            case Node("when", (condition, inner), _):
                truth = self.truth(condition)
                return self._once_plain(Apply("when", (truth, self._value(inner, element, beside)), element))
        expression = self._value(value, element, beside)
        match expression:  # a cell that is read at some points: there is nothing to store at the others
            case Apply("when", (truth, Read(index))) if index not in plain_reads(truth):
                return Apply("when", (truth, expression), element)
        return self._once_plain(expression)

    def _value(self, value: Value, element: ElementType, beside: tuple[Value, ...]) -> Expression:
        expression = self.build(value, element)
        if beside:
            expression = Apply("beside", (expression, *(self.build(v, element) for v in beside)), element)
        return expression

    @staticmethod
    def _once_plain(expression: Expression) -> Expression:
        """``expression`` without conditions of reads that it also performs at every point."""
        plain = plain_reads(expression)

        def bare(node: Expression) -> Expression:
            match node:
                case Apply("when", (_, Read(index) as read)) if index in plain:
                    return read
                case Apply(_, operands):
                    return replace(node, operands=tuple(map(bare, operands)))
            return node

        match expression:
            case Apply("when", operands):
                return replace(expression, operands=tuple(map(bare, operands)))
        return bare(expression)

    # -- truth values -------------------------------------------------------------------------------------------

    def truth(self, value: Value) -> Expression:
        """The comparison for a 1-bit value. Raises Rejected(UNSUPPORTED_INSTRUCTION) if it is none."""
        match value:
            case Truth(Atom() as atom, 1):
                return self._atom(atom)
            case Node("eq" | "slt" | "sle" | "ult" | "ule" as name, (left, right), 1) if left.width in INTEGERS:
                integer = INTEGERS[left.width]
                return Apply(name, (self.build(left, integer), self.build(right, integer)), integer)
            case Node(name, (left, right), 1) if name in PREDICATES:
                kind = FLOATS[left.width]
                return Apply(name, (self.build(left, kind), self.build(right, kind)), INTEGERS[left.width])
            case Node("not", (inner,), 1):
                return self._negation(self.truth(inner))
            case Node("and" | "or" | "xor" as name, (left, right), 1):
                first, second = self.truth(left), self.truth(right)
                return Apply(name, (first, second), _type_of(first))
        raise Rejected(Reason.UNSUPPORTED_INSTRUCTION, "a value is selected by a condition that is not a comparison")

    @staticmethod
    def _negation(truth: Expression) -> Expression:
        match truth:
            case Apply("slt" | "sle" | "ult" | "ule" as name, (left, right), element):
                opposite = {"slt": "sle", "sle": "slt", "ult": "ule", "ule": "ult"}[name]
                return Apply(opposite, (right, left), element)
        return Apply("not", (truth,), _type_of(truth))

    def _atom(self, atom: Atom) -> Expression:
        for need in atom.needs:
            self.require(need, "a comparison does not wrap around")
        limit = 1 << 63
        self.require(atom.linear + limit, "a comparison does not wrap around")
        self.require(-atom.linear + (limit - 1), "a comparison does not wrap around")
        number, zero = self._number(atom.linear, ElementType.I64), Constant(0, ElementType.I64)
        return Apply("eq" if atom.equal else "sle", (number, zero) if atom.equal else (zero, number), ElementType.I64)


def _type_of(truth: Expression) -> ElementType:
    assert isinstance(truth, Apply)
    return truth.element


def _scalar(value: LiveVector, low: int, wanted: ElementType) -> Expression:
    register, lane = value.location.split(".")
    return Scalar(register, wanted, 8 * int(lane) + low // 8)


def cast(expression: Expression, is_now: ElementType, wanted: ElementType) -> Expression:
    """``expression`` of the type ``is_now`` as the same bits in the type ``wanted``, which has the same size."""
    if is_now is wanted:
        return expression
    if is_now.size != wanted.size:
        raise VerifyError(f"{is_now.value} is not as wide as {wanted.value}")
    match expression:
        case Constant(bits, _):
            return Constant(bits, wanted)
        case Scalar(register, _, offset):
            return Scalar(register, wanted, offset)
        case Apply("bits", (inner,), _) if _known(inner) is wanted:
            return inner
    return Apply("bits", (expression,), wanted)


def _known(expression: Expression) -> ElementType | None:
    return None if isinstance(expression, Read) else expression.element
