"""One instruction in a loop, run natively and as memopt's new code: the same bytes, the same exception flags.

Example: ``vcmppd ymm0, ymm1, ymm2, 17`` stands in a loop that loads its operands and stores its result. The loop is
lifted, planned and generated for an instruction set as any other; both codes then run in this process, on zeros,
denormal numbers, infinities, NaNs and numbers halfway between others, in every rounding mode. The original runs the
last iteration after the new code, as it does in a program. A form that is outside the model is Rejected, and that is
all that may happen beside equality.
"""

from __future__ import annotations

import random
import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from memopt.ir.code import Placement
from memopt.ir.isa import Isa
from memopt.ir.plan import NestPlan
from memopt.ir.reasons import Rejected
from memopt.ir.region import Register
from memopt.ir.scop import ElementType
from memopt.lifting.lift import Lifted
from memopt.x86.decoder import decode
from memopt.x86.frame import FrameLayout
from memopt.x86.instructions import Bytes, Mem, code, instruction
from passes.context import Context
from passes.legality.loops import check_loops
from passes.loop_schedule.candidates import loop_plans
from passes.version.kernel import nest_kernel, nest_scratch_bytes
from tests.support.inprocess import MXCSR_DEFAULT, Buffer, NativeKernel
from tests.support.lanes import adversarial, packed, tame
from tests.support.lifting import lift_bytes
from tests.support.machines import ZEN5

ITERATIONS = 16
VECTOR = 32  # bytes that an iteration reads of each input and may write
POINTERS = ("rdi", "rsi", "rdx", "rcx")  # what register 0, 1 and 2 hold, and the result
_ROOM = 256  # bytes of code between two forms
_NO_DENORMALS = 0x8040  # flush to zero, denormals are zeros
# Zero, a denormal number, one, the largest number, infinity, a quiet and a signalling NaN.
_EDGES = {ElementType.F64: (0, 1, 1023 << 52, (2047 << 52) - 1, 2047 << 52, 4095 << 51, (2047 << 52) + 5),
          ElementType.F32: (0, 1, 127 << 23, (255 << 23) - 1, 255 << 23, 511 << 22, (255 << 23) + 5)}
Draw = Callable[[random.Random, ElementType], int]
_FLOATS = {"d": ElementType.F64, "s": ElementType.F32}


def loop(form: str) -> str:
    """The loop around a form, in Intel syntax."""
    wide = form.startswith("v")
    move, registers = ("vmovups", "ymm") if wide else ("movups", "xmm")
    lines = [f"{move} {registers}{n}, [{pointer}+rax]" for n, pointer in enumerate(POINTERS[:3])
             if n == 0 or f"mm{n}" in form]
    lines += ["mov r9, [rsi+rax+8]"] if "r9" in form else []
    lines += form.split("; ")
    lines += ["mov [rcx+rax], r10" if "r10" in form else f"{move} [rcx+rax], {registers}0"]
    return "1: " + "\n".join((*lines, f"add rax, {VECTOR}", "cmp rax, r8", "jne 1b", "ret"))


