"""Single vector instructions, with the same call for SSE2, AVX2 and AVX-512F.

Example: ``code.binary("addpd", F64, a, b)`` is ``addpd xmm0, xmm1`` after a move on SSE2, ``vaddpd ymm0, ymm1, ymm2``
on AVX2.

A ``VectorValue`` is an intermediate value of an expression: its place, and whether its register is a temporary. Every
operation consumes its operands: it frees their temporaries and puts its result in one of them, in ``target`` or in a
new one.

Invariant: with a ``mask``, every operation marked ``raises`` and every access to memory is masked, so lanes outside the
mask can neither raise a floating-point flag nor fault.
"""

from __future__ import annotations

from dataclasses import field, replace

from memopt.ir.frozen import dataclass
from memopt.ir.scop import ElementType
from memopt.x86.instructions import Mem, Operand, sub_register
from passes.vector.emitter import Emitter, fits
from passes.vector.registers import MaskRegisters, Registers, VectorUnit, view

F64, F32, I64, I32, I16, I8 = ElementType
_INTEGERS = {8: I64, 4: I32, 2: I16, 1: I8}
_LETTERS = {8: "q", 4: "d", 2: "w", 1: "b"}


@dataclass(frozen=True, slots=True)
class VectorValue:
    """A value at its ``place``: a register, a vector in memory, or one element in memory that every lane gets
    (``Mem.broadcast``). ``ours``: the register is a temporary, free once the value is consumed."""

    place: str | Mem
    ours: bool = False

    @property
    def kept(self) -> VectorValue:
        """The same value for a use that is not its last: the use does not free the register."""
        return replace(self, ours=False)


def letter(element: ElementType) -> str:
    """The suffix of integer instructions: b, w, d, q."""
    return _LETTERS[element.size]


def integer(size: int) -> ElementType:
    """The integer type of ``size`` bytes."""
    return _INTEGERS[size]


