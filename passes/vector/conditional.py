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
    """All lanes together where the condition holds in all, else a branch around each."""
    emitter, low = code.emitter, sub_register(code.spare, 4)
    bits = _lane_bits(code, truth)
    some, done = emitter.fresh("some_lanes"), emitter.fresh("lanes_done")
    emitter.op("cmp", low, sum(bits))
    emitter.jump(some, "ne")
    strided.load(code, target, memory, stride, element)
    emitter.jump(done)
    emitter.place(some)
    code.constant(target, 0, element)
    emitter.op("test", low, low)
    emitter.jump(done, "e")
    places = _places(memory, stride, element, code.unit.lanes)
    if element.size >= 4:
        for number, lanes in enumerate(_chunks(places, element)):
            register = code.pool.take() if number else target
            if number:
                code.emit("pxor", *(view(register, 16),) * 3)
            for lane, place in enumerate(lanes):
                over = _unless(code, bits[number * 16 // element.size + lane])
                _insert(code, register, place, lane, element)
                emitter.place(over)
            if number:
                code.emit("insertf128", view(target, 32), view(target, 32), view(register, 16), number)
                code.pool.give(register)
    else:
        _through_frame(code, bits, target, places, element, store=False)
    emitter.place(done)


def _store_lanes(code: VectorCode, truth: Truth, memory: Mem, source: str, stride: int, element: ElementType) -> None:
    """Nothing where no lane is to be stored, all lanes together where all are, else a branch around each."""
    emitter, low = code.emitter, sub_register(code.spare, 4)
    bits = _lane_bits(code, truth)
    some, done = emitter.fresh("some_lanes"), emitter.fresh("lanes_done")
    emitter.op("test", low, low)
    emitter.jump(done, "e")
    emitter.op("cmp", low, sum(bits))
    emitter.jump(some, "ne")
    strided.store(code, memory, source, stride, element)
    emitter.jump(done)
    emitter.place(some)
    places = _places(memory, stride, element, code.unit.lanes)
    if element.size >= 4:
        for number, lanes in enumerate(_chunks(places, element)):
            register = code.pool.take() if number else source
            if number:
                code.emit("extractf128", view(register, 16), view(source, 32), number)
            for lane, place in enumerate(lanes):
                over = _unless(code, bits[number * 16 // element.size + lane])
                _extract(code, place, register, lane, element)
                emitter.place(over)
            if number:
                code.pool.give(register)
    else:
        _through_frame(code, bits, source, places, element, store=True)
    emitter.place(done)


def _chunks(places: list[Mem], element: ElementType) -> list[list[Mem]]:
    """The places of the lanes, in groups that fill 16 bytes."""
    count = 16 // element.size
    return [places[n:n + count] for n in range(0, len(places), count)]


def _unless(code: VectorCode, bit: int) -> str:
    """Jumps to the label that it returns when the lane with ``bit`` is passed over. ``spare`` holds the bits."""
    over = code.emitter.fresh("lane")
    code.emitter.op("test", sub_register(code.spare, 4), bit)
    code.emitter.jump(over, "e")
    return over


def _insert(code: VectorCode, target: str, place: Mem, lane: int, element: ElementType) -> None:
    """``lane`` of ``target``, which is 0, from memory. SSE2 has such an instruction for elements of 8 bytes."""
    if element.size == 8 or code.unit.three_operands:
        strided.insert_lane(code, target, place, lane, element)
        return
    register = code.pool.take()
    code.emit("movss", register, place)
    if lane:
        code.emit("pslldq", register, 4 * lane)
    code.emit("por", target, register)
    code.pool.give(register)


def _extract(code: VectorCode, place: Mem, source: str, lane: int, element: ElementType) -> None:
    """``lane`` of ``source`` to memory."""
    if element.size == 8:
        code.emit("movhpd" if lane else "movlpd", place, view(source, 16))
    elif code.unit.three_operands:
        code.emit("extractps", place, view(source, 16), lane)
    else:
        register = code.pool.take()
        code.emit("pshufd", register, source, lane)
        code.emit("movss", place, register)
        code.pool.give(register)


def _through_frame(code: VectorCode, bits: tuple[int, ...], register: str, places: list[Mem], element: ElementType, *,
                   store: bool) -> None:
    """Elements of one and two bytes, one by one between memory and a frame slot with the vector. ``register`` is 0, or
    holds what is to be stored."""
    emitter, held = code.emitter, code.emitter.slot()
    low, part = sub_register(code.spare, 4), sub_register(code.spare, element.size)
    size = code.unit.width(element)
    slot = replace(emitter.slot(max(8, size)), size=size)
    emitter.op("mov", held, code.spare)
    code.store(slot, register, element)
    for lane, place in enumerate(places):
        over = emitter.fresh("lane")
        there = Mem(slot.base, displacement=slot.displacement + lane * element.size, size=element.size)
        emitter.op("test", replace(held, size=4), bits[lane])
        emitter.jump(over, "e")
        emitter.op("movzx", low, there if store else place)
        emitter.op("mov", place if store else there, part)
        emitter.place(over)
    if not store:
        code.load(register, slot, element)
