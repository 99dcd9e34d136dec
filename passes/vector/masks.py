"""Contents of AVX-512F mask registers (the first n lanes), and vectors that count (0, s, 2s, ...)."""

from __future__ import annotations

from memopt.ir.scop import ElementType
from memopt.x86.instructions import Mem, sub_register
from passes.vector.emitter import Emitter, fits
from passes.vector.instructions import VectorCode, letter
from passes.vector.registers import view


def first_lanes(emitter: Emitter, mask: str, count: str, spare: str = "rax") -> None:
    """``mask`` = the first ``count`` lanes. ``count``: a general-purpose register with 0 <= count <= 255 (BMI2's bzhi
    reads its lowest byte; 16 and more mean every lane). Clobbers ``spare`` and the flags. Raises ``ValueError`` where
    ``spare`` is ``count``."""
    if spare == count:
        raise ValueError("the count is needed after the spare register is set")
    low = sub_register(spare, 4)
    emitter.op("mov", low, -1)
    emitter.op("bzhi", low, low, sub_register(count, 4))
    emitter.op("kmovw", mask, low)


def constant_lanes(emitter: Emitter, mask: str, lanes: int, spare: str = "rax") -> None:
    """``mask`` = the first ``lanes`` lanes. Clobbers ``spare``."""
    low = sub_register(spare, 4)
    emitter.op("mov", low, (1 << lanes) - 1)
    emitter.op("kmovw", mask, low)


def ramp(code: VectorCode, target: str, stride: int, element: ElementType) -> None:
    """Lane n of ``target`` = n * ``stride`` (its low bits), in the whole register. It goes through a frame slot, so it
    belongs outside loops. Clobbers ``spare``."""
    size = 64 if code.unit.evex else code.unit.register_bytes(element)
    bits, per_word = 8 * element.size, 8 // element.size
    slot = code.emitter.slot(size)
    for word in range(size // 8):
        lanes = range(word * per_word, (word + 1) * per_word)
        value = sum((lane * stride & (1 << bits) - 1) << bits * n for n, lane in enumerate(lanes))
        signed = value - (1 << 64) if value >> 63 else value
        code.emitter.op("mov" if fits(signed) else "movabs", code.spare, signed if fits(signed) else value)
        code.emitter.op("mov", Mem(slot.base, displacement=slot.displacement + 8 * word), code.spare)
    code.emit("movdqu64" if size == 64 else "movdqu", view(target, size), Mem(slot.base, displacement=slot.displacement,
                                                                              size=size))


def counter(code: VectorCode, target: str, start: str, lanes: str, element: ElementType) -> None:
    """Lane n of ``target`` = ``start`` (a general-purpose register) + lane n of ``lanes`` (a ``ramp``)."""
    code.broadcast(target, start, element)
    size = code.size(element)
    sources = (view(target, size),) * (2 if code.unit.three_operands else 1)
    code.emit("padd" + letter(element), *sources, view(lanes, size))
