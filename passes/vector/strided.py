"""Strided vector loads and stores: elements that lie a constant number of bytes apart.

Example: ``x[2*i]`` has stride 16 for doubles. Stride = element size is a plain load, minus that a reversed one, twice
that two loads and a shuffle; other strides take a gather or go element by element.

``memory`` is always the place of lane 0, ``stride`` the bytes from each lane to the next. With a mask only the memory
of valid lanes is touched.
"""

from __future__ import annotations

from dataclasses import replace

from memopt.ir.reasons import Reason, Rejected
from memopt.ir.scop import ElementType
from memopt.x86.instructions import Mem, sub_register
from passes.vector.emitter import fits
from passes.vector.instructions import F32, F64, I32, I64, VectorCode, letter
from passes.vector.masks import constant_lanes, ramp
from passes.vector.registers import view


def offsets_element(code: VectorCode, stride: int, element: ElementType) -> ElementType | None:
    """The type of the offsets that a gather or scatter with this stride needs; None when there is no such
    instruction."""
    if not code.unit.evex or element.size < 4:
        return None
    if fits(stride * (code.unit.lanes - 1)):
        return I32
    return I64 if code.unit.lanes == 8 else None


def offsets(code: VectorCode, target: str, stride: int, element: ElementType) -> None:
    """``target`` = the offsets of all lanes, for ``load`` and ``store``. To be done once, outside loops. Raises
    ``Rejected(NO_PLAN)`` when there is no gather for this stride."""
    kind = offsets_element(code, stride, element)
    if kind is None:
        raise Rejected(Reason.NO_PLAN, f"there is no gather of {element.value} with stride {stride}")
    ramp(code, target, stride, kind)


def needs_offsets(code: VectorCode, stride: int, element: ElementType, conditional: bool = False) -> bool:
    """Whether ``load`` and ``store`` of this stride want a register with ``offsets``. They do under a mask or a
    condition, where a gather is shorter than a branch around each lane."""
    return (code.mask is not None or conditional) and stride not in (0, element.size) and \
        offsets_element(code, stride, element) is not None


def load(code: VectorCode, target: str, memory: Mem, stride: int, element: ElementType,
         offsets: str | None = None) -> None:
    """``target`` = the elements at ``memory``, ``memory + stride``, ... Clobbers ``spare`` and the flags."""
    if stride == element.size or code.unit.scalar:
        code.load(target, memory, element)
    elif stride == 0:
        code.broadcast(target, replace(memory, size=element.size, broadcast=0), element)
    elif offsets is not None:
        _gather(code, target, memory, stride, element, offsets)
    elif stride == -element.size and _shuffles(code, element):
        code.load(target, lane_at(memory, stride, code.unit.lanes - 1, element), element)
        reverse(code, target, target, element)
    elif stride == 2 * element.size and _shuffles(code, element) and code.unit.width(element) > 2 * element.size:
        _load_every_second(code, target, memory, element)
    else:
        load_lanes(code, target, memory, stride, element)


def store(code: VectorCode, memory: Mem, source: str, stride: int, element: ElementType,
          offsets: str | None = None) -> None:
    """The elements at ``memory``, ``memory + stride``, ... = ``source``. Clobbers ``spare`` and the flags. Raises
    ``Rejected(NO_PLAN)`` for stride 0."""
    if stride == element.size or code.unit.scalar:
        code.store(memory, source, element)
    elif offsets is not None:
        _scatter(code, memory, source, stride, element, offsets)
    elif stride == 0:
        raise Rejected(Reason.NO_PLAN, f"there is no store of {element.value} with stride {stride}")
    elif stride == -element.size and _shuffles(code, element):
        register = code.pool.take()
        reverse(code, register, source, element)
        code.store(lane_at(memory, stride, code.unit.lanes - 1, element), register, element)
        code.pool.give(register)
    else:
        _store_lanes(code, memory, source, stride, element)


def lane_at(memory: Mem, stride: int, lane: int, element: ElementType) -> Mem:
    """The place of ``lane``; raises ``Rejected(NO_PLAN)`` where it is out of reach."""
    displacement = memory.displacement + lane * stride
    if not fits(displacement):
        raise Rejected(Reason.NO_PLAN, f"a stride of {stride} bytes does not fit an address")
    return replace(memory, displacement=displacement, size=element.size, broadcast=0)


# -- gather and scatter of AVX-512F --------------------------------------------------------------------------------


def _indexed(code: VectorCode, memory: Mem, stride: int, element: ElementType, offsets: str) -> tuple[str, Mem, int]:
    """For a gather or scatter: the end of the mnemonic, the address, and the bytes of the register with the
    elements."""
    kind = offsets_element(code, stride, element)
    if kind is None or memory.index is not None:
        raise Rejected(Reason.NO_PLAN, f"there is no gather of {element.value} with stride {stride}")
    index_size, value_size = (32, 64) if (kind, element.size) == (I32, 8) else (64, 64)
    if (kind, element.size) == (I64, 4):
        value_size = 32
    suffix = letter(kind) + ({8: "pd", 4: "ps"} if element.is_float else {8: "q", 4: "d"})[element.size]
    return suffix, replace(memory, index=view(offsets, index_size), scale=1, size=64, broadcast=0), value_size


