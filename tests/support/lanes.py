"""Expressions on vectors against the same expressions element by element: values and MXCSR.

The reference computes floating-point operators with one scalar instruction each (inline assembly, so that no compiler
swaps operands) and integer operators with Python's integers. It shares nothing with the code under test.
"""

from __future__ import annotations

import ctypes
import random
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from memopt.ir.evaluate import evaluate
from memopt.ir.scop import ROUNDS, Apply, Constant, ElementType, Expression, Read
from memopt.x86.instructions import Mem
from passes.vector.emitter import Emitter
from passes.vector.lowering import Lowering, is_truth
from passes.vector.masks import first_lanes
from passes.vector.registers import Leaf, Registers, VectorUnit, view
from tests.support.inprocess import MXCSR_DEFAULT, Buffer, NativeKernel

F64, F32, I64, I32, I16, I8 = ElementType
_C = {F64: ("double", "sd"), F32: ("float", "ss"), I64: ("long", ""), I32: ("int", "")}
_FLOAT_BINARY = ("add", "sub", "mul", "div", "min", "max")
_FUSED = {"fma": "fmadd", "fms": "fmsub", "fnma": "fnmadd", "fnms": "fnmsub"}
_PREDICATES = {"feq": 0, "flt": 1, "fle": 2, "funord": 3, "fseq": 16, "fqlt": 17, "fqle": 18, "fsunord": 19}
_CONVERSIONS = {"i32tof64": (I32, F64, "cvtsi2sd"), "i64tof64": (I64, F64, "cvtsi2sd"),
                "i32tof32": (I32, F32, "cvtsi2ss"), "i64tof32": (I64, F32, "cvtsi2ss"),
                "f32to64": (F32, F64, "cvtss2sd"), "f64to32": (F64, F32, "cvtsd2ss"),
                "f64toi32z": (F64, I32, "cvttsd2si"), "f64toi64z": (F64, I64, "cvttsd2si"),
                "f32toi32z": (F32, I32, "cvttss2si"), "f32toi64z": (F32, I64, "cvttss2si"),
                "f64toi32": (F64, I32, "cvtsd2si"), "f64toi64": (F64, I64, "cvtsd2si"),
                "f32toi32": (F32, I32, "cvtss2si"), "f32toi64": (F32, I64, "cvtss2si")}


def _source() -> str:
    lines = ["#include <xmmintrin.h>"]

    def function(name: str, result: ElementType, operands: Sequence[ElementType], body: str) -> None:
        parameters = ", ".join(f"{_C[e][0]} *p{n}" for n, e in enumerate(operands))
        lines.append(f"unsigned {name}(long n, unsigned mxcsr, {_C[result][0]} *q, {parameters}) {{"
                     "unsigned saved = _mm_getcsr(); _mm_setcsr(mxcsr); for (long i = 0; i < n; i++) { "
                     + "".join(f"{_C[e][0]} {'abc'[k]} = p{k}[i]; " for k, e in enumerate(operands))
                     + f"{_C[result][0]} r; {body} q[i] = r; }} "
                     'asm volatile("" ::: "memory"); unsigned after = _mm_getcsr(); _mm_setcsr(saved); return after; }')

    for element in (F64, F32):
        suffix = _C[element][1]
        for name in _FLOAT_BINARY:
            function(f"{name}_{element.value}", element, (element,) * 2,
                     f'r = a; asm volatile("{name}{suffix} %1, %0" : "+x"(r) : "x"(b));')
        function(f"sqrt_{element.value}", element, (element,),
                 f'asm volatile("sqrt{suffix} %1, %0" : "=x"(r) : "x"(a));')
        for name, number in ROUNDS.items():
            function(f"{name}_{element.value}", element, (element,),
                     f'asm volatile("round{suffix} ${number}, %1, %0" : "=x"(r) : "x"(a));')
        for name, spelled in _FUSED.items():  # AT&T order: third, second, first
            function(f"{name}_{element.value}", element, (element,) * 3,
                     f'r = c; asm volatile("v{spelled}231{suffix} %2, %1, %0" : "+x"(r) : "x"(a), "x"(b));')
        for name, number in _PREDICATES.items():
            function(f"{name}_{element.value}", element, (element,) * 2,
                     f'r = a; asm volatile("vcmp{suffix} ${number}, %1, %0, %0" : "+x"(r) : "x"(b));')
    for name, (source, result, spelled) in _CONVERSIONS.items():
        wide = "q" if I64 in (source, result) else "l" if I32 in (source, result) else ""
        to, of = ("x" if result.is_float else "r"), ("x" if source.is_float else "r")
        function(f"{name}_{result.value}", result, (source,),
                 f'asm volatile("{spelled}{wide} %1, %0" : "={to}"(r) : "{of}"(a));')
    return "\n".join(lines)