def assembled(forms: Sequence[str]) -> dict[str, bytes]:
    """The machine code of the loop around each form."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        source = "\n".join(f".org {_ROOM * n}\n{loop(form)}" for n, form in enumerate(forms))
        (path / "a.s").write_text(f".intel_syntax noprefix\n{source}\n.org {_ROOM * len(forms)}\n")
        subprocess.run(["as", "-o", "a.o", "a.s"], cwd=path, check=True)
        subprocess.run(["objcopy", "-O", "binary", "-j", ".text", "a.o", "a.bin"], cwd=path, check=True)
        whole = (path / "a.bin").read_bytes()
    return {form: _to_the_return(whole[_ROOM * n:_ROOM * (n + 1)]) for n, form in enumerate(forms)}


def _to_the_return(data: bytes) -> bytes:
    size = 0
    for each in decode(data, 0):
        size += each.size
        if each.mnemonic == "ret":
            return data[:size]
    raise AssertionError("no return")


class Data:
    """The inputs and the results of both codes, and what the codes find in their frames."""

    def __init__(self) -> None:
        size = (ITERATIONS + 1) * VECTOR
        self.inputs = [Buffer(size) for _ in range(3)]
        self.results = [Buffer(size) for _ in range(2)]
        self.registers = {"rax": 0, "r8": (ITERATIONS + 1) * VECTOR} | {
            name: b.address for name, b in zip(POINTERS, (*self.inputs, self.results[0]), strict=True)}

    def fill(self, source: random.Random, elements: Sequence[ElementType]) -> None:
        """Odd inputs in one iteration or in all but the last, elsewhere inputs that raise few flags."""
        element = source.choice(elements)
        usual = [self._vector(source, element, tame, 0.0) for _ in self.inputs]
        odd, share = source.choice((adversarial, _edge)), source.choice((0.15, 0.5, 1.0))
        special_ones = [self._vector(source, element, odd, share) for _ in self.inputs]
        every, here = source.random() < 0.6, source.randrange(ITERATIONS)
        for buffer, common, special in zip(self.inputs, usual, special_ones, strict=True):
            buffer.view[:] = b"".join(special if every or n == here else common for n in range(ITERATIONS)) + common
        for buffer in self.results:
            buffer.view[:] = b"\xa5" * len(buffer.view)

    @staticmethod
    def _vector(source: random.Random, element: ElementType, odd: Draw, share: float) -> bytes:
        return packed([(odd if source.random() < share else tame)(source, element)
                       for _ in range(VECTOR // element.size)], element)


def _edge(source: random.Random, element: ElementType) -> int:
    """One of each kind of number, so that each meets each other one often."""
    return source.choice(_EDGES[element]) if element.is_float else adversarial(source, element)


@dataclass(frozen=True)
class Original:
    """The loop as it was assembled."""

    kernel: NativeKernel
    frame: Buffer
    data: Data

    @staticmethod
    def of(machine_code: bytes, data: Data) -> Original:
        loads = [instruction("mov", name, Mem("rbp", displacement=8 * n)) for n, name in enumerate(data.registers)]
        return Original(NativeKernel(code(loads, Bytes(machine_code[:-1])), Isa.AVX2), Buffer(4096), data)

    def run(self, mxcsr: int, result: int, first: int = 0) -> int:
        """The iterations from ``first`` to the last, into that result; returns MXCSR."""
        values = self.data.registers | {"rax": first * VECTOR, "r8": (ITERATIONS + 1) * VECTOR,
                                        "rcx": self.data.results[result].address}
        self.frame.view[:8 * len(values)] = packed(list(values.values()), ElementType.I64)
        return self.kernel.run(self.frame.address, mxcsr=mxcsr)


@dataclass(frozen=True)
class Generated:
    """What memopt makes of the loop for one instruction set. It writes to the second result."""

    kernel: NativeKernel
    kept: tuple[Buffer, ...]  # the frame, and the memory of private arrays

    @staticmethod
    def of(lifted: Lifted, isa: Isa, data: Data) -> Generated:
        """Raises Rejected where there is no plan for the instruction set."""
        region = lifted.region
        loops = next(loop_plans(region.scop, Context(ZEN5, isa), region.nonnegative, least_gain=0.0))
        check_loops(region.scop, loops, facts=region.nonnegative)
        plan, parts = NestPlan((loops,)), (replace(region, scop=replace(region.scop, statements=loops.statements)),)
        layout = FrameLayout.build(tuple(x.symbol for x in region.live_ins), 16384)
        frame, needed = Buffer(layout.size), nest_scratch_bytes(parts, plan)
        scratch = Buffer(max(needed, 1))
        made = nest_kernel(parts, plan, layout, Placement(0, 0, frame.address, layout.size, 0, scratch.address, needed))
        values = data.registers | {"rcx": data.results[1].address}
        numbers = {"R": ITERATIONS + 1, "H": ITERATIONS}
        for live in region.live_ins:
            assert isinstance(live.location, Register)
            numbers[live.symbol] = values[live.location.name]
        for name, offset in layout.symbols.items():
            frame.view[offset:offset + 8] = numbers[name].to_bytes(8, "little")
        return Generated(NativeKernel(made.items, plan.isa), (frame, scratch))

    def run(self, mxcsr: int) -> int:
        return self.kernel.run(self.kept[0].address, mxcsr=mxcsr)


def lift(machine_code: bytes, data: Data) -> Lifted:
    """The loop lifted at its first iteration."""
    return lift_bytes(machine_code, data.registers)


def difference(form: str, machine_code: bytes, isas: Sequence[Isa], rounds: int) -> tuple[str, tuple[Isa, ...]]:
    """How the new code differs from the original ("" if it does not), and the instruction sets that it was run on.
    Raises Rejected where the form is outside the model."""
    data = Data()
    original, lifted = Original.of(machine_code, data), lift(machine_code, data)
    ran: list[Isa] = []
    for isa in isas:
        try:
            generated = Generated.of(lifted, isa, data)
        except Rejected:
            continue
        ran.append(isa)
        source = random.Random(form)
        for _ in range(rounds):
            control = MXCSR_DEFAULT | source.randrange(4) << 13 | source.choice((0, 0, _NO_DENORMALS))
            data.fill(source, _elements(form))
            wanted = original.run(control, 0)
            found = original.run(generated.run(control), 1, ITERATIONS)
            same = data.results[0].view == data.results[1].view
            if not same or wanted != found:
                return f"{form} on {isa.value}: {_described(data, wanted, found, control)}", tuple(ran)
    return "", tuple(ran)


def _elements(form: str) -> tuple[ElementType, ...]:
    """The types of the values in the registers: the floating-point type that the name ends in, or any."""
    name = form.split()[0].removeprefix("v")
    found = None if name[0] == "p" or "2" in name else re.search(r"[ps]([sd])$", name)
    return (_FLOATS[found[1]],) if found else tuple(ElementType)


def _described(data: Data, wanted: int, found: int, control: int) -> str:
    lines = [f"MXCSR {found:#x}, should be {wanted:#x} (was {control:#x})"]
    one, two = (bytes(b.view) for b in data.results)
    for n in range(ITERATIONS):
        at = slice(n * VECTOR, (n + 1) * VECTOR)
        if one[at] != two[at] or (n == 0 and one == two):
            names = ("register 0", "register 1", "register 2", "should be", "is")
            vectors = (*(bytes(b.view[at]) for b in data.inputs), one[at], two[at])
            lines += [f"{name}: {vector[::-1].hex(' ', 4)}" for name, vector in zip(names, vectors, strict=True)]
            break
    return "\n".join(lines)
