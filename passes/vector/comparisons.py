"""Comparisons, logical connectives of truth values, and selection (``c ? a : b``) on vectors.

Example: ``a < b ? a : b`` is ``vcmppd k2, a, b, 1`` and ``vblendmpd`` on AVX-512F, ``cmppd`` and ``and/andn/or`` on
SSE2.

A truth value of AVX-512F's 512-bit vectors lies in a mask register. Elsewhere it is a vector of all-ones or all-zeros
elements, as wide as the operands that were compared.
"""

from __future__ import annotations

from dataclasses import replace

from memopt.ir.frozen import dataclass
from memopt.ir.operations import PREDICATES
from memopt.ir.scop import ElementType
from memopt.x86.instructions import Mem, sub_register
from passes.vector import conversions, floating, integers
from passes.vector.instructions import I64, VectorCode, VectorValue, integer, letter
from passes.vector.integers import Constants
from passes.vector.registers import view

# Predicates of the compare instructions.
FLOATING = PREDICATES
INTEGER = {"eq": 0, "slt": 1, "sle": 2, "ult": 1, "ule": 2}
_ORDERED = 7
CONNECTIVES = ("and", "or", "xor", "andnot")


@dataclass(frozen=True, slots=True)
class Truth:
    """A truth value in a register. ``element``: the integer type as wide as the operands that were compared.
    ``inverted``: the condition holds where the register says that it does not."""

    held: VectorValue
    element: ElementType
    inverted: bool = False

    @property
    def opposite(self) -> Truth:
        """The negation, without an instruction."""
        return replace(self, inverted=not self.inverted)


def compare(code: VectorCode, name: str, element: ElementType, first: VectorValue, second: VectorValue,
            constants: Constants) -> Truth:
    """The comparison ``name`` (a key of ``FLOATING`` or ``INTEGER``) of two values of ``element``."""
    kind = integer(element.size)
    if code.unit.evex and element.size >= 4 and (code.size(element, raises=True) == 64 or not element.is_float):
        return Truth(_compare_to_mask(code, name, element, first, second), kind)
    if name in FLOATING:
        first, second = floating.filled(code, first, element), floating.filled(code, second, element)
        if FLOATING[name] > 7 and not code.unit.three_operands:
            truth = Truth(_compare_by_others(code, name, element, first, second), kind)
        else:
            truth = Truth(_compare_floats(code, FLOATING[name], element, first, second), kind)
    else:
        truth = _compare_integers(code, name, element, first, second, constants)
    return _to_mask(code, truth) if code.unit.evex else truth


def _compare_floats(code: VectorCode, predicate: int, element: ElementType, first: VectorValue,
                    second: VectorValue) -> VectorValue:
    return code.binary(floating.mnemonic(code, "cmp", element), element, first, second, immediate=predicate,
                       scalar=True)


def _compare_by_others(code: VectorCode, name: str, element: ElementType, first: VectorValue,
                       second: VectorValue) -> VectorValue:
    """A predicate above 7 on SSE2, which has only 0 to 7, by two of those.

    A quiet less-than: the operands of unordered lanes become zeros before the signalling one, which raise no flag.
    ``cmpord``, which finds those lanes, is quiet and raises all other flags. A signalling equality: a less-than beside
    it raises its flags.
    """
    first, second = code.in_register(first, element), code.in_register(second, element)
    base = FLOATING[name] - 16
    if base in (FLOATING["flt"], FLOATING["fle"]):
        ordered = _compare_floats(code, _ORDERED, element, first.kept, second.kept)
        left = floating.bitwise(code, "and", element, first, ordered.kept)
        right = floating.bitwise(code, "and", element, second, ordered.kept)
        found = _compare_floats(code, base, element, left, right)
        return floating.bitwise(code, "and", element, found, ordered)
    code.release(_compare_floats(code, FLOATING["flt"], element, first.kept, second.kept))
    return _compare_floats(code, base, element, first, second)


