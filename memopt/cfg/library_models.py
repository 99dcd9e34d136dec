"""Models of library functions: operations that stand for the code of memcpy, memmove, memset, sin, exp and others.

Example: a call of ``memcpy(d, s, n)`` becomes the loop ``for (k = 0; k < n; k += g) d[k..] = s[k..]``; the element
size g ("granule") is the largest that is known to divide n. Copying forwards element by element is what memcpy and
memmove do unless the destination begins inside the source; the model exits where that is so ("forwards"). A function
of the mathematical library is one operation: its result depends on its operands only (C11, 7.12, and glibc's manual on
errno).

In: a ``LibraryFunction``, where it is called. Out: blocks of operations. A model exits to the original code where the
called slot no longer holds the function's address. After it, the registers that the System V ABI lets a function
change (AMD64 supplement, 3.2.1) are unknown.
"""

from __future__ import annotations

from memopt.ir.frozen import dataclass
from memopt.ir.operations import CALL, CHECK, Block, Literal, Operand
from memopt.x86.block_builder import BlockBuilder

COPIES, FILLS = ("memcpy", "memmove"), ("memset",)
_WHOLE = ("exp", "exp2", "expm1", "sinh", "cosh", "tanh", "asinh", "atan", "cbrt", "erf", "erfc")
_PARTIAL = ("log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "acosh", "atanh")
_TWO = {"atan2": CALL, "hypot": CALL, "pow": CHECK}
FUNCTIONS = {name + suffix: (operator, operands, bits)
             for names, operands in ((dict.fromkeys(_WHOLE, CALL) | dict.fromkeys(_PARTIAL, CHECK), 1), (_TWO, 2))
             for name, operator in names.items() for suffix, bits in (("", 64), ("f", 32))}
"""By name: the operator, the number of operands, their bits. ``CALL``: the function sets errno to nothing but ERANGE,
so the order of calls does not matter. ``CHECK``: it may also set EDOM."""
_STEP = 0x100  # between the addresses of a model's blocks
GRANULES = (8, 4, 2, 1)


@dataclass(frozen=True, slots=True)
class LibraryFunction:
    """The library function ``name``, called through the pointer at address ``slot`` while that holds ``address``.

    ``slot``: None where the name is enough, as for compilers: code in a file is loaded with another library each time,
    and names of the C library are reserved for what it says (C11, 7.1.3)."""

    name: str
    address: int
    slot: int | None


def model(routine: LibraryFunction, base: int, behind: int) -> dict[int, Block]:
    """The blocks that model a call of ``routine``, from its first instruction to its return, by address.

    They lie at ``base`` and above; ``behind`` is the address that the call returns to.
    """
    if routine.name in FUNCTIONS:
        return {base: _function(routine, base, behind)}
    loops = {size: base + (1 + number) * _STEP for number, size in enumerate(GRANULES)}
    last = base + (1 + len(loops)) * _STEP
    blocks = {base: _entry(routine, base, loops, last)}
    blocks |= {at: _loop(routine, at, size, last) for size, at in loops.items()}
    return blocks | {last: _return(last, behind)}


def _entry(routine: LibraryFunction, base: int, loops: dict[int, int], after: int) -> Block:
    b = _bound(routine, base)
    to, size = b.get("rdi"), b.get("rdx")
    b.put("rax", to)
    if routine.name in FILLS:
        byte = b.compute("zext", (b.compute("trunc", (b.get("rsi"),), 8),), 64)
        b.put("rsi", b.compute("mul", (byte, Literal(0x0101010101010101, 64)), 64))
    else:
        apart = b.compute("forwards", (to, b.get("rsi"), size), 1)
        b.exit(b.compute("xor", (apart, Literal(1, 1)), 1), routine.address)
    granule = b.compute("granule", (size,), 64)
    for number, target in loops.items():
        b.exit(b.compute("eq", (granule, Literal(number, 64)), 1), target)
    b.jump(after, "boring")
    return b.finish(base, 0)


def _bound(routine: LibraryFunction, base: int) -> BlockBuilder:
    """The beginning of every model: an exit unless the slot, if it counts, holds the function's address."""
    b = BlockBuilder()
    b.address = base
    if routine.slot is not None:
        bound = b.load(Literal(routine.slot, 64), 64)
        b.exit(b.compute("ne", (bound, Literal(routine.address, 64)), 1), routine.address)
    return b


def _function(routine: LibraryFunction, base: int, behind: int) -> Block:
    """A mathematical function: its operands are the low ends of xmm0 and xmm1, its result is the low end of xmm0.

    System V ABI, AMD64 supplement, 3.2.3.
    """
    operator, count, bits = FUNCTIONS[routine.name]
    b = _bound(routine, base)
    operands = tuple(b.resize(b.get(f"xmm{number}.0"), bits) for number in range(count))
    value = b.compute(f"{operator} {routine.address:x}", operands, bits)
    b.put("rsp", b.compute("add", (b.get("rsp"), Literal(8, 64)), 64))
    b.forget(in_rax=False)
    if bits == 32:
        above = b.compute("trunc", (b.compute("shr", (b.get("xmm0.0"), Literal(32, 8)), 64),), 32)
        value = b.compute("concat", (above, value), 64)
    b.put("xmm0.0", value)
    b.jump(behind, "boring")
    return b.finish(base, 0)


def _loop(routine: LibraryFunction, address: int, size: int, after: int) -> Block:
    """One iteration: while bytes remain in rdx, the element at rsi, or the value in rsi, is stored at rdi."""
    b = BlockBuilder()
    b.address = address
    step = Literal(size, 64)
    rest = b.get("rdx")
    b.exit(b.compute("eq", (rest, Literal(0, 64)), 1), after)
    to, source = b.get("rdi"), b.get("rsi")
    if routine.name in FILLS:
        value: Operand = b.resize(source, 8 * size)
    else:
        value = b.load(source, 8 * size)
        b.put("rsi", b.compute("add", (source, step), 64))
    b.store(to, value)
    b.put("rdi", b.compute("add", (to, step), 64))
    b.put("rdx", b.compute("sub", (rest, step), 64))
    b.jump(address, "boring")
    return b.finish(address, 0)


def _return(address: int, behind: int) -> Block:
    b = BlockBuilder()
    b.address = address
    b.put("rsp", b.compute("add", (b.get("rsp"), Literal(8, 64)), 64))
    b.forget(in_rax=True)
    b.jump(behind, "boring")
    return b.finish(address, 0)
