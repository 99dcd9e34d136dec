"""Machine code of ours run inside the test process, and scalar references compiled from statements.

The reference is C with one inline-assembly instruction per operation: a C compiler may swap the operands of a
product, and NaN payloads would follow.
"""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from memopt.ir.plan import Isa
from memopt.ir.scop import Apply, Constant, ElementType, Expression, Read, Scalar, Statement
from memopt.x86.assembler import Assembled, assemble
from memopt.x86.instructions import Code, Instruction, Label, Mem, code, instruction

MXCSR_DEFAULT = 0x1F80
_SAVED = ("rbx", "rbp", "r12", "r13", "r14", "r15")
_LIBC = ctypes.CDLL(None, use_errno=True)


class Buffer:
    """``size`` bytes of anonymous private memory between two inaccessible pages.

    They start on a page boundary, or with ``at_end`` end on one; both ways an access outside faults on one side.
    """

    def __init__(self, size: int, *, at_end: bool = False, executable: bool = False) -> None:
        inner = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        protection = mmap.PROT_READ | mmap.PROT_WRITE | (mmap.PROT_EXEC if executable else 0)
        pages = mmap.mmap(-1, inner + 2 * mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, protection)
        start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
        for guard in (start, start + mmap.PAGESIZE + inner):
            if _LIBC.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(mmap.PAGESIZE), 0):
                raise OSError(ctypes.get_errno(), "mprotect")
        offset = mmap.PAGESIZE + (inner - size if at_end else 0)
        self.view = memoryview(pages)[offset:offset + size]
        self.address = start + offset
        self._first, self._count = start + mmap.PAGESIZE, inner // mmap.PAGESIZE

    def protect(self, read: set[int], written: set[int]) -> int:
        """Makes the pages that are not ``written`` read-only, those that are not ``read`` either inaccessible: how many
        there are. Pages count from the first one."""
        kept = {n: mmap.PROT_READ if n in read else 0 for n in range(self._count) if n not in written}
        for number, protection in kept.items():
            self._protect(number, 1, protection)
        return len(kept)

    def unprotect(self) -> None:
        """Makes all pages readable and writable."""
        self._protect(0, self._count, mmap.PROT_READ | mmap.PROT_WRITE)

    def _protect(self, number: int, count: int, protection: int) -> None:
        if _LIBC.mprotect(ctypes.c_void_p(self._first + number * mmap.PAGESIZE),
                          ctypes.c_size_t(count * mmap.PAGESIZE), protection):
            raise OSError(ctypes.get_errno(), "mprotect")


def host_isas() -> tuple[Isa, ...]:
    """The targets this machine can run."""
    flags = Path("/proc/cpuinfo").read_text().split("flags", 1)[1].split("\n", 1)[0].split()
    wanted = {Isa.SSE2: {"sse2"}, Isa.AVX2: {"avx2", "fma"}, Isa.AVX512: {"avx512f", "avx2", "fma", "bmi2"}}
    return tuple(isa for isa, need in wanted.items() if need <= set(flags))


class NativeKernel:
    """Kernel code callable as ``run(frame address, scalars)``: sets a clean MXCSR, returns the one at the end.

    ``scalars`` are loaded into xmm0, xmm1, ... before the kernel starts.
    """

    def __init__(self, items: Code, isa: Isa) -> None:
        self._code = Buffer(1 << 17, executable=True)
        self.assembled: Assembled = assemble(code(_prologue(), items, _epilogue(isa)), self._code.address)
        assert isa is Isa.AVX512 or not self.assembled.evex, "an instruction that the processor may not have"
        self._code.view[:len(self.assembled.code)] = self.assembled.code
        prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        self._function = prototype(self._code.address)

    def run(self, frame: int, scalars: Sequence[int] = (), mxcsr: int = MXCSR_DEFAULT) -> int:
        control = (ctypes.c_uint32 * 2)(mxcsr, 0)
        values = (ctypes.c_uint64 * 16)()
        for number, bits in enumerate(scalars):
            values[2 * number] = bits
        self._function(frame, ctypes.addressof(control), ctypes.addressof(values))
        return int(control[1])


def _prologue() -> Code:
    saves = [instruction("push", r) for r in _SAVED]
    loads = [instruction("movups", f"xmm{n}", Mem("rdx", displacement=16 * n, size=16)) for n in range(8)]
    return code(saves, instruction("push", "rsi"), instruction("sub", "rsp", 8),
                instruction("stmxcsr", Mem("rsp", size=4)), instruction("ldmxcsr", Mem("rsi", size=4)),
                loads, instruction("mov", "rbp", "rdi"))


