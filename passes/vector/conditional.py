"""Loads and stores under a condition: lanes where it does not hold are neither read nor written.

Example: ``if (a[i] < b[i]) c[i] = x`` stores by ``vmovupd [c]{k2}, zmm0`` on AVX-512F and by ``vmaskmovpd`` on AVX2.
SSE2, a single lane, elements of one or two bytes, and elements that are not neighbours take a branch around each lane.

``memory`` is the place of lane 0, ``stride`` the bytes from each lane to the next, as in ``strided``. The functions
consume the truth value. They clobber ``code.spare`` and the flags.

Where the condition holds in no lane, a jump passes over the access: an instruction with an empty mask takes the
processor 10 ns (AVX-512) or 60 ns (AVX2) if the page may not be accessed, or is not present yet.

Sound because the processor suppresses the faults of masked lanes (Intel SDM 1, 15.6.4; 2, VMASKMOV), and because
each other access stands behind a branch of its own.
"""

from __future__ import annotations

from dataclasses import replace

from memopt.ir.scop import ElementType
from memopt.x86.instructions import Mem, sub_register
from passes.vector import comparisons, strided
from passes.vector.comparisons import Truth
from passes.vector.instructions import VectorCode, VectorValue, integer, letter
from passes.vector.integers import Constants
from passes.vector.masks import constant_lanes
from passes.vector.registers import view


def load(code: VectorCode, truth: Truth, target: str, memory: Mem, stride: int, element: ElementType,
         constants: Constants, offsets: str | None = None) -> None:
    """``target`` = the elements at ``memory``, ``memory + stride``, ... where ``truth`` holds, elsewhere 0."""
    if code.unit.evex:
        masked = _under(code, truth, element)
        assert masked.mask is not None
        over = code.emitter.fresh("nothing_loaded")
        code.constant(target, 0, element)
        code.emitter.op("kortestw", masked.mask, masked.mask)
        code.emitter.jump(over, "e")
        if stride == 0:
            _broadcast(masked, target, memory, element)
        else:
            strided.load(masked, target, memory, stride, element, offsets)
        code.emitter.place(over)
        code.masks.give(masked.mask)
    elif _has_masked_moves(code, stride, element):
        held = comparisons.vector(code, truth, element, constants)
        size, over = code.unit.width(element), code.emitter.fresh("nothing_loaded")
        mask = view(str(held.place), size)
        code.constant(target, 0, element)
        code.emit("ptest", mask, mask)
        code.emitter.jump(over, "e")
        code.emit(_masked_move(element), view(target, size), mask, replace(memory, size=size))
        code.emitter.place(over)
        code.release(held)
    else:
        _load_lanes(code, truth, target, memory, stride, element)


def store(code: VectorCode, truth: Truth, memory: Mem, source: str, stride: int, element: ElementType,
          constants: Constants, offsets: str | None = None) -> None:
    """The elements at ``memory``, ``memory + stride``, ... = ``source`` where ``truth`` holds. Raises
    ``Rejected(NO_PLAN)`` for stride 0."""
    if code.unit.evex:
        masked = _under(code, truth, element)
        assert masked.mask is not None
        over = code.emitter.fresh("nothing_stored")
        code.emitter.op("kortestw", masked.mask, masked.mask)
        code.emitter.jump(over, "e")
        strided.store(masked, memory, source, stride, element, offsets)
        code.emitter.place(over)
        code.masks.give(masked.mask)
    elif _has_masked_moves(code, stride, element):
        held = comparisons.vector(code, truth, element, constants)
        size, over = code.unit.width(element), code.emitter.fresh("nothing_stored")
        mask = view(str(held.place), size)
        code.emit("ptest", mask, mask)
        code.emitter.jump(over, "e")
        code.emit(_masked_move(element), replace(memory, size=size), mask, view(source, size))
        code.emitter.place(over)
        code.release(held)
    else:
        _store_lanes(code, truth, memory, source, stride, element)


def store_changed(code: VectorCode, memory: Mem, source: str, before: Mem, stride: int, element: ElementType,
                  constants: Constants, offsets: str | None = None) -> None:
    """The elements at ``memory``, ``memory + stride``, ... = ``source`` where their bits are not those at ``before``,
    lane after lane. ``memory`` is not read: by now another thread may have stored to a cell that is passed over."""
    kind = integer(element.size)
    register = code.pool.take()
    code.load(register, before, element)
    same = comparisons.compare(code, "eq", kind, VectorValue(register, ours=True), VectorValue(source), constants)
    store(code, same.opposite, memory, source, stride, element, constants, offsets)


# -- masks of AVX-512F and AVX2 ------------------------------------------------------------------------------------


def _under(code: VectorCode, truth: Truth, element: ElementType) -> VectorCode:
    """``code`` under a mask register with the lanes where ``truth`` holds; the caller gives it back to ``code.masks``.
    Bits of lanes that the unit does not have are 0."""
    held = comparisons.upright(code, truth)
    place = str(held.place)
    if code.mask is None and code.unit.width(element) == 64 and held.ours:
        return replace(code, mask=place)
    mask = code.masks.take()
    if code.mask is not None:
        code.emitter.op("kandw", mask, place, code.mask)
    else:
        constant_lanes(code.emitter, mask, code.unit.lanes, code.spare)
        code.emitter.op("kandw", mask, place, mask)
    code.release(held)
    return replace(code, mask=mask)


