"""Conversions: sign and zero extension, truncation, and conversions between integers and floating point.

Example: ``(double)i`` is one ``cvtdq2pd`` for int32. For int64 it is a sequence on AVX-512F, and goes lane by lane on
SSE2 and AVX2.

Each lane gets what the scalar instruction gives, floating-point exception flags included.
"""

from __future__ import annotations

from dataclasses import replace

from memopt.ir.scop import ElementType
from memopt.x86.instructions import Mem, sub_register
from passes.vector.floating import filled, fused
from passes.vector.instructions import F32, F64, I16, I32, I64, VectorCode, VectorValue, integer, letter
from passes.vector.integers import Constants
from passes.vector.registers import view

CONVERSIONS = {"i32tof64": (I32, F64), "i64tof64": (I64, F64), "i32tof32": (I32, F32), "i64tof32": (I64, F32),
               "f32to64": (F32, F64), "f64to32": (F64, F32), "f64toi32z": (F64, I32), "f64toi64z": (F64, I64),
               "f32toi32z": (F32, I32), "f32toi64z": (F32, I64), "f64toi32": (F64, I32), "f64toi64": (F64, I64),
               "f32toi32": (F32, I32), "f32toi64": (F32, I64)}
_PACKED = {"i32tof64": "cvtdq2pd", "i32tof32": "cvtdq2ps", "f32to64": "cvtps2pd", "f64to32": "cvtpd2ps",
           "f64toi32z": "cvttpd2dq", "f32toi32z": "cvttps2dq", "f64toi32": "cvtpd2dq", "f32toi32": "cvtps2dq"}
_UNPACK = {1: "punpcklbw", 2: "punpcklwd", 4: "punpckldq"}
_TWO_TO_32 = 0x41F0000000000000  # the double


def extend(code: VectorCode, signed: bool, source: ElementType, to: ElementType, value: VectorValue,
           constants: Constants,
           target: str | None = None) -> VectorValue:
    """Sign extension (``signed``) or zero extension of each lane, from ``source`` to ``to``."""
    if not code.unit.three_operands:
        return _extend_by_steps(code, signed, source, to, value, constants, target)
    size = code.unit.register_bytes(to)
    memory = value.place
    if isinstance(memory, Mem) and (memory.broadcast or code.mask or code.unit.width(to) < 16):
        value = code.in_register(value, source)
    operand = value.place if isinstance(value.place, Mem) else view(value.place, code.unit.register_bytes(source))
    result = code.result(target, value)
    code.emit(f"pmov{'s' if signed else 'z'}x{letter(source)}{letter(to)}", view(result, size), operand)
    return code.done(result, target, value)


def _extend_by_steps(code: VectorCode, signed: bool, source: ElementType, to: ElementType, value: VectorValue,
                     constants: Constants, target: str | None) -> VectorValue:
    """SSE2: doubles the width until it is reached. Each element is interleaved with zeros, with its sign, or with
    itself where a shift follows."""
    value = code.in_register(value, source)
    width = source.size
    while width < to.size:
        last = 2 * width == to.size
        goal = target if last and (not signed or width == 4) else None
        if not signed:
            value = code.binary(_UNPACK[width], to, value, constants(0, to), goal)
        elif width == 4:
            value = code.binary(_UNPACK[4], to, value, code.shift("psrad", to, value.kept, 31), goal)
        else:
            value = code.binary(_UNPACK[width], to, value.kept, value)
        width *= 2
        if signed and width <= 4 and (width == to.size or width == 4):
            value = code.shift("psrad" if width == 4 else "psraw", to, value, 8 * (width - source.size),
                               target if width == to.size else None)
    return value


