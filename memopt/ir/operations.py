"""The scalar operations that machine code is lifted to, about forty; symbolic execution works on them.

Example: ``add rax, [rdi+8]`` becomes::

    t0:64 = rdi
    t1:64 = add t0, 0x8:64
    t2:64 = load [t1]
    t3:64 = rax
    t4:64 = add t3, t2
    rax = t4

All values are bit patterns of 1, 8, 16, 32 or 64 bits. Vector registers are 64-bit lanes ("xmm0.0", "xmm0.1"; the
upper half of ymm0 is "xmm0.2", "xmm0.3"), and packed instructions become one operation for each lane. Invariant:
temporaries are in single-assignment form, and numbered in the order of their definitions within a block.

Operators of ``Compute`` (the operands have the width of the result unless said otherwise):

=================================  ====================================================================
add sub mul and or xor not         two's complement, modulo 2**width
umulhi smulhi                      upper half of the double-width product
udiv sdiv umod smod                truncating division; faults like the instruction does
shl shr sar                        the second operand is an 8-bit count, below the width
trunc zext sext                    to a narrower or wider width
high                               upper half of an operand twice as wide as the result
concat                             (high, low), each half as wide as the result
eq ne slt sle ult ule              1-bit result, two operands of equal width
select                             (1-bit condition, value if true, value if false)
clz ctz                            leading, trailing zeros; the width for 0
fadd fsub fmul fdiv                on floating-point bit patterns, rounded to nearest, or as MXCSR says
fsqrt fneg fabs                    one operand
fmin fmax                          x86 ``minsd a, b``: a < b ? a : b, so the second operand when unordered
fma fms fnma fnms                  (a, b, c): a*b + c, a*b - c, c - a*b, -(a*b) - c, rounded once
fcompare fqcompare                 32-bit result: 0x45 unordered, 0x01 less, 0x00 greater, 0x40 equal; quiet NaNs are
                                   invalid in the first, not in the second
feq flt fle funord                 1-bit result, ordered comparisons (``funord``: either is a NaN); quiet NaNs are
                                   invalid in ``flt`` and ``fle``, not in the others
fseq fqlt fqle fsunord             the same: quiet NaNs are invalid in ``fseq`` and ``fsunord``, not in the others
f32to64 f64to32                    conversion between formats
i32tof64 i64tof64 i32tof32 i64tof32  signed integer to floating point
f64toi32 f64toi64 f32toi32 f32toi64  (rounding, value): to a signed integer; 0x80..0 when out of range
fround                             (rounding, value): to an integral floating-point value
condition carry flags              from the saved flag state, see below
granule                            of a size in bytes: the largest of 8, 4, 2, 1 known to divide it
call F, check F                    the pure function at address F (hexadecimal), one floating-point operand or two;
                                   ``check``: outside its domain it raises the invalid flag, and sets errno to EDOM
forwards                           1-bit result, (destination, source, size): whether a copy that runs upwards does what
                                   memmove does; code relies on it being true
=================================  ====================================================================

Rounding: the operations above that carry no rounding operand round as the MXCSR says, like the machine instructions
they come from. A ``rounding`` operand is a literal of 32 bits with the meaning of ROUNDPD's immediate (Intel SDM 2B):
0 nearest, 1 down, 2 up, 3 towards zero, 4 as the MXCSR says. 8 is added where ``fround`` never raises the inexact flag.

Flags live in four 64-bit locations as in VEX (Valgrind's guest_amd64_helpers.c): "cc_op" says which operation set
them, "cc_dep1", "cc_dep2", "cc_ndep" its operands. ``condition`` has the operands (Literal number of the condition,
cc_op, cc_dep1, cc_dep2, cc_ndep) and a 1-bit result; ``carry`` has (cc_op, cc_dep1, cc_dep2, cc_ndep) and a 1-bit
result; ``flags`` has the same operands as ``carry`` and the 64-bit flags register as its result.
``memopt.x86.conditions.expand_condition`` turns the first two into comparisons once cc_op is known.
"""

from __future__ import annotations

import functools

