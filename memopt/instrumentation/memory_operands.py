"""Memory accesses of an instruction by its explicit operands, read from its text.

Example: ``add dword ptr [rdi + rax*4 + 8], edx`` reads and writes 4 bytes at rdi + 4 * rax + 8.

In: a decoded instruction. Out: its accesses in order. The stack accesses of push, pop, call and return are not
included. For accesses relative to a segment, of vector gathers and scatters, and of a size that the text does not say
(xsave) the answer is None: not known.
"""

from __future__ import annotations

import re

from memopt.ir.frozen import dataclass
from memopt.ir.graph import DecodedInstruction
from memopt.x86.decoder import rip_target

_SIZES = {"byte": 1, "word": 2, "dword": 4, "qword": 8, "tbyte": 10, "xword": 10, "xmmword": 16, "ymmword": 32,
          "zmmword": 64}
_MEMORY = re.compile(r"(?:(\w+) ptr )?(\w\w:)?\[([^]]+)\]")
_TERM = re.compile(r"([+-]?) ?(?:(r[a-z0-9]+)(?:\*([1248]))?|(0x[0-9a-f]+|\d+))(?: |$)")
_NONE = re.compile(r"lea|nop|prefetch\w*|push|clflush\w*|clwb|cldemote|endbr64|vgather\w+|vpgather\w+|vscatter\w+"
                   r"|vpscatter\w+|xsave\w*|xrstor\w*|fxsave\w*|fxrstor\w*|invlpg|call|jmp|ljmp|lcall")
_READ_ONLY = re.compile(r"cmp|test|bt|u?comis[sd]|v(u?comis[sd]|ptest|testp[sd])|ptest|mul|imul|div|idiv|fld\w*|fild"
                        r"|f(i?(add|subr?|mul|divr?|comp?))|ldmxcsr|vldmxcsr|lddqu|fbld")
_WRITE_ONLY = re.compile(r"mov\w*|vmov\w*|set\w+|v?extract\w+|v?pextr\w+|f(nst|st)\w*|fistp?|fisttp|v?stmxcsr|vcvtps2ph"
                         r"|pop|vpmov\w+|vcompress\w+|vpcompress\w+|v?maskmov\w*|vpmaskmov\w*|fbstp")
_STRING = re.compile(r"(?:rep(?:n?[ez])? )?(movs|stos|lods|cmps|scas)([bwdq])")
_STRING_SIZES = {"b": 1, "w": 2, "d": 4, "q": 8}


@dataclass(frozen=True, slots=True)
class Access:
    """``size`` bytes at base + scale * index + displacement, or at ``absolute``."""

    size: int
    reads: bool
    writes: bool
    base: str | None = None  # 64-bit registers
    index: str | None = None
    scale: int = 1
    displacement: int = 0
    absolute: int | None = None  # the address, where it is known (rip-relative)
    repeated: bool = False  # as many elements as rcx says, upwards (rep movs)


def accesses(instruction: DecodedInstruction) -> tuple[Access, ...] | None:
    """The accesses of ``instruction`` in the order in which they happen; None where one of them is not known."""
    name, text = instruction.mnemonic, instruction.operands_text
    string = _STRING.fullmatch(name)
    if string is not None and "xmm" not in text:
        return _string(string[1], _STRING_SIZES[string[2]], " " in name)
    if "[" not in text:
        return ()
    name = name.rsplit(" ", 1)[-1]  # without a prefix: "lock add"
    if _NONE.fullmatch(name):
        return None if name.startswith(("v", "x", "fx")) else () if "call" not in name and "jmp" not in name else (
            _by_text(instruction, reads=True, writes=False))
    first = text.partition("[")[0].count(",") == 0
    if not first or _READ_ONLY.fullmatch(name):
        return _by_text(instruction, reads=True, writes=False)
    return _by_text(instruction, reads=not _WRITE_ONLY.fullmatch(name), writes=True)


def _by_text(instruction: DecodedInstruction, reads: bool, writes: bool) -> tuple[Access, ...] | None:
    found = _MEMORY.search(instruction.operands_text)
    if found is None or found[1] not in _SIZES or found[2] in ("fs:", "gs:"):
        return None
    size = _SIZES[found[1]]
    if instruction.mnemonic.endswith(("comisd", "comiss")):  # Capstone gives 16 bytes for some of these
        size = 8 if instruction.mnemonic.endswith("d") else 4
    target = rip_target(instruction)
    if target is not None:
        return (Access(size, reads, writes, absolute=target),)
    base, index, scale, displacement, at = None, None, 1, 0, 0
    while at < len(found[3]):
        term = _TERM.match(found[3], at)
        if term is None:
            return None  # 32-bit addresses and other forms
        sign, register, factor, number = term.groups()
        if number is not None:
            displacement += int(sign + number, 0)
        elif factor is not None or base is not None:
            index, scale = register, int(factor or 1)
        else:
            base = register
        at = term.end()
    if any(r is not None and (r[-1] in "dwb" or len(r) < 2) for r in (base, index)) or "riz" in (base, index):
        return None
    displacement = (displacement + (1 << 63)) % (1 << 64) - (1 << 63)
    if not -(1 << 31) <= displacement < 1 << 31:
        return None
    return (Access(size, reads, writes, base, index, scale, displacement),)


def _string(name: str, size: int, repeated: bool) -> tuple[Access, ...]:
    source = Access(size, True, False, "rsi", repeated=repeated)
    if name == "lods":
        return (source,)
    reads = name in ("cmps", "scas")
    target = Access(size, reads, not reads, "rdi", repeated=repeated)
    return (source, target) if name in ("movs", "cmps") else (target,)