def _epilogue(isa: Isa) -> Code:
    clean: list[Instruction] = [] if isa is Isa.SSE2 else [instruction("vzeroupper")]
    return code(Label("kernel_done"), clean, instruction("mov", "rsi", Mem("rsp", displacement=8)),
                instruction("stmxcsr", Mem("rsi", displacement=4, size=4)),
                instruction("ldmxcsr", Mem("rsp", size=4)), instruction("add", "rsp", 16),
                [instruction("pop", r) for r in reversed(_SAVED)], instruction("ret"))


_COMPILED: dict[str, ctypes.CDLL] = {}
_DIRECTORY = tempfile.TemporaryDirectory(prefix="memopt-reference-")


class Reference:
    """The statement over its box, dimensions outermost first, one scalar SSE instruction per operation."""

    def __init__(self, statement: Statement, element: ElementType) -> None:
        source = _source(statement, element)
        name = hashlib.sha256(source.encode()).hexdigest()[:16]
        if name not in _COMPILED:
            path = Path(_DIRECTORY.name) / f"{name}.so"
            subprocess.run(["gcc", "-O2", "-ffp-contract=off", "-shared", "-fPIC", "-x", "c", "-", "-o", str(path)],
                           input=source.encode(), check=True)
            _COMPILED[name] = ctypes.CDLL(str(path))
        self._function = _COMPILED[name].reference

    def run(self, trips: Sequence[int], bases: Sequence[int], strides: Sequence[Sequence[int]],
            scalars: Sequence[int] = (), mxcsr: int = MXCSR_DEFAULT) -> int:
        """``bases`` and ``strides``: the write, then the reads; returns MXCSR at the end."""
        flat = [s for row in strides for s in row]
        return int(self._function((ctypes.c_long * len(trips))(*trips), (ctypes.c_long * len(bases))(*bases),
                                  (ctypes.c_long * len(flat))(*flat),
                                  (ctypes.c_uint64 * 8)(*scalars, *[0] * (8 - len(scalars))),
                                  ctypes.c_uint32(mxcsr)))


def _source(statement: Statement, element: ElementType) -> str:
    real, bits, suffix = {ElementType.F64: ("double", "unsigned long", "sd"),
                          ElementType.F32: ("float", "unsigned", "ss")}[element]
    depth = len(statement.dimensions)
    lines = ["#include <string.h>", "#include <xmmintrin.h>"]
    for name in ("add", "sub", "mul", "div", "min", "max"):
        lines.append(f'static inline {real} op_{name}({real} a, {real} b) '
                     f'{{ asm volatile("{name}{suffix} %1, %0" : "+x"(a) : "x"(b)); return a; }}')
    lines.append(f'static inline {real} op_sqrt({real} a) '
                 f'{{ {real} r; asm volatile("sqrt{suffix} %1, %0" : "=x"(r) : "x"(a)); return r; }}')
    lines.append(f"static inline {real} bits({bits} b) {{ {real} r; memcpy(&r, &b, sizeof r); return r; }}")
    lines.append("unsigned reference(long *n, long *base, long *s, unsigned long *scalars, unsigned mxcsr) {")
    lines.append("unsigned saved = _mm_getcsr(); _mm_setcsr(mxcsr); asm volatile(\"\" ::: \"memory\");")
    lines += [f"for (long i{d} = 0; i{d} < n[{d}]; i{d}++)" for d in range(depth)]

    def cell(number: int) -> str:
        terms = "".join(f" + i{d} * s[{number * depth + d}]" for d in range(depth))
        return f"*({real} *)(base[{number}]{terms})"

    def text(node: Expression) -> str:
        match node:
            case Read(index):
                return cell(index + 1)
            case Scalar(register):
                return f"bits(({bits})scalars[{int(register[3:])}])"
            case Constant(value):
                return f"bits(({bits}){value:#x}ul)"
            case Apply(operator, operands):
                return f"op_{operator}({', '.join(map(text, operands))})"
        raise AssertionError(f"no C for {node}")

    lines.append(f"{cell(0)} = {text(statement.expression)};")
    lines.append("asm volatile(\"\" ::: \"memory\"); unsigned after = _mm_getcsr(); _mm_setcsr(saved); return after; }")
    return "\n".join(lines)