@cache
def _library() -> ctypes.CDLL:
    folder = Path(tempfile.mkdtemp(prefix="memopt-lanes-"))
    target = folder / "reference.so"
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-x", "c", "-", "-o", str(target)],
                   input=_source().encode(), check=True)
    return ctypes.CDLL(str(target))


class Scalars:
    """The reference. ``flags`` accumulates what the operations raise."""

    def __init__(self, mxcsr: int = MXCSR_DEFAULT) -> None:
        self.mxcsr = mxcsr

    def evaluate(self, expression: Expression, reads: Sequence[Sequence[int]], types: Sequence[ElementType],
                 count: int) -> tuple[list[int], ElementType]:
        """Bit patterns of the expression for every element, and their type (truth values: all ones or zero)."""
        match expression:
            case Read(index):
                return list(reads[index]), types[index]
            case Constant(bits, element):
                return [bits] * count, element
            case Apply(name, operands, element):
                values = [self.evaluate(o, reads, types, count) for o in operands]
                if is_truth(expression) and name in ("and", "or", "xor", "not"):
                    ones = (1 << 8 * element.size) - 1
                    values = [([ones * bool(b) for b in column], element) for column, _ in values]
                return self._apply(name, [v for v, _ in values], [t for _, t in values], element, count), element
        raise AssertionError(expression)

    def _apply(self, name: str, values: list[list[int]], types: list[ElementType], element: ElementType,
               count: int) -> list[int]:
        width, ones = 8 * element.size, (1 << 8 * element.size) - 1
        sign = 1 << width - 1
        if name in _PREDICATES:
            return self._call(f"{name}_{types[0].value}", values, types, types[0], count)
        if name in _CONVERSIONS or (element.is_float and (
                name in (*_FLOAT_BINARY, "sqrt") or name in _FUSED or name in ROUNDS)):
            return self._call(f"{name}_{element.value}", values, types, element, count)
        plain = {"neg": lambda a: a ^ sign, "abs": lambda a: a & ~sign, "andnot": lambda a, b: ~a & b & ones,
                 "bits": lambda a: a, "beside": lambda a, _: a,
                 "smin": lambda a, b: min(a, b, key=lambda v: (v ^ sign)),
                 "smax": lambda a, b: max(a, b, key=lambda v: (v ^ sign)), "umin": min, "umax": max,
                 "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
                 "not": lambda a: a ^ ones, "select": lambda c, a, b: a if c else b}
        if name in plain:
            return [plain[name](*column) for column in zip(*values, strict=True)]
        widths = tuple(8 * t.size for t in types)
        results = [evaluate(name, column, widths, 1 if name in _TRUTHS else width)
                   for column in zip(*values, strict=True)]
        assert None not in results, name
        return [ones * r if name in _TRUTHS else r for r in results if r is not None]

    def _call(self, name: str, values: list[list[int]], types: list[ElementType], result: ElementType,
              count: int) -> list[int]:
        arrays = [packed(v, t) for v, t in zip(values, types, strict=True)]
        target = ctypes.create_string_buffer(count * result.size)
        function = getattr(_library(), name)
        self.mxcsr = int(function(ctypes.c_long(count), ctypes.c_uint32(self.mxcsr), target, *arrays))
        return unpacked(target.raw, result)