def _compare_to_mask(code: VectorCode, name: str, element: ElementType, first: VectorValue,
                     second: VectorValue) -> VectorValue:
    """A comparison of AVX-512F into a mask register. Integers narrower than the vector are compared together with the
    bytes above them; nobody reads those bits of the mask."""
    first = code.in_register(first, element)
    full = code.unit.register_bytes(element) == 64
    operand = code.operand(second.place, element, 64, True, False) if isinstance(second.place, Mem) and full else None
    if operand is None:
        second = code.in_register(second, element)
    assert isinstance(first.place, str)
    right = operand if operand is not None else view(str(second.place), 64)
    if element.is_float:
        mnemonic, number, mask = "vcmpp" + ("d" if element.size == 8 else "s"), FLOATING[name], code.mask
    else:
        mnemonic, number, mask = ("vpcmpu" if name[0] == "u" else "vpcmp") + letter(element), INTEGER[name], None
    result = code.masks.take()
    code.emitter.op(mnemonic, result, view(first.place, 64), right, number, mask=mask)
    code.release(first, second)
    return VectorValue(result, ours=True)


def _to_mask(code: VectorCode, truth: Truth) -> Truth:
    """A vector of all-ones and all-zeros elements, narrower than AVX-512F's, as a mask register."""
    place = truth.held.place
    assert isinstance(place, str)
    result, wide = code.masks.take(), 64 // code.unit.lanes
    register = code.pool.take()
    source = view(place, code.unit.register_bytes(truth.element))
    if truth.element.size == wide:
        code.emit("movdqa", view(register, code.unit.register_bytes(truth.element)), source)
    else:
        code.emit(f"pmovsx{letter(truth.element)}{letter(integer(wide))}", view(register, 64), source)
    code.emit("ptestm" + letter(integer(wide)), result, view(register, 64), view(register, 64))
    code.pool.give(register)
    code.release(truth.held)
    return replace(truth, held=VectorValue(result, ours=True))


def _compare_integers(code: VectorCode, name: str, element: ElementType, first: VectorValue, second: VectorValue,
                      constants: Constants) -> Truth:
    if name in ("sle", "ule") and not (name == "ule" and integers.has_extreme(code, "umin", element)):
        return _compare_integers(code, name[0] + "lt", element, second, first, constants).opposite
    if name == "ule":  # first <= second where the minimum is the first
        first = code.in_register(first, element)
        smaller = integers.extreme(code, "umin", element, first.kept, second)
        return Truth(_equal(code, element, smaller, first), integer(element.size))
    if name == "ult":
        if integers.has_extreme(code, "umin", element):
            return _compare_integers(code, "ule", element, second, first, constants).opposite
        sign = constants(1 << 8 * element.size - 1, element)
        first, second = (code.binary("pxor", element, v, s) for v, s in ((first, sign.kept), (second, sign)))
    found = _equal(code, element, first, second) if name == "eq" else _less(code, element, first, second)
    return Truth(found, integer(element.size))


def _equal(code: VectorCode, element: ElementType, first: VectorValue, second: VectorValue) -> VectorValue:
    if element is I64 and not code.unit.three_operands:  # SSE2: both halves are equal
        found = code.binary("pcmpeqd", I64, first, second)
        return code.binary("pand", I64, code.unary("pshufd", I64, found.kept, immediate=0xB1), found)
    return code.binary("pcmpeq" + letter(element), element, first, second)


def _less(code: VectorCode, element: ElementType, first: VectorValue, second: VectorValue) -> VectorValue:
    """first < second, signed."""
    if element is not I64 or code.unit.three_operands:
        return code.binary("pcmpgt" + letter(element), element, second, first)
    # SSE2: the upper half is less, or equal and first - second borrows from it; then the upper half of both.
    first, second = code.in_register(first, I64), code.in_register(second, I64)
    borrow = code.binary("psubq", I64, first.kept, second.kept)
    borrow = code.binary("pand", I64, borrow, code.binary("pcmpeqd", I64, first.kept, second.kept))
    less = code.binary("por", I64, code.binary("pcmpgtd", I64, second, first), borrow)
    return code.unary("pshufd", I64, less, immediate=0xF5)


def combine(code: VectorCode, name: str, first: Truth, second: Truth, constants: Constants) -> Truth:
    """The connective ``name`` of two truth values: and, or, xor, andnot (``~first & second``)."""
    first, second = (replace(t, held=_upright(code, t, constants), inverted=False) for t in (first, second))
    if code.unit.evex:
        result = code.masks.take()
        spelled = {"andnot": "andn"}.get(name, name)
        code.emitter.op(f"k{spelled}w", result, str(first.held.place), str(second.held.place))
        code.release(first.held, second.held)
        return replace(first, held=VectorValue(result, ours=True))
    element = max(first.element, second.element, key=lambda e: e.size)
    left, right = (_as_wide_as(code, t, element, constants) for t in (first, second))
    return Truth(floating.bitwise(code, name, element, left, right), element)


