"""Strided, reversed, gathered and scattered vectors; nothing outside the valid lanes' elements is touched."""

from __future__ import annotations

import random

import pytest

from memopt.ir.plan import Isa
from memopt.ir.reasons import Rejected
from memopt.ir.scop import ElementType
from memopt.x86.instructions import Mem
from passes.vector import strided
from passes.vector.emitter import Emitter
from passes.vector.lowering import Lowering
from passes.vector.masks import counter, first_lanes, ramp
from passes.vector.registers import Registers, VectorUnit
from tests.support.inprocess import Buffer, NativeKernel, host_isas
from tests.support.lanes import F32, F64, I8, I16, I32, I64, packed, unpacked

HOST = host_isas()
TYPES = (F64, F32, I64, I32, I16, I8)


def units(element: ElementType) -> list[VectorUnit]:
    """Whole vectors, halves, single lanes; on AVX-512F also as the narrower type beside a wider one."""
    found = []
    for isa in HOST:
        lanes = isa.vector_bytes // element.size
        if element.size < 4:
            lanes = min(lanes, 32 // element.size)
        found += [VectorUnit(isa, element, n) for n in (lanes, lanes // 2, 2, 1)]
    if Isa.AVX512 in HOST:
        found += [VectorUnit(Isa.AVX512, wide, mixed=True) for wide in (F64, I32) if wide.size > element.size]
    return found


def copy(unit: VectorUnit, element: ElementType, from_stride: int, to_stride: int, values: list[int], *,
         masked: bool = False, gathered: bool = False, lanes: bool = False) -> list[int]:
    """``values`` read with one stride and written with the other; checks that nothing else was written. ``lanes``: one
    by one even where a gather would do."""
    count, size = len(values), element.size
    source, target = (Buffer((count - 1) * abs(s) + size, at_end=s > 0) for s in (from_stride, to_stride))
    starts = [b.address if s > 0 else b.address - (count - 1) * s
              for b, s in ((source, from_stride), (target, to_stride))]
    for n, value in enumerate(values):
        at = starts[0] - source.address + n * from_stride
        source.view[at:at + size] = packed([value], element)
    target.view[:] = b"\xa5" * len(target.view)
    frame = Buffer(4096)
    frame.view[:24] = packed([count, *starts], I64)
    emitter, pool = Emitter(512), Registers(unit)
    code = Lowering(unit, emitter, pool, reads=(element,), mask="k1" if masked else None).code
    left = pool.left
    if masked:
        emitter.op("mov", "rcx", Mem("rbp"))
        first_lanes(emitter, "k1", "rcx")
    offsets: dict[int, str] = {}
    for stride in (from_stride, to_stride):
        if not lanes and (gathered or strided.needs_offsets(code, stride, element)):
            offsets[stride] = pool.take()
            strided.offsets(code, offsets[stride], stride, element)
    emitter.op("mov", "r8", Mem("rbp", displacement=8))
    emitter.op("mov", "r9", Mem("rbp", displacement=16))
    register = pool.take()
    strided.load(code, register, Mem("r8"), from_stride, element, offsets.get(from_stride))
    strided.store(code, Mem("r9"), register, to_stride, element, offsets.get(to_stride))
    assert pool.left == left - 1 - len(offsets)
    NativeKernel(emitter.code, unit.isa).run(frame.address)
    stored = bytes(target.view)
    found = []
    for n in range(count):
        at = starts[1] - target.address + n * to_stride
        found += unpacked(stored[at:at + size], element)
        stored = stored[:at] + b"\xa5" * size + stored[at + size:]
    assert set(stored) <= {0xA5}, "stored beside an element"
    return found


@pytest.mark.parametrize("element", TYPES)
@pytest.mark.parametrize("stride", [1, -1, 2, 3, -5, 400])
def test_strides(element: ElementType, stride: int) -> None:
    rng = random.Random(stride)
    for unit in units(element):
        values = [rng.getrandbits(8 * element.size) for _ in range(unit.lanes)]
        for strides in ((stride, 1), (1, stride), (stride, stride)):
            assert copy(unit, element, *(element.size * s for s in strides), values) == values, unit


@pytest.mark.skipif(Isa.AVX512 not in HOST, reason="no AVX-512F")
@pytest.mark.parametrize("element", TYPES)
@pytest.mark.parametrize("stride", [1, -1, 3, -5, 400])
def test_gathered_and_masked(element: ElementType, stride: int) -> None:
    rng = random.Random(stride)
    wide = [e for e in (F64, F32) if e.size >= element.size]
    for unit in (VectorUnit(Isa.AVX512, e, mixed=e.size != element.size) for e in wide):
        for count in (unit.lanes, unit.lanes - 1, 3, 1):
            values = [rng.getrandbits(8 * element.size) for _ in range(count)]
            strides = element.size * stride, element.size * 7
            assert copy(unit, element, *strides, values, masked=True) == values
            assert copy(unit, element, *strides[::-1], values, masked=True) == values
            assert copy(unit, element, *strides, values, masked=True, lanes=True) == values
            if count == unit.lanes and element.size >= 4:
                assert copy(unit, element, *strides, values, gathered=True) == values


@pytest.mark.parametrize("element", [I32, I64])
def test_counters_as_data(element: ElementType) -> None:
    for isa in HOST:
        unit = VectorUnit(isa, element)
        emitter, pool = Emitter(512), Registers(unit)
        code = Lowering(unit, emitter, pool, reads=()).code
        lanes, register = pool.take(), pool.take()
        ramp(code, lanes, -3, element)
        emitter.op("mov", "r8", Mem("rbp"))
        counter(code, register, "r8", lanes, element)
        code.store(unit.at("rbp", 64), register, element)
        frame = Buffer(4096)
        frame.view[:8] = packed([5], I64)
        NativeKernel(emitter.code, isa).run(frame.address)
        found = unpacked(bytes(frame.view[64:64 + unit.bytes]), element)
        assert found == [(5 - 3 * n) % (1 << 8 * element.size) for n in range(unit.lanes)]


@pytest.mark.parametrize("element", [F64, F32, I32])
def test_streaming_stores(element: ElementType) -> None:
    for isa in HOST:
        unit = VectorUnit(isa, element)
        emitter, pool = Emitter(512), Registers(unit)
        code = Lowering(unit, emitter, pool).code
        register = pool.take()
        code.load(register, unit.at("rbp", 0), element)
        code.store(unit.at("rbp", 64), register, element, streaming=True)
        frame = Buffer(4096)
        frame.view[:64] = bytes(range(64))
        NativeKernel(emitter.code, isa).run(frame.address)
        assert bytes(frame.view[64:64 + unit.bytes]) == bytes(range(unit.bytes))


def test_what_cannot_be_done_is_rejected() -> None:
    unit = VectorUnit(Isa.AVX512, F64)
    code = Lowering(unit, Emitter(0), Registers(unit), mask="k1").code
    with pytest.raises(Rejected):
        strided.store(code, Mem("r8"), "zmm0", 0, F64)
    with pytest.raises(Rejected):
        strided.offsets(code, "zmm0", 2, I8)
    with pytest.raises(Rejected):
        strided.load(Lowering(unit, Emitter(0), Registers(unit)).code, "zmm0", Mem("r8"), 1 << 30, F64)
