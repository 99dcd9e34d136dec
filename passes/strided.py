"""Vectors whose elements lie a constant number of bytes apart: one by one, reversed, or gathered.

``memory`` is always the place of lane 0, ``stride`` the bytes from each lane to the next. With a mask only the valid
lanes' memory is touched.
"""

from __future__ import annotations

from dataclasses import replace

from memopt.ir.reasons import Reason, Rejected
from memopt.ir.scop import ElementType
from memopt.x86.instructions import Mem, sub_register
from passes.emitter import fits
from passes.masks import constant_lanes, ramp
from passes.vector_code import I32, I64, VectorCode, letter
from passes.vectors import view


def offsets_element(code: VectorCode, stride: int, element: ElementType) -> ElementType | None:
    """The type of the offsets that a gather or scatter with this stride needs; None when there is no such
    instruction."""
    if not code.unit.evex or element.size < 4:
        return None
    if fits(stride * (code.unit.lanes - 1)):
        return I32
    return I64 if code.unit.lanes == 8 else None


def offsets(code: VectorCode, target: str, stride: int, element: ElementType) -> None:
    """The offsets of all lanes, for ``load`` and ``store``; once, outside loops."""
    kind = offsets_element(code, stride, element)
    if kind is None:
        raise Rejected(Reason.NO_PLAN, f"no gather of {element.value} with stride {stride}")
    ramp(code, target, stride, kind)


def needs_offsets(code: VectorCode, stride: int, element: ElementType) -> bool:
    """Whether ``load`` and ``store`` of this stride need a register with ``offsets``: under a mask they do."""
    return code.mask is not None and stride != element.size


def load(code: VectorCode, target: str, memory: Mem, stride: int, element: ElementType,
         offsets: str | None = None) -> None:
    """``target`` = the elements at ``memory``, ``memory + stride``, ..."""
    if stride == element.size or code.unit.scalar:
        code.load(target, memory, element)
    elif stride == 0:
        code.broadcast(target, replace(memory, size=element.size, broadcast=0), element)
    elif offsets is not None:
        _gather(code, target, memory, stride, element, offsets)
    elif code.mask is not None:
        raise Rejected(Reason.NO_PLAN, f"no masked load of {element.value} with stride {stride}")
    elif stride == -element.size and _reversible(code, element):
        code.load(target, _lane(memory, stride, code.unit.lanes - 1, element), element)
        reverse(code, target, target, element)
    else:
        _load_lanes(code, target, memory, stride, element)


def store(code: VectorCode, memory: Mem, source: str, stride: int, element: ElementType,
          offsets: str | None = None) -> None:
    """The elements at ``memory``, ``memory + stride``, ... = ``source``; lane after lane, the last one wins."""
    if stride == element.size or code.unit.scalar:
        code.store(memory, source, element)
    elif offsets is not None:
        _scatter(code, memory, source, stride, element, offsets)
    elif code.mask is not None or stride == 0:
        raise Rejected(Reason.NO_PLAN, f"no store of {element.value} with stride {stride}")
    elif stride == -element.size and _reversible(code, element):
        register = code.pool.take()
        reverse(code, register, source, element)
        code.store(_lane(memory, stride, code.unit.lanes - 1, element), register, element)
        code.pool.give(register)
    else:
        _store_lanes(code, memory, source, stride, element)


def _lane(memory: Mem, stride: int, lane: int, element: ElementType) -> Mem:
    displacement = memory.displacement + lane * stride
    if not fits(displacement):
        raise Rejected(Reason.NO_PLAN, f"stride {stride} is too long for an address")
    return replace(memory, displacement=displacement, size=element.size, broadcast=0)


# -- gather and scatter of AVX-512F --------------------------------------------------------------------------------


def _indexed(code: VectorCode, memory: Mem, stride: int, element: ElementType, offsets: str) -> tuple[str, Mem, int]:
    """The end of the mnemonic, the address and the bytes of the register with the elements."""
    kind = offsets_element(code, stride, element)
    if kind is None or memory.index is not None:
        raise Rejected(Reason.NO_PLAN, f"no gather of {element.value} with stride {stride}")
    index_size, value_size = (32, 64) if (kind, element.size) == (I32, 8) else (64, 64)
    if (kind, element.size) == (I64, 4):
        value_size = 32
    suffix = letter(kind) + ({8: "pd", 4: "ps"} if element.is_float else {8: "q", 4: "d"})[element.size]
    return suffix, replace(memory, index=view(offsets, index_size), scale=1, size=64, broadcast=0), value_size


def _lanes_to_do(code: VectorCode) -> str:
    """A mask register that the instruction may clear: the valid lanes."""
    done = code.masks.take()
    if code.mask:
        code.emitter.op("kmovw", done, code.mask)
    else:
        constant_lanes(code.emitter, done, code.unit.lanes, code.spare)
    return done