def _lanes_to_do(code: VectorCode) -> str:
    """A copy of the mask (all lanes without one): the instruction clears it as it goes."""
    done = code.masks.take()
    if code.mask:
        code.emitter.op("kmovw", done, code.mask)
    else:
        constant_lanes(code.emitter, done, code.unit.lanes, code.spare)
    return done


def _gather(code: VectorCode, target: str, memory: Mem, stride: int, element: ElementType, offsets: str) -> None:
    """Lanes outside the mask become 0, which also cuts the dependence on the register's old value."""
    suffix, address, size = _indexed(code, memory, stride, element, offsets)
    result = code.pool.take() if target == offsets else target
    done = _lanes_to_do(code)
    code.emitter.op("vpxord", *(view(result, 64),) * 3)
    code.emitter.op(("vgather" if element.is_float else "vpgather") + suffix, view(result, size), address, mask=done)
    code.masks.give(done)
    if result != target:
        code.move(target, result, element)
        code.pool.give(result)


def _scatter(code: VectorCode, memory: Mem, source: str, stride: int, element: ElementType, offsets: str) -> None:
    suffix, address, size = _indexed(code, memory, stride, element, offsets)
    done = _lanes_to_do(code)
    code.emitter.op(("vscatter" if element.is_float else "vpscatter") + suffix, address, view(source, size), mask=done)
    code.masks.give(done)


# -- one by one ----------------------------------------------------------------------------------------------------