def _broadcast(code: VectorCode, target: str, memory: Mem, element: ElementType) -> None:
    """One element for all lanes; it is read only if the mask has a lane."""
    memory = replace(memory, size=element.size, broadcast=0)
    if element.size >= 4:
        code.emitter.op("vpbroadcast" + letter(element), view(target, 64), memory, mask=code.mask, zeroing=True)
        return
    strided.load_lanes(code, target, memory, 0, element)


def _has_masked_moves(code: VectorCode, stride: int, element: ElementType) -> bool:
    return (code.unit.three_operands and not code.unit.scalar and stride == element.size >= 4
            and code.unit.width(element) >= 16)


def _masked_move(element: ElementType) -> str:
    if element.is_float:
        return "maskmovp" + ("d" if element.size == 8 else "s")
    return "pmaskmov" + letter(element)


# -- lane by lane --------------------------------------------------------------------------------------------------


def _lane_bits(code: VectorCode, truth: Truth) -> tuple[int, ...]:
    """Sets ``code.spare`` to the lanes where ``truth`` holds, and consumes it: the bit of each lane."""
    size, low = truth.element.size, sub_register(code.spare, 4)
    name = {8: "movmskpd", 4: "movmskps"}.get(size, "pmovmskb")
    code.emit(name, low, view(str(truth.held.place), code.unit.register_bytes(truth.element)))
    bits = tuple(1 << lane * (2 if size == 2 else 1) for lane in range(code.unit.lanes))
    if truth.inverted:
        code.emitter.op("not", low)
    if truth.inverted or size == 2 or code.unit.width(truth.element) < 16:
        code.emitter.op("and", low, sum(bits))
    code.release(truth.held)
    return bits


def _places(memory: Mem, stride: int, element: ElementType, lanes: int) -> list[Mem]:
    return [strided.lane_at(memory, stride, lane, element) for lane in range(lanes)]


def _load_lanes(code: VectorCode, truth: Truth, target: str, memory: Mem, stride: int, element: ElementType) -> None:
    """All lanes together where the condition holds in all, else a branch around each. The lanes are collected in a
    frame slot: SSE2 cannot insert elements of one and four bytes."""
    emitter, low, held = code.emitter, sub_register(code.spare, 4), code.emitter.slot()
    bits = _lane_bits(code, truth)
    some, done = emitter.fresh("some_lanes"), emitter.fresh("lanes_done")
    emitter.op("cmp", low, sum(bits))
    emitter.jump(some, "ne")
    strided.load(code, target, memory, stride, element)
    emitter.jump(done)
    emitter.place(some)
    emitter.op("mov", held, code.spare)
    size = code.unit.width(element)
    slot = emitter.slot(max(8, size))
    element_of_slot = sub_register(code.spare, max(4, element.size))
    emitter.op("xor", sub_register(code.spare, 4), sub_register(code.spare, 4))
    for offset in range(0, max(8, size), 8):
        emitter.op("mov", Mem(slot.base, displacement=slot.displacement + offset, size=8), code.spare)
    for lane, place in enumerate(_places(memory, stride, element, code.unit.lanes)):
        over = emitter.fresh("lane")
        emitter.op("test", replace(held, size=4), bits[lane])
        emitter.jump(over, "e")
        emitter.op("mov" if element.size >= 4 else "movzx", element_of_slot, place)
        emitter.op("mov", Mem(slot.base, displacement=slot.displacement + lane * element.size, size=element.size),
                   sub_register(code.spare, element.size))
        emitter.place(over)
    code.load(target, Mem(slot.base, displacement=slot.displacement, size=size), element)
    emitter.place(done)


def _store_lanes(code: VectorCode, truth: Truth, memory: Mem, source: str, stride: int, element: ElementType) -> None:
    """Nothing where no lane is to be stored, all lanes together where all are, else a branch around each."""
    emitter, low, held = code.emitter, sub_register(code.spare, 4), code.emitter.slot()
    bits = _lane_bits(code, truth)
    some, done = emitter.fresh("some_lanes"), emitter.fresh("lanes_done")
    emitter.op("test", low, low)
    emitter.jump(done, "e")
    if code.unit.lanes > 1:
        emitter.op("cmp", low, sum(bits))
        emitter.jump(some, "ne")
    strided.store(code, memory, source, stride, element)
    if code.unit.lanes > 1:
        emitter.jump(done)
        emitter.place(some)
        emitter.op("mov", held, code.spare)
        slot = emitter.slot(max(8, code.unit.width(element)))
        code.store(Mem(slot.base, displacement=slot.displacement), source, element)
        for lane, place in enumerate(_places(memory, stride, element, code.unit.lanes)):
            over, part = emitter.fresh("lane"), sub_register(code.spare, element.size)
            emitter.op("test", replace(held, size=4), bits[lane])
            emitter.jump(over, "e")
            emitter.op("mov" if element.size >= 4 else "movzx", sub_register(code.spare, max(4, element.size)),
                       Mem(slot.base, displacement=slot.displacement + lane * element.size, size=element.size))
            emitter.op("mov", place, part)
            emitter.place(over)
    emitter.place(done)