def upright(code: VectorCode, truth: Truth) -> VectorValue:
    """The mask register with the truth value itself. Precondition: the unit has mask registers."""
    if not truth.inverted:
        return truth.held
    result = code.masks.take()
    code.emitter.op("knotw", result, str(truth.held.place))
    code.release(truth.held)
    return VectorValue(result, ours=True)


def vector(code: VectorCode, truth: Truth, element: ElementType, constants: Constants) -> VectorValue:
    """The truth value as a vector of all-ones and all-zeros elements as wide as ``element``. Precondition: the unit has
    no mask registers."""
    held = _upright(code, truth, constants)
    return _as_wide_as(code, replace(truth, held=held, inverted=False), element, constants)


def _upright(code: VectorCode, truth: Truth, constants: Constants) -> VectorValue:
    """The register with the truth value itself; emits the negation of an inverted one."""
    if not truth.inverted:
        return truth.held
    if code.unit.evex:
        return upright(code, truth)
    ones = constants((1 << 8 * truth.element.size) - 1, truth.element)
    return code.binary("pxor", truth.element, truth.held, ones)


def _as_wide_as(code: VectorCode, truth: Truth, element: ElementType, constants: Constants) -> VectorValue:
    """A truth vector with elements as wide as ``element``."""
    if truth.element.size < element.size:
        return conversions.extend(code, True, truth.element, integer(element.size), truth.held, constants)
    if truth.element.size > element.size:
        return conversions.truncate(code, truth.element, integer(element.size), truth.held, truth=True)
    return truth.held


def select(code: VectorCode, truth: Truth, element: ElementType, chosen: VectorValue, other: VectorValue,
           constants: Constants,
           target: str | None = None) -> VectorValue:
    """The selection ``truth ? chosen : other``, lane by lane."""
    if truth.inverted:
        chosen, other = other, chosen
    if code.unit.evex and element.size >= 4:
        return _blend(code, str(truth.held.place), element, chosen, other, truth.held, target)
    if code.unit.evex:
        mask = _from_mask(code, truth.held, element)
    else:
        mask = _as_wide_as(code, replace(truth, inverted=False), element, constants)
    chosen, other = code.in_register(chosen, element), code.in_register(other, element)
    if not code.unit.three_operands:
        taken = floating.bitwise(code, "and", element, mask.kept, chosen)
        left = floating.bitwise(code, "andnot", element, mask, other)
        return floating.bitwise(code, "or", element, taken, left, target)
    size = code.size(element)
    result = code.result(target, chosen, other, mask)
    name = ("blendvpd" if element.size == 8 else "blendvps") if element.size >= 4 else "pblendvb"
    code.emit(name, *(view(str(r), size) for r in (result, other.place, chosen.place, mask.place)))
    return code.done(result, target, chosen, other, mask)


def _blend(code: VectorCode, mask: str, element: ElementType, chosen: VectorValue, other: VectorValue,
           truth: VectorValue,
           target: str | None) -> VectorValue:
    chosen, other = code.in_register(chosen, element), code.in_register(other, element)
    result = code.result(target, chosen, other)
    suffix = {8: "d", 4: "s"}[element.size]
    name = "vblendmp" + suffix if element.is_float else "vpblendm" + letter(element)
    code.emitter.op(name, *(view(str(r), 64) for r in (result, other.place, chosen.place)), mask=mask)
    code.release(truth)
    return code.done(result, target, chosen, other)


def _from_mask(code: VectorCode, truth: VectorValue, element: ElementType) -> VectorValue:
    """A mask register as a vector of bytes or words: AVX-512F has no blends for these."""
    wide = integer(64 // code.unit.lanes)
    register = code.pool.take()
    code.emitter.op("mov", code.spare, -1)
    general = sub_register(code.spare, wide.size)
    code.emitter.op("vpbroadcast" + letter(wide), view(register, 64), general, mask=str(truth.place), zeroing=True)
    code.release(truth)
    return conversions.truncate(code, wide, integer(element.size), VectorValue(register, ours=True), truth=True)