def load_lanes(code: VectorCode, target: str, memory: Mem, stride: int, element: ElementType) -> None:
    """``target`` = the elements, one by one; under a mask the others are 0."""
    size = code.unit.register_bytes(element)
    for number, chunk in enumerate(_chunks(code, memory, stride, element)):
        register = code.pool.take() if number else target
        if code.mask:
            _load_valid(code, register, chunk, number * 16 // element.size, element)
        else:
            _load_chunk(code, register, chunk, element)
        if number:
            whole = view(target, size)
            code.emit("insertf32x4" if size == 64 else "insertf128", whole, whole, view(register, 16), number)
            code.pool.give(register)


def _store_lanes(code: VectorCode, memory: Mem, source: str, stride: int, element: ElementType) -> None:
    size = code.unit.register_bytes(element)
    for number, chunk in enumerate(_chunks(code, memory, stride, element)):
        register = source
        if number:
            register = code.pool.take()
            code.emit("extractf32x4" if size == 64 else "extractf128", view(register, 16), view(source, size), number)
        _store_chunk(code, chunk, number * 16 // element.size, register, element)
        if number:
            code.pool.give(register)


def _chunks(code: VectorCode, memory: Mem, stride: int, element: ElementType) -> list[list[Mem]]:
    """The places of the lanes, in groups that fill 16 bytes."""
    lanes = [lane_at(memory, stride, n, element) for n in range(code.unit.lanes)]
    count = 16 // element.size
    return [lanes[n:n + count] for n in range(0, len(lanes), count)]


def _load_chunk(code: VectorCode, target: str, lanes: list[Mem], element: ElementType) -> None:
    _load_lane(code, target, lanes[0], element)
    if element.size in (2, 8) or code.unit.three_operands:
        for number, lane in enumerate(lanes[1:], start=1):
            insert_lane(code, target, lane, number, element)
    else:
        _interleave(code, target, lanes, element)


def _load_lane(code: VectorCode, target: str, lane: Mem, element: ElementType) -> None:
    """Lane 0 from memory, the others 0."""
    if element.size >= 4:
        code.emit("movsd" if element.size == 8 else "movss", view(target, 16), lane)
    else:
        low = sub_register(code.spare, 4)
        code.emitter.op("movzx", low, lane)
        code.emit("movd", view(target, 16), low)


def insert_lane(code: VectorCode, target: str, lane: Mem, number: int, element: ElementType) -> None:
    """Lane ``number`` from memory; the others stay. SSE2 has such an instruction for elements of 8 and 2 bytes."""
    operands: list[str | Mem | int] = [view(target, 16)] * (2 if code.unit.three_operands else 1)
    if element.size == 8:
        code.emit("movhpd" if number else "movlpd", *operands, lane)
    else:
        name = {4: "insertps", 2: "pinsrw", 1: "pinsrb"}[element.size]
        code.emit(name, *operands, lane, number << 4 if element.size == 4 else number)


def _interleave(code: VectorCode, target: str, lanes: list[Mem], element: ElementType) -> None:
    """SSE2, elements of 1 and 4 bytes: interleaves the even and the odd elements (recursively). The first one is loaded
    already."""
    if len(lanes) == 1:
        return
    if len(lanes) > 2:
        _interleave(code, target, lanes[::2], element)
    odd = code.pool.take()
    _load_lane(code, odd, lanes[1], element)
    _interleave(code, odd, lanes[1::2], element)
    code.emit({1: "punpcklbw", 4: "punpckldq"}[element.size], target, odd)
    code.pool.give(odd)


def _load_valid(code: VectorCode, target: str, lanes: list[Mem], first: int, element: ElementType) -> None:
    """Under a mask: a branch around each lane. ``first``: number of the first lane."""
    code.constant(target, 0, F64 if element.size == 8 else F32)
    code.emitter.op("kmovw", sub_register(code.spare, 4), str(code.mask))
    for number, lane in enumerate(lanes):
        over = _unless_valid(code, first + number)
        insert_lane(code, target, lane, number, element)
        code.emitter.place(over)


def _unless_valid(code: VectorCode, lane: int) -> str:
    """Jumps to the label that it returns when the lane is not valid. ``spare`` holds the mask."""
    over = code.emitter.fresh("lane")
    code.emitter.op("test", sub_register(code.spare, 4), 1 << lane)
    code.emitter.jump(over, "e")
    return over


def _store_chunk(code: VectorCode, lanes: list[Mem], first: int, source: str, element: ElementType) -> None:
    """Stores at most 16 bytes. ``first``: number of the first lane."""
    if not code.unit.three_operands and element.size < 8:
        _store_chunk_by_shuffles(code, lanes, source, element)
        return
    if code.mask:
        code.emitter.op("kmovw", sub_register(code.spare, 4), str(code.mask))
    for number, lane in enumerate(lanes):
        over = _unless_valid(code, first + number) if code.mask else None
        if element.size == 8:
            code.emit("movhpd" if number else "movlpd", lane, view(source, 16))
        else:
            code.emit({4: "extractps", 2: "pextrw", 1: "pextrb"}[element.size], lane, view(source, 16), number)
        if over is not None:
            code.emitter.place(over)


def _store_chunk_by_shuffles(code: VectorCode, lanes: list[Mem], source: str, element: ElementType) -> None:
    """SSE2 can store only the lowest element of 4 bytes, and extracts words into general-purpose registers."""
    low, shifted = sub_register(code.spare, 4), code.pool.take()
    for number, lane in enumerate(lanes):
        if element.size == 4:
            code.emit("pshufd", shifted, source, number)
            code.emit("movss", lane, shifted)
            continue
        if element.size == 2 or number % 2 == 0:
            code.emit("pextrw", low, source, number * element.size // 2)
        else:
            code.emitter.op("shr", low, 8)
        code.emitter.op("mov", lane, sub_register(code.spare, element.size))
    code.pool.give(shifted)


# -- every second, reversed -------------------------------------------------------------------------------------------


def _load_every_second(code: VectorCode, target: str, memory: Mem, element: ElementType) -> None:
    """Stride of two elements: two overlapping loads and a shuffle.

    The second load ends with the last lane's element, so nothing behind it is read. The shuffle takes the even elements
    of the first load and the odd ones of the second, in pairs that the permutations put in order.
    """
    size, wide = code.unit.width(element), element.size == 8
    second = code.pool.take()
    code.load(target, memory, element)
    code.load(second, lane_at(memory, element.size, code.unit.lanes - 1, element), element)
    whole = view(target, size)
    sources = (whole, whole) if code.unit.three_operands else (whole,)
    selector = (0xAA if size == 64 else 0x0A) if wide else 0xD8
    code.emit("shufpd" if wide else "shufps", *sources, view(second, size), selector)
    code.pool.give(second)
    if size >= 32:
        code.emit("permpd", whole, whole, 0xD8)
    if size == 64:
        code.emit("shuff64x2", whole, whole, whole, 0xD8)


def _shuffles(code: VectorCode, element: ElementType) -> bool:
    return code.mask is None and element.size >= 4 and code.unit.width(element) >= 16


def reverse(code: VectorCode, target: str, source: str, element: ElementType) -> None:
    """``target`` = the lanes of ``source``, last first. Elements have 4 or 8 bytes and fill at least 16 together."""
    size = code.unit.width(element)
    to, of = view(target, size), view(source, size)
    wide = element.size == 8
    if not code.unit.three_operands:
        code.emit("pshufd", to, of, 0x4E if wide else 0x1B)
        return
    if size == 32 and wide:
        code.emit("permpd", to, of, 0x1B)
        return
    code.emit("permilpd" if wide else "permilps", to, of, 0x55 if wide and size == 64 else 0x01 if wide else 0x1B)
    if size == 32:
        code.emit("perm2f128", to, to, to, 1)
    elif size == 64:
        code.emit("shuff64x2", to, to, to, 0x1B)