def _gather(code: VectorCode, target: str, memory: Mem, stride: int, element: ElementType, offsets: str) -> None:
    """Lanes outside the mask become 0; that also cuts the dependence on what the register held."""
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


def _load_lanes(code: VectorCode, target: str, memory: Mem, stride: int, element: ElementType) -> None:
    lanes = [_lane(memory, stride, n, element) for n in range(code.unit.lanes)]
    per_chunk = 16 // element.size
    size = code.unit.register_bytes(element)
    _load_chunk(code, target, lanes[:per_chunk], element)
    for number in range(1, size // 16):
        chunk = code.pool.take()
        _load_chunk(code, chunk, lanes[number * per_chunk:(number + 1) * per_chunk], element)
        whole = view(target, size)
        code.emit("insertf32x4" if size == 64 else "insertf128", whole, whole, view(chunk, 16), number)
        code.pool.give(chunk)


def _load_chunk(code: VectorCode, target: str, lanes: list[Mem], element: ElementType) -> None:
    """At most 16 bytes."""
    register = view(target, 16)
    sources = (register, register) if code.unit.three_operands else (register,)
    _load_lane(code, register, lanes[0], element)
    if element.size == 8:
        code.emit("movhpd", *sources, lanes[1])
    elif element.size == 2 or code.unit.three_operands:
        name = {4: "insertps", 2: "pinsrw", 1: "pinsrb"}[element.size]
        for number, lane in enumerate(lanes[1:], start=1):
            code.emit(name, *sources, lane, number << 4 if element.size == 4 else number)
    else:
        _interleave(code, register, lanes, element)


def _interleave(code: VectorCode, register: str, lanes: list[Mem], element: ElementType) -> None:
    """SSE2, elements of 1 and 4 bytes: those with even and those with odd numbers, interleaved; the first is loaded."""
    if len(lanes) == 1:
        return
    if len(lanes) > 2:
        _interleave(code, register, lanes[::2], element)
    odd = code.pool.take()
    _load_lane(code, odd, lanes[1], element)
    _interleave(code, odd, lanes[1::2], element)
    code.emit({1: "punpcklbw", 4: "punpckldq"}[element.size], register, odd)
    code.pool.give(odd)


def _load_lane(code: VectorCode, register: str, lane: Mem, element: ElementType) -> None:
    if element.size >= 4:
        code.emit("movsd" if element.size == 8 else "movss", view(register, 16), lane)
    else:
        low = sub_register(code.spare, 4)
        code.emitter.op("movzx", low, lane)
        code.emit("movd", view(register, 16), low)


def _store_lanes(code: VectorCode, memory: Mem, source: str, stride: int, element: ElementType) -> None:
    lanes = [_lane(memory, stride, n, element) for n in range(code.unit.lanes)]
    per_chunk = 16 // element.size
    size = code.unit.register_bytes(element)
    for number in range(size // 16):
        part = lanes[number * per_chunk:(number + 1) * per_chunk]
        if number == 0:
            _store_chunk(code, part, view(source, 16), element)
            continue
        chunk = code.pool.take()
        code.emit("extractf32x4" if size == 64 else "extractf128", view(chunk, 16), view(source, size), number)
        _store_chunk(code, part, view(chunk, 16), element)
        code.pool.give(chunk)


def _store_chunk(code: VectorCode, lanes: list[Mem], source: str, element: ElementType) -> None:
    """At most 16 bytes. SSE2 has instructions for words and for the two halves only."""
    if element.size == 8:
        code.emit("movsd", lanes[0], source)
        code.emit("movhpd", lanes[1], source)
    elif code.unit.three_operands:
        name = {4: "extractps", 2: "pextrw", 1: "pextrb"}[element.size]
        for number, lane in enumerate(lanes):
            code.emit(name, lane, source, number)
    elif element.size == 4:
        shifted = code.pool.take()
        for number, lane in enumerate(lanes):
            code.emit("pshufd", view(shifted, 16), source, number)
            code.emit("movss", lane, view(shifted, 16))
        code.pool.give(shifted)
    else:
        _store_words(code, lanes, source, element)


def _store_words(code: VectorCode, lanes: list[Mem], source: str, element: ElementType) -> None:
    low = sub_register(code.spare, 4)
    for number, lane in enumerate(lanes):
        if element.size == 2 or number % 2 == 0:
            code.emit("pextrw", low, source, number * element.size // 2)
        else:
            code.emitter.op("shr", low, 8)
        code.emitter.op("mov", lane, sub_register(code.spare, element.size))


# -- reversed ------------------------------------------------------------------------------------------------------


def _reversible(code: VectorCode, element: ElementType) -> bool:
    return element.size >= 4 and code.unit.width(element) >= 16


def reverse(code: VectorCode, target: str, source: str, element: ElementType) -> None:
    """``target`` = the lanes of ``source``, last first; elements of 4 or 8 bytes that fill at least 16."""
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