@dataclass(frozen=True, slots=True)
class VectorCode:
    """Emits vector instructions for ``unit``. Temporaries come from ``pool`` and ``masks`` and return to them."""

    unit: VectorUnit
    emitter: Emitter
    pool: Registers
    # Mask register with the valid lanes (AVX-512F only).
    mask: str | None = None
    # Vectors in memory lie on multiples of their size, so SSE2 instructions may have them as operands.
    aligned: bool = False
    # A general-purpose register that is clobbered.
    spare: str = "rax"
    masks: MaskRegisters = field(default_factory=MaskRegisters)

    def __post_init__(self) -> None:
        if self.mask is not None:
            assert self.unit.evex, "only AVX-512F has masks"
            self.masks.reserve(self.mask)

    # registers

    def size(self, element: ElementType, *, raises: bool = False) -> int:
        """Bytes of the registers that an operation on ``element`` names. Masked operations are always 512-bit ones."""
        return 64 if raises and self.mask else self.unit.register_bytes(element)

    def release(self, *values: VectorValue, but: str | None = None) -> None:
        """Frees the temporaries among ``values``, except the register ``but``."""
        for value in values:
            if value.ours and isinstance(value.place, str) and value.place != but:
                (self.masks if value.place[0] == "k" else self.pool).give(value.place)

    def result(self, target: str | None, *sources: VectorValue) -> str:
        """The register for a result: ``target``, a temporary among ``sources``, or a new one."""
        if target is not None:
            return target
        return next((s.place for s in sources if s.ours and isinstance(s.place, str) and s.place[0] != "k"), None) \
            or self.pool.take()

    def done(self, result: str, target: str | None, *sources: VectorValue) -> VectorValue:
        """The value in ``result``, with the other temporaries among ``sources`` freed."""
        self.release(*sources, but=result)
        return VectorValue(result, ours=target is None)

    # operations

    def emit(self, mnemonic: str, *operands: Operand | str | int, raises: bool = False) -> None:
        """One instruction. ``mnemonic`` is spelled as in SSE2 and gets a "v" where the unit has three operands;
        operands already have the right width. ``raises``: the instruction may raise a floating-point flag, so it is
        done under the mask."""
        name = ("v" if self.unit.three_operands else "") + mnemonic
        mask = self.mask if raises else None
        self.emitter.op(name, *operands, mask=mask, zeroing=mask is not None)

    def unary(self, mnemonic: str, to: ElementType, value: VectorValue, source: ElementType | None = None,
              target: str | None = None, *, raises: bool = False, immediate: int | None = None) -> VectorValue:
        """``target = mnemonic(value)``. ``value`` is of type ``source``, the result of type ``to``; without ``source``
        both are."""
        source = source or to
        if isinstance(value.place, Mem):
            value = self.in_register(value, source)
        assert isinstance(value.place, str)
        result = self.result(target, value)
        narrow, wide = self.size(source), self.size(to)
        if raises and self.mask:
            narrow, wide = 64 * source.size // max(source.size, to.size), 64 * to.size // max(source.size, to.size)
        operands = (view(result, max(16, wide)), view(value.place, max(16, narrow)))
        self.emit(mnemonic, *operands, *(() if immediate is None else (immediate,)), raises=raises)
        return self.done(result, target, value)

    def binary(self, mnemonic: str, element: ElementType, first: VectorValue, second: VectorValue,
               target: str | None = None, *,
               raises: bool = False, immediate: int | None = None, broadcasts: bool = False,
               scalar: bool = False) -> VectorValue:
        """``target = mnemonic(first, second)``.

        ``broadcasts``: the AVX-512F form can repeat an element from memory in all lanes. ``scalar``: the scalar unit's
        instruction reads one element, the lowest. ``raises``: see ``emit``.
        """
        first = self.in_register(first, element)
        size = self.size(element, raises=raises)
        operand = second.place if isinstance(second.place, str) else self.operand(second.place, element, size,
                                                                                  broadcasts, scalar)
        if operand is None:
            second = self.in_register(second, element)
            operand = second.place
        if isinstance(operand, str):
            operand = view(operand, size)
        assert isinstance(first.place, str)
        tail = () if immediate is None else (immediate,)
        if self.unit.three_operands:
            result = self.result(target, first, second)
            self.emit(mnemonic, view(result, size), view(first.place, size), operand, *tail, raises=raises)
            return self.done(result, target, first, second)
        accumulator = target if target is not None and (target != operand or target == first.place) \
            else self.result(None, first)
        self.move(accumulator, first.place, element)
        self.emit(mnemonic, accumulator, operand, *tail)
        self.release(first, second, but=accumulator)
        if target is not None and accumulator != target:
            self.move(target, accumulator, element)
            self.pool.give(accumulator)
        return VectorValue(target or accumulator, ours=target is None)

    def shift(self, mnemonic: str, element: ElementType, value: VectorValue, count: int,
              target: str | None = None) -> VectorValue:
        """A shift of every lane by one count, or of every 16 bytes (pslldq, psrldq)."""
        value = self.in_register(value, element)
        assert isinstance(value.place, str)
        size = self.size(element)
        result = self.result(target, value)
        if self.unit.three_operands:
            self.emit(mnemonic, view(result, size), view(value.place, size), count)
        else:
            self.move(result, value.place, element)
            self.emit(mnemonic, result, count)
        return self.done(result, target, value)

    def operand(self, memory: Mem, element: ElementType, size: int, broadcasts: bool, scalar: bool) -> Mem | None:
        """``memory`` as an operand of an instruction; None when it has to be loaded first."""
        if self.mask:
            return None
        if scalar and self.unit.scalar:
            return replace(memory, broadcast=0)
        if memory.broadcast:
            return memory if broadcasts and size == 64 and element.size >= 4 else None
        return memory if memory.size == size and (self.unit.three_operands or self.aligned) else None

    # moves

    def in_register(self, value: VectorValue, element: ElementType) -> VectorValue:
        """The value in a register: as it is, or loaded into a temporary."""
        if isinstance(value.place, str):
            return value
        register = self.pool.take()
        self.fetch(register, value.place, element)
        return VectorValue(register, ours=True)

    def fetch(self, target: str, place: str | Mem, element: ElementType) -> None:
        """``target`` = the value at ``place``."""
        if isinstance(place, str):
            self.move(target, place, element)
        elif place.broadcast:
            self.broadcast(target, replace(place, broadcast=0), element)
        else:
            self.load(target, place, element)

    def move(self, target: str, source: str, element: ElementType) -> None:
        """``target = source``, the whole register; nothing where both are the same."""
        if target != source:
            size = self.unit.register_bytes(element)
            self.emit(_move(element, size, aligned=True), view(target, size), view(source, size))

    def load(self, target: str, memory: Mem, element: ElementType) -> None:
        """``lanes`` elements from consecutive addresses. With a mask only the valid ones are read; the others become
        0."""
        size = self.unit.width(element)
        memory = replace(memory, size=size, broadcast=0)
        if self.mask:
            self._load_masked(target, memory, element)
        elif size >= 16:
            self.emit(_move(element, size, self.aligned), view(target, size), memory)
        elif size >= 4:
            self.emit(_LOW_MOVES[size, element.is_float], view(target, 16), memory)
        else:
            low = sub_register(self.spare, 4)
            self.emitter.op("movzx", low, memory)
            self.emit("movd", view(target, 16), low)

    def store(self, memory: Mem, source: str, element: ElementType, *, streaming: bool = False) -> None:
        """``lanes`` elements to consecutive addresses, with a mask only the valid ones.

        ``streaming``: a non-temporal store, past the caches; the address is a multiple of the vector's bytes (at least
        16).
        """
        size = self.unit.width(element)
        memory = replace(memory, size=size, broadcast=0)
        if self.mask:
            self._store_masked(memory, source, element)
        elif size >= 16:
            mnemonic = _streaming(element) if streaming else _move(element, size, self.aligned)
            self.emit(mnemonic, memory, view(source, size))
        elif size >= 4:
            self.emit(_LOW_MOVES[size, element.is_float], memory, view(source, 16))
        else:
            self.emit("movd", sub_register(self.spare, 4), view(source, 16))
            self.emitter.op("mov", memory, sub_register(self.spare, size))

    def _load_masked(self, target: str, memory: Mem, element: ElementType) -> None:
        """AVX-512F masks elements of 4 and 8 bytes. Smaller ones are loaded zero-extended and then truncated."""
        if element.size >= 4:
            self.emit(_move(element, 64), view(target, 64), replace(memory, size=64), raises=True)
            return
        wide = 64 // self.unit.lanes
        pair = letter(element) + _LETTERS[wide]
        self.emit("pmovzx" + pair, view(target, 64), memory, raises=True)
        self.emit("pmov" + pair[::-1], view(target, max(16, memory.size)), view(target, 64))

    def _store_masked(self, memory: Mem, source: str, element: ElementType) -> None:
        if element.size >= 4:
            self._emit_masked(_move(element, 64), replace(memory, size=64), view(source, 64))
            return
        wide = 64 // self.unit.lanes
        pair = letter(element) + _LETTERS[wide]
        register = self.pool.take()
        self.emit("pmovzx" + pair, view(register, 64), view(source, max(16, memory.size)))
        self._emit_masked("pmov" + pair[::-1], memory, view(register, 64))
        self.pool.give(register)

    def _emit_masked(self, mnemonic: str, *operands: Operand | str) -> None:
        """A store under the mask: memory of lanes outside keeps its content."""
        self.emitter.op("v" + mnemonic, *operands, mask=self.mask)

    def spill(self, memory: Mem, source: str, element: ElementType) -> None:
        """Stores the whole register to the frame, with zeros for lanes outside the mask."""
        if self.mask:
            register = self.pool.take()
            self.emit(_move(element, 64, aligned=True), view(register, 64), view(source, 64), raises=True)
            self.emit(_move(element, memory.size), memory, view(register, memory.size))
            self.pool.give(register)
        else:
            self.emit(_move(element, memory.size), memory, view(source, memory.size))

    def broadcast(self, target: str, source: Mem | str, element: ElementType) -> None:
        """Every lane of ``target`` = one element, from memory or from a general-purpose register (given by its 64-bit
        name)."""
        if isinstance(source, Mem):
            self._broadcast_memory(target, source, element)
        else:
            self._broadcast_general(target, source, element)

    def _broadcast_memory(self, target: str, source: Mem, element: ElementType) -> None:
        register = view(target, self.size(element))
        if self.unit.scalar:
            self.load(target, source, element)
        elif self.unit.three_operands:
            # The integer forms, also for floating-point elements: they are plain loads on every processor, while
            # vbroadcastss, vbroadcastsd and vmovddup take a cycle of Zen 4's adders, which products keep busy.
            self.emit("pbroadcast" + letter(element), register, source)
        elif element.size == 8:
            self.emit("movsd", register, source)
            self.emit("unpcklpd", register, register)
        elif element.size == 4:
            self.emit("movss", register, source)
            self.emit("shufps", register, register, 0)
        else:
            self.emitter.op("movzx", sub_register(self.spare, 4), source)
            self._broadcast_general(target, self.spare, element)

    def _broadcast_general(self, target: str, source: str, element: ElementType) -> None:
        size, low = self.size(element), view(target, 16)
        source = sub_register(source, max(4, element.size))
        if size == 64:
            self.emit("pbroadcast" + letter(element), view(target, 64), source)
            return
        self.emit("movq" if element.size == 8 else "movd", low, source)
        if self.unit.scalar:
            return
        if self.unit.three_operands:
            self.emit("pbroadcast" + letter(element), view(target, size), low)
            return
        if element.size == 1:
            self.emit("punpcklbw", low, low)
        if element.size <= 2:
            self.emit("pshuflw", low, low, 0)
        if element.size <= 4:
            self.emit("pshufd", low, low, 0)
        else:
            self.emit("punpcklqdq", low, low)

    def constant(self, target: str, bits: int, element: ElementType) -> None:
        """Every lane of ``target`` = ``bits``."""
        size = self.size(element)
        register, whole = view(target, size), (1 << 8 * element.size) - 1
        if bits == 0:
            names = (register,) * (3 if self.unit.three_operands else 2)
            self.emit("pxord" if size == 64 else "pxor", *names)
        elif bits == whole and size < 64:
            self.emit("pcmpeqd", *(register,) * (3 if self.unit.three_operands else 2))
        else:
            wide = element.size == 8 and not fits(bits)
            self.emitter.op("movabs" if wide else "mov", sub_register(self.spare, max(4, element.size)), bits)
            self._broadcast_general(target, self.spare, element)


_LOW_MOVES = {(8, True): "movsd", (8, False): "movq", (4, True): "movss", (4, False): "movd"}


def _move(element: ElementType, size: int, aligned: bool = False) -> str:
    if element.is_float:
        return ("mova" if aligned else "movu") + ("pd" if element is F64 else "ps")
    return ("movdqa" if aligned else "movdqu") + (str(max(32, 8 * element.size)) if size == 64 else "")


def _streaming(element: ElementType) -> str:
    return {F64: "movntpd", F32: "movntps"}.get(element, "movntdq")