_NO_DENORMALS = 0x8040  # flush to zero, denormals are zeros
_POISON = 256  # offset in the frame
_TRUTHS = ("eq", "slt", "sle", "ult", "ule")


def packed(values: Sequence[int], element: ElementType) -> bytes:
    return b"".join(v.to_bytes(element.size, "little") for v in values)


def unpacked(data: bytes, element: ElementType) -> list[int]:
    size = element.size
    return [int.from_bytes(data[n:n + size], "little") for n in range(0, len(data), size)]


_SPECIAL = {
    F64: (0, 1 << 63, 1, (1 << 63) + 1, 0x7FF0000000000000, 0xFFF0000000000000, 0x7FF8000000000011, 0xFFF8000000000022,
          0x7FF0000000000033, 0xFFF4000000000044, 0x7FEFFFFFFFFFFFFF, 0x0010000000000000, 0x3FF0000000000000,
          0xBFF0000000000000, 0x41DFFFFFFFC00000, 0x41E0000000000000, 0xC1E0000000000000, 0xC1E0000000200000,
          0x43E0000000000000, 0xC3E0000000000000, 0x36A0000000000000, 0x47EFFFFFF0000000, 0x3FB999999999999A),
    F32: (0, 1 << 31, 1, (1 << 31) + 1, 0x7F800000, 0xFF800000, 0x7FC00011, 0xFFC00022, 0x7F800033, 0xFFA00044,
          0x7F7FFFFF, 0x00800000, 0x3F800000, 0xBF800000, 0x4F000000, 0xCF000000, 0x5F000000, 0xDF000000, 0x3DCCCCCD),
}