def truncate(code: VectorCode, source: ElementType, to: ElementType, value: VectorValue, target: str | None = None, *,
             truth: bool = False) -> VectorValue:
    """Truncation of each lane to the low bits. ``truth``: the values are all ones or all zeros. In a scalar unit the
    value stays as it is: its low bytes are in place."""
    value = code.in_register(value, source)
    if code.unit.scalar:
        return value
    if code.unit.register_bytes(source) == 64:
        return code.unary(f"pmov{letter(source)}{letter(to)}", to, value, source, target)
    if source.size == 8:
        value = _truncate_quadwords(code, value, target if to.size == 4 else None)
        return value if to.size == 4 else truncate(code, I32, to, value, target, truth=truth)
    if not truth:
        value = _clear_above(code, source, to, value)
    while source.size > to.size:
        narrower = integer(source.size // 2)
        name = "packssdw" if source.size == 4 else "packsswb" if truth else "packuswb"
        value = _pack(code, name, source, narrower, value, target if narrower is to else None)
        source = narrower
    return value


def _truncate_quadwords(code: VectorCode, value: VectorValue, target: str | None) -> VectorValue:
    if code.unit.width(I64) == 16:
        return code.unary("pshufd", I32, value, target=target, immediate=0x08)
    upper = _upper_half(code, value)
    return code.binary("shufps", I32, value, upper, target, immediate=0x88)


def _clear_above(code: VectorCode, source: ElementType, to: ElementType, value: VectorValue) -> VectorValue:
    """Only values that the saturating packs (packssdw, packuswb) leave unchanged: words in the signed range, bytes in
    the unsigned range."""
    distance, kind = 8 * (source.size - to.size), letter(source)
    shifted = code.shift("psll" + kind, source, value, distance)
    return code.shift(("psra" if to is I16 else "psrl") + kind, source, shifted, distance)


def _pack(code: VectorCode, name: str, source: ElementType, to: ElementType, value: VectorValue,
          target: str | None) -> VectorValue:
    """Packs both 128-bit halves into one; a vector of 16 bytes is packed with itself."""
    upper = _upper_half(code, value) if code.unit.register_bytes(source) == 32 else value.kept
    return code.binary(name, to, value, upper, target)


def _upper_half(code: VectorCode, value: VectorValue) -> VectorValue:
    assert isinstance(value.place, str)
    register = code.pool.take()
    code.emit("extractf128", view(register, 16), view(value.place, 32), 1)
    return VectorValue(register, ours=True)


def convert(code: VectorCode, name: str, value: VectorValue, constants: Constants,
            target: str | None = None) -> VectorValue:
    """The operator ``name``, a key of ``CONVERSIONS``, on each lane."""
    source, to = CONVERSIONS[name]
    if code.unit.scalar:
        return _convert_one(code, name, value, target)
    if name == "i64tof64" and code.unit.evex:
        return _from_halves(code, value, constants, target)
    if name not in _PACKED:
        return _convert_lanes(code, name, value, target)
    if source.size == to.size:
        value = filled(code, value, source)
    return code.unary(_PACKED[name], to, value, source, target, raises=True)


def _from_halves(code: VectorCode, value: VectorValue, constants: Constants, target: str | None) -> VectorValue:
    """int64 to double on AVX-512F: signed upper half * 2**32 + unsigned lower half. Both halves convert exactly and the
    sum is rounded once. A zero is the sum of two positive zeros, so it is +0 in every rounding mode."""
    value = code.in_register(value, I64)
    high = truncate(code, I64, I32, code.shift("psrlq", I64, value.kept, 32))
    high = code.unary("cvtdq2pd", F64, high, I32)
    low = code.unary("cvtudq2pd", F64, truncate(code, I64, I32, value), I32)
    return fused(code, "fma", F64, (high, constants(_TWO_TO_32, F64), low), target)


def _scalar_name(name: str) -> str:
    """The mnemonic of the scalar conversion: cvtsi2sd, cvttss2si, cvtsd2ss..."""
    source, to = ({F64: "sd", F32: "ss"}.get(e, "si") for e in CONVERSIONS[name])
    return f"cvt{'t' if name[-1] == 'z' else ''}{source}2{to}"


def _convert_one(code: VectorCode, conversion: str, value: VectorValue, target: str | None) -> VectorValue:
    (source, to), name = CONVERSIONS[conversion], _scalar_name(conversion)
    value = code.in_register(value, source)
    assert isinstance(value.place, str)
    result = code.result(target, value)
    if source.is_float and to.is_float:
        sources = (view(value.place, 16),) * (2 if code.unit.three_operands else 1)
        code.emit(name, view(result, 16), *sources)
    elif to.is_float:
        general = sub_register(code.spare, source.size)
        code.emit("movq" if source.size == 8 else "movd", general, view(value.place, 16))
        _from_general(code, name, result, general)
    else:
        general = sub_register(code.spare, to.size)
        code.emit(name, general, view(value.place, 16))
        code.emit("movq" if to.size == 8 else "movd", view(result, 16), general)
    return code.done(result, target, value)


def _from_general(code: VectorCode, name: str, result: str, source: str | Mem) -> None:
    """Converts from a general-purpose register or memory. The target is cleared first: the instruction keeps its upper
    bytes, and would wait for them (a false dependence)."""
    register = (view(result, 16),) * (2 if code.unit.three_operands else 1)
    code.emit("xorps", view(result, 16), *register)
    code.emit(name, *register, source)


def _convert_lanes(code: VectorCode, conversion: str, value: VectorValue, target: str | None) -> VectorValue:
    """Lane by lane through the frame: 64-bit integers convert in general-purpose registers only. Lanes outside the mask
    are zeros, which convert without raising a flag."""
    source, to = CONVERSIONS[conversion]
    value = code.in_register(value, source)
    assert isinstance(value.place, str)
    before, after = code.emitter.slot(64), code.emitter.slot(64)
    code.spill(replace(before, size=code.unit.register_bytes(source)), value.place, source)
    result = code.result(target, value)
    name = _scalar_name(conversion)
    for lane in range(code.unit.lanes):
        taken = Mem(before.base, displacement=before.displacement + lane * source.size, size=source.size)
        given = Mem(after.base, displacement=after.displacement + lane * to.size, size=to.size)
        if to.is_float:
            _from_general(code, name, result, taken)
            code.emit("movsd" if to.size == 8 else "movss", given, view(result, 16))
        else:
            code.emit(name, code.spare, taken)
            code.emitter.op("mov", given, code.spare)
    code.emit("movups", view(result, code.unit.register_bytes(to)), replace(after, size=code.unit.register_bytes(to)))
    return code.done(result, target, value)
