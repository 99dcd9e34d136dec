"""Floating-point operators on vectors. Each lane gets what the scalar instruction gives: value, NaN payload and flags.

Soundness of a vector that does not fill its register: lanes of unknown content could raise exception flags, so they are
replaced by copies of valid lanes first (``filled``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from memopt.ir.plan import Isa
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.scop import ElementType
from memopt.x86.instructions import Mem
from passes.vector.instructions import F64, VectorCode, VectorValue, integer
from passes.vector.registers import view

BINARY = ("add", "sub", "mul", "div", "min", "max")
FUSED = {"fma": "fmadd", "fms": "fmsub", "fnma": "fnmadd", "fnms": "fnmsub"}


def mnemonic(code: VectorCode, name: str, element: ElementType) -> str:
    """The SSE mnemonic for the unit: "add" -> "addpd", "addps", "addsd", "addss"."""
    return name + ("s" if code.unit.scalar else "p") + ("d" if element is F64 else "s")


def filled(code: VectorCode, value: VectorValue, element: ElementType) -> VectorValue:
    """The value without undefined bytes: two lanes of 4 bytes, which do not fill a register, are repeated in its upper
    half."""
    if code.unit.scalar or code.unit.width(element) >= 16:
        return value
    if isinstance(value.place, Mem) and value.place.broadcast:
        return code.in_register(value, element)
    value = code.in_register(value, element)
    return code.binary("unpcklpd", element, value.kept, value)


def binary(code: VectorCode, name: str, element: ElementType, first: VectorValue, second: VectorValue,
           target: str | None = None) -> VectorValue:
    """The operator ``name`` of ``BINARY``. ``first`` is the machine's first source."""
    first, second = filled(code, first, element), filled(code, second, element)
    return code.binary(mnemonic(code, name, element), element, first, second, target,
                       raises=True, broadcasts=True, scalar=True)


def square_root(code: VectorCode, element: ElementType, value: VectorValue, target: str | None = None) -> VectorValue:
    """The square root. With AVX the scalar instruction names a source for the upper bytes: the operand itself, which
    adds no dependence."""
    value = filled(code, value, element)
    if code.unit.scalar and code.unit.three_operands:
        value = code.in_register(value, element)
        return code.binary(mnemonic(code, "sqrt", element), element, value.kept, value, target)
    return code.unary(mnemonic(code, "sqrt", element), element, value, target=target, raises=True)


def rounded(code: VectorCode, element: ElementType, value: VectorValue, immediate: int,
            target: str | None = None) -> VectorValue:
    """An integral number, rounded as the ``immediate`` of ROUNDPD says. Raises ``Rejected(NO_PLAN)`` on SSE2."""
    if code.unit.isa is Isa.SSE2:
        raise Rejected(Reason.NO_PLAN, "SSE2 cannot round to integral numbers")
    value = filled(code, value, element)
    if code.unit.scalar:
        value = code.in_register(value, element)
        return code.binary(mnemonic(code, "round", element), element, value.kept, value, target, immediate=immediate)
    if code.size(element, raises=True) < 64:
        return code.unary(mnemonic(code, "round", element), element, value, target=target, immediate=immediate)
    # Keystone assembles the 512-bit form with an operand in memory only.
    memory = code.operand(value.place, element, 64, True, False) if isinstance(value.place, Mem) else None
    if memory is None:
        value, memory = code.in_register(value, element), replace(code.emitter.slot(64), size=64)
        assert isinstance(value.place, str)
        code.spill(memory, value.place, element)
    result = code.result(target, value)
    code.emit(mnemonic(code, "rndscale", element), view(result, 64), memory, immediate, raises=True)
    return code.done(result, target, value)


def fused(code: VectorCode, name: str, element: ElementType, operands: Sequence[VectorValue],
          target: str | None = None) -> VectorValue:
    """The operator ``name`` of ``FUSED``: ``a*b + c`` and its relatives, rounded once. Raises ``Rejected(NO_PLAN)`` on
    SSE2.

    The result's NaN payload is that of the first NaN among a, b, c. The three forms of the instruction (132, 213, 231)
    differ in which source is which: a, b, c are source 1, 3, 2; 2, 1, 3; and 2, 3, 1.
    """
    if code.unit.isa is Isa.SSE2:
        raise Rejected(Reason.NO_PLAN, "SSE2 has no fused multiply-add")
    a, b, c = (filled(code, o, element) for o in operands)
    accumulator = _accumulator((a, b, c), target)
    form, second, third = {0: ("132", c, b), 1: ("213", a, c), 2: ("231", a, b)}[accumulator]
    first = code.in_register((a, b, c)[accumulator], element)
    second = code.in_register(second, element)
    size = code.size(element, raises=True)
    memory = None if isinstance(third.place, str) else code.operand(third.place, element, size, True, True)
    if memory is None:
        third = code.in_register(third, element)
    assert isinstance(first.place, str)
    assert isinstance(second.place, str)
    used = [r.place for r in (second, third)]
    destination = target if target is not None and target not in used else \
        first.place if first.ours and first.place not in used else code.pool.take()
    code.move(destination, first.place, element)
    last = view(third.place, size) if isinstance(third.place, str) else memory
    assert last is not None
    code.emit(mnemonic(code, FUSED[name] + form, element), view(destination, size), view(second.place, size), last,
              raises=True)
    code.release(first, second, third, but=destination)
    if target is not None and destination != target:
        code.move(target, destination, element)
        code.pool.give(destination)
    return VectorValue(target or destination, ours=target is None)


def _accumulator(values: Sequence[VectorValue], target: str | None) -> int:
    """Which of a, b, c the result overwrites: preferably the one in ``target``, else a temporary, else one that must be
    loaded anyway."""
    places = [v.place for v in values]
    for n in (2, 1, 0):
        if places[n] == target and places.count(target) == 1:
            return n
    for n in (2, 1, 0):
        if values[n].ours and places.count(places[n]) == 1:
            return n
    return next((n for n in (2, 1, 0) if isinstance(places[n], Mem)), 2)


def bitwise(code: VectorCode, name: str, element: ElementType, first: VectorValue, second: VectorValue,
            target: str | None = None) -> VectorValue:
    """The bitwise operator ``name``: and, or, xor, andnot (``~first & second``). AVX-512F has integer forms only."""
    size = code.size(element)
    name = {"andnot": "andn"}.get(name, name)
    if size == 64:
        letter = "q" if element.size == 8 else "d"
        return code.binary(f"p{name}{letter}", element, first, second, target, broadcasts=True)
    if element.is_float:
        return code.binary(name + ("pd" if element is F64 else "ps"), element, first, second, target)
    return code.binary("p" + name, integer(element.size), first, second, target)