from memopt.ir.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Temp:
    """A temporary: the value that the operation with ``result == index`` defines."""

    index: int

    def __str__(self) -> str:
        return f"t{self.index}"


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant: ``0 <= value < 2**width``, ``width`` in bits."""

    value: int
    width: int

    def __str__(self) -> str:
        return f"{self.value:#x}:{self.width}"


Operand = Temp | Literal


@dataclass(frozen=True, slots=True)
class Get:
    """Read a whole 64-bit guest location: "rax", "xmm0.1", "cc_op", "d_flag", "mxcsr_round"."""

    address: int
    result: int
    location: str
    width: int = 64

    def __str__(self) -> str:
        return f"t{self.result}:{self.width} = {self.location}"


@dataclass(frozen=True, slots=True)
class Put:
    """Write a whole 64-bit guest location. Partial writes are expanded to reads, shifts and masks before."""

    address: int
    location: str
    value: Operand

    def __str__(self) -> str:
        return f"{self.location} = {self.value}"


@dataclass(frozen=True, slots=True)
class Load:
    """Read ``width`` bits (8, 16, 32, 64) of memory, little-endian."""

    address: int
    result: int
    pointer: Operand
    width: int

    def __str__(self) -> str:
        return f"t{self.result}:{self.width} = load [{self.pointer}]"


@dataclass(frozen=True, slots=True)
class Store:
    """Write ``width`` bits (8, 16, 32, 64) of memory, little-endian."""

    address: int
    pointer: Operand
    value: Operand
    width: int

    def __str__(self) -> str:
        return f"store [{self.pointer}]:{self.width} = {self.value}"


@dataclass(frozen=True, slots=True)
class Compute:
    """``result = operator(operands)``, ``width`` bits; see the module's table."""

    address: int
    result: int
    operator: str
    operands: tuple[Operand, ...]
    width: int

    def __str__(self) -> str:
        return f"t{self.result}:{self.width} = {self.operator} {', '.join(map(str, self.operands))}"


@dataclass(frozen=True, slots=True)
class AlignmentCheck:
    """The instruction faults unless ``pointer`` is a multiple of ``size`` (bytes)."""

    address: int
    pointer: Operand
    size: int

    def __str__(self) -> str:
        return f"aligned [{self.pointer}] {self.size}"


@dataclass(frozen=True, slots=True)
class Forget:
    """A function has returned: the caller-saved registers and the memory below rsp are unknown. The results, in rax
    if ``in_rax`` and in xmm0, are written by operations of their own."""

    address: int
    in_rax: bool = True

    def __str__(self) -> str:
        return "forget"


@dataclass(frozen=True, slots=True)
class Exit:
    """A conditional jump: to ``target`` if the 1-bit ``condition`` is 1."""

    address: int
    condition: Operand
    target: int

    def __str__(self) -> str:
        return f"if {self.condition} goto {self.target:#x}"


@dataclass(frozen=True, slots=True)
class Jump:
    """How the block ends; always its last operation. ``kind``: boring (a direct jump), call, ret, indirect,
    fallthrough (into the next instruction)."""

    address: int
    target: Operand | int
    kind: str

    def __str__(self) -> str:
        target = f"{self.target:#x}" if isinstance(self.target, int) else str(self.target)
        return f"{self.kind} {target}"


CLOBBERED = ("rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "cc_op", "cc_dep1", "cc_dep2", "cc_ndep",
             *(f"xmm{number}.{lane}" for number in range(16) for lane in range(4)))  # by Forget

# Comparisons with a result of one bit, and the predicates of VCMPPD that they are.
PREDICATES = {"feq": 0, "flt": 1, "fle": 2, "funord": 3, "fseq": 16, "fqlt": 17, "fqle": 18, "fsunord": 19}
# Comparisons for which quiet NaNs are invalid.
SIGNALLING = frozenset(("fcompare", "flt", "fle", "fseq", "fsunord", "fmin", "fmax"))
COMPARING = SIGNALLING.union(PREDICATES, ("fqcompare",))
FROM_INTEGERS = frozenset(("i32tof64", "i64tof64", "i32tof32", "i64tof32"))
ROUNDED = frozenset(("fround", "f64toi32", "f64toi64", "f32toi32", "f32toi64"))  # the first operand is the rounding
TOWARDS_ZERO, AS_MXCSR_SAYS, NEVER_INEXACT = 3, 4, 8  # roundings; the last is added to another one
ROUNDINGS = (*range(AS_MXCSR_SAYS + 1), *range(NEVER_INEXACT, NEVER_INEXACT + AS_MXCSR_SAYS + 1))  # all of ``fround``
# Operators that may raise a floating-point exception flag.
RAISING = COMPARING | FROM_INTEGERS | ROUNDED | frozenset((
    "fadd", "fsub", "fmul", "fdiv", "fsqrt", "fma", "fms", "fnma", "fnms", "f32to64", "f64to32"))

CALL, CHECK = "call", "check"  # the first words of operators that are functions


@functools.cache
def called(operator: str) -> int | None:
    """The address of the function that the operator calls; None for all other operators."""
    name, _, address = operator.partition(" ")
    return int(address, 16) if name in (CALL, CHECK) else None


Operation = Get | Put | Load | Store | Compute | AlignmentCheck | Forget | Exit | Jump


@dataclass(frozen=True, slots=True)
class Block:
    """The operations of one basic block of machine code at ``address``, ``size`` bytes long. ``temporaries``: how many
    it defines."""

    address: int
    size: int
    operations: tuple[Operation, ...]
    temporaries: int

    def __str__(self) -> str:
        lines = [f"block {self.address:#x} {self.size}"]
        address = None
        for operation in self.operations:
            if operation.address != address:
                address = operation.address
                lines.append(f"  {address:#x}")
            lines.append(f"    {operation}")
        return "\n".join(lines)
