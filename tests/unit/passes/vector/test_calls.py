"""Calls of library functions, run: results, and what else is in registers while they run."""

from __future__ import annotations

import ctypes
import math
import struct

import pytest

from memopt.ir.plan import Isa
from memopt.ir.reasons import Rejected
from memopt.ir.scop import Apply, ElementType, Expression, Read
from memopt.x86.instructions import Mem, instruction
from passes.vector.calls import is_of_call
from passes.vector.emitter import Emitter
from passes.vector.lowering import Lowering
from passes.vector.registers import Registers, VectorUnit
from tests.support.inprocess import Buffer, NativeKernel, host_isas
from tests.support.lanes import F32, F64

LIBRARY = ctypes.CDLL("libm.so.6")
FORMS = {F64: "<d", F32: "<f"}


def function(name: str, element: ElementType) -> tuple[str, ctypes._NamedFuncPointer]:
    """The operator that calls it, and itself."""
    found = getattr(LIBRARY, name + ("" if element is F64 else "f"))
    kind = ctypes.c_double if element is F64 else ctypes.c_float
    found.restype, found.argtypes = kind, [kind] * (2 if name == "pow" else 1)
    address = ctypes.cast(found, ctypes.c_void_p).value
    assert address is not None
    return f"call {address:x}", found


def bits(value: float, element: ElementType) -> int:
    return int.from_bytes(struct.pack(FORMS[element], value), "little")


@pytest.mark.parametrize("isa", host_isas())
@pytest.mark.parametrize("element", [F64, F32])
def test_other_values_outlive_a_call(isa: Isa, element: ElementType) -> None:
    """The operands in the registers that arguments and results use, in the other order; all registers but one taken."""
    (exp, natural), (power, of) = function("exp", element), function("pow", element)
    first, second = Read(0), Read(1)
    expression: Expression = Apply("add", (
        Apply(power, (first, second), element),
        Apply("mul", (Apply(exp, (Apply("mul", (first, second), element),), element), first), element)), element)
    unit, emitter = VectorUnit(isa, element, 1), Emitter(0)
    pool = Registers(unit)
    places = {Read(n): pool.take() for n in (1, 0)}  # second in xmm0, first in xmm1
    for number in range(2, 8):  # the program's
        assert pool.take() == f"xmm{number}"
    numbers = ("rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "rbx", "r15")
    for number, register in enumerate(numbers):
        emitter.op("mov", register, 1000 + number)
    emitter.op("mov", Mem("rbp", displacement=512), "rsp")
    lowering = Lowering(unit, emitter, pool, reads=(element, element))
    target = pool.take()
    lowering.into(target, expression, lambda node: places.get(node) if isinstance(node, Read) else None)
    for number, register in enumerate((*numbers, "rsp")):
        emitter.op("mov", Mem("rbp", displacement=520 + 8 * number), register)
    for number in (*range(8), int(target[3:])):
        lowering.code.emit("movups", Mem("rbp", displacement=1024 + 16 * number, size=16), f"xmm{number}")
    frame = Buffer(4096)
    kernel = NativeKernel(emitter.code, isa)
    values = (1.75, 2.5)
    scalars = [bits(values[1], element), bits(values[0], element), *range(40, 46)]
    kernel.run(frame.address, scalars)
    memory = bytes(frame.view)
    saved = struct.unpack_from("<12q", memory, 512)
    assert saved[1:11] == tuple(range(1000, 1010))
    assert saved[11] == saved[0]
    assert [struct.unpack_from("<Q", memory, 1024 + 16 * n)[0] for n in range(8)] == scalars
    result, = struct.unpack_from(FORMS[element], memory, 1024 + 16 * int(target[3:]))
    single = (lambda x: x) if element is F64 else (lambda x: struct.unpack("<f", struct.pack("<f", x))[0])
    product = single(natural(single(values[0] * values[1])) * values[0])
    assert result == single(of(*values) + product)
    assert not math.isnan(result)


def test_only_one_lane_calls() -> None:
    unit = VectorUnit(Isa.AVX2, F64)
    with pytest.raises(Rejected):
        Lowering(unit, Emitter(0), Registers(unit)).into("ymm1", Apply("call 1000", (Read(0),), F64),
                                                         lambda n: "ymm0" if isinstance(n, Read) else None)


def test_the_stack_is_used_in_no_other_way() -> None:
    unit, emitter = VectorUnit(Isa.AVX2, F64, 1), Emitter(0)
    Lowering(unit, emitter, Registers(unit, 1)).into("xmm1", Apply("call 1000", (Read(0),), F64),
                                                     lambda n: "xmm0" if isinstance(n, Read) else None)
    named = [i for i in emitter.code if "rsp" in str(i) or "call" in str(i)]
    assert len(named) == 4
    assert all(map(is_of_call, named))
    for other in (instruction("mov", "rsp", "rax"), instruction("and", "rsp", -8), instruction("push", "rax"),
                  instruction("mov", Mem("rsp"), "rax"), instruction("call", "rcx")):
        assert not is_of_call(other)