def adversarial(rng: random.Random, element: ElementType) -> int:
    """A bit pattern: often one of those that are special for the type, else near such, or any."""
    bits = 8 * element.size
    choice = rng.random()
    if element.is_float:
        if choice < 0.45:
            return rng.choice(_SPECIAL[element])
        if choice < 0.8:
            exponent = rng.randrange(-40, 70)
            bias, mantissa = (1023, 52) if element is F64 else (127, 23)
            return rng.getrandbits(1) << bits - 1 | bias + exponent << mantissa | rng.getrandbits(mantissa)
    elif choice < 0.5:
        edges = (0, 1, 2, -1, -2, 1 << bits - 1, (1 << bits - 1) - 1, 1 << bits // 2, (1 << bits // 2) - 1, 1 << 24)
        return rng.choice(edges) & (1 << bits) - 1
    elif choice < 0.75:
        return rng.randrange(-200, 200) & (1 << bits) - 1
    return rng.getrandbits(bits)


def tame(rng: random.Random, element: ElementType) -> int:
    """A value no operation on which raises a flag too easily, so that a flag more or less is seen."""
    if not element.is_float:
        return adversarial(rng, element)
    choices = (0x3FF0000000000000, 0x4000000000000000, 0x4010000000000000) if element is F64 else (
        0x3F800000, 0x40000000, 0x40800000)
    return rng.choice(choices)


class VectorKernel:
    """``result = expression(reads)`` for up to ``unit.lanes`` elements from consecutive addresses.

    ``memory``: reads are given to the lowering as places in memory; else they are loaded into registers first.
    ``over``: the number of the read whose register receives the result.
    """

    def __init__(self, unit: VectorUnit, expression: Expression, reads: Sequence[ElementType], result: ElementType, *,
                 masked: bool = False, memory: bool = False, over: int | None = None) -> None:
        self.unit, self.reads, self.result = unit, tuple(reads), result
        self._frame = Buffer(4096)
        self._frame.view[_POISON:_POISON + 16] = packed((0x7FA00001, 1, 0x7FF00000, 1), I32)
        emitter = Emitter(512)
        pool = Registers(unit)
        lowering = Lowering(unit, emitter, pool, reads=reads, mask="k1" if masked else None)
        if masked:
            emitter.op("mov", "rcx", Mem("rbp"))
            first_lanes(emitter, "k1", "rcx")
        emitter.op("mov", "r9", Mem("rbp", displacement=8))
        places: list[str | Mem] = []
        for number, element in enumerate(reads):
            pointer = f"r{10 + number}"
            emitter.op("mov", pointer, Mem("rbp", displacement=16 + 8 * number))
            places.append(unit.at(pointer, 0, element))
            if not memory:
                register = pool.take()
                lowering.code.load(register, unit.at(pointer, 0, element), element)
                _poison(lowering, register, element)
                places[-1] = register
        target = pool.take() if over is None else str(places[over])
        left = pool.left
        lowering.into(target, expression, reads_at(places))
        assert pool.left == left, "a temporary was not given back"
        assert lowering.code.masks.left == (6 if masked else 7)
        lowering.code.store(unit.at("r9", 0, result), target, result)
        self._kernel = NativeKernel(emitter.code, unit.isa)

    def run(self, reads: Sequence[Sequence[int]], mxcsr: int = MXCSR_DEFAULT) -> tuple[list[int], int]:
        """Values (as many as there are elements in each of ``reads``) and MXCSR. The memory behind the elements is
        inaccessible; whole vectors are not aligned."""
        count = len(reads[0]) if reads else self.unit.lanes
        skew = int(count == self.unit.lanes)
        sources = [Buffer((count + skew) * e.size, at_end=True) for e in self.reads]
        for buffer, values, element in zip(sources, reads, self.reads, strict=True):
            buffer.view[:count * element.size] = packed(values, element)
        target = Buffer((count + skew) * self.result.size, at_end=True)
        words = [count, target.address, *(b.address for b in sources)]
        self._frame.view[:8 * len(words)] = packed(words, I64)
        after = self._kernel.run(self._frame.address, mxcsr=mxcsr)
        stored = bytes(target.view)
        assert not any(stored[count * self.result.size:]), "stored past the last lane"
        return unpacked(stored[:count * self.result.size], self.result), after


def _poison(lowering: Lowering, register: str, element: ElementType) -> None:
    """What no flag may come from: signalling NaNs and denormals above the lanes of a narrow value."""
    unit, code = lowering.unit, lowering.code
    size, place = unit.width(element), Mem("rbp", displacement=_POISON, size=16)
    if unit.evex and size in (16, 32):
        code.emitter.op("vinsertf32x4", view(register, 64), view(register, 64), place, size // 16)
    elif size == 16 and unit.bytes == 32:
        code.emitter.op("vinsertf128", view(register, 32), view(register, 32), place, 1)
    elif size in (4, 8):
        low = (view(register, 16),) * (2 if unit.three_operands else 1)
        code.emit("unpcklps" if size == 4 else "movhpd", *low, replace(place, size=16 if size == 4 else 8))


def reads_at(places: Sequence[str | Mem]) -> Leaf:
    return lambda node: places[node.index] if isinstance(node, Read) else None


def check(unit: VectorUnit, expression: Expression, reads: Sequence[ElementType], result: ElementType, *,
          masked: bool = False, memory: bool = False, over: int | None = None, rounds: int = 12,
          seed: int = 0) -> None:
    """Random elements, adversarial ones and tame ones; values and MXCSR must be those of the scalar instructions."""
    kernel = VectorKernel(unit, expression, reads, result, masked=masked, memory=memory, over=over)
    rng = random.Random(f"{seed} {expression} {unit}")
    for number in range(rounds):
        count = rng.randrange(1, unit.lanes + 1) if masked else unit.lanes
        draw = tame if number % 3 == 2 else adversarial
        operands = [[draw(rng, e) for _ in range(count)] for e in reads]
        control = MXCSR_DEFAULT | rng.randrange(4) << 13 | rng.choice((0, 0, _NO_DENORMALS))
        scalars = Scalars(control)
        wanted, _ = scalars.evaluate(expression, operands, reads, count)
        found, after = kernel.run(operands, control)
        shown = [[hex(v) for v in column] for column in operands]
        assert [hex(v) for v in found] == [hex(v) for v in wanted], (expression, shown, hex(control))
        assert hex(after) == hex(scalars.mxcsr), (expression, shown, hex(control))
