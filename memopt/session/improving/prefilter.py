"""A cheap test whether the code around a hot address could be worth lifting.

Example: ``mulsd xmm0, [rdi+rbx*8]`` within 1 KiB of the address: yes. The dispatch loop of an interpreter, which loads,
compares and jumps through a register: no.

In: the bytes around the address in the live process. Out: yes or no. Yes for floating-point arithmetic (a search for
its opcodes), and for a loop that stores, multiplies or sums, and calls nothing. Interpreters and most integer programs
get a no, before a solver or an assembler is even imported. The test may say yes too often. It hardly ever says no to
code with SSE or AVX arithmetic within reach.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from memopt.ir.reasons import Rejected
from runtime.target.memory import Memory

if TYPE_CHECKING:
    from memopt.ir.graph import DecodedInstruction

STRAIGHT = 192  # instructions that are followed round a loop
REACH = 1024  # bytes before and after the address: more than any unrolled inner loop that a compiler makes


def _bytes(allowed: Callable[[int], bool]) -> bytes:
    return b"[" + b"".join(re.escape(bytes((b,))) for b in range(256) if allowed(b)) + b"]"


# add mul sub min div max sqrt, scalar and packed: Intel SDM volume 2, opcodes 0F 51, 58, 59, 5C to 5F; fused forms are
# map 0F38, opcodes 96 to BF. Prefixes: legacy; two-byte VEX with a low destination register (with a high one it looks
# like `mov ebp, eax; pop`); three-byte VEX and EVEX of maps 1 to 3.
_PLAIN, _FUSED = rb"[\x51\x58\x59\x5c-\x5f]", rb"[\x51\x58\x59\x5c-\x5f\x96-\xbf]"
_ARITHMETIC = re.compile(b"|".join((
    rb"\x0f" + _PLAIN,
    rb"\xc5[\x80-\xff]" + _PLAIN,
    rb"\xc4" + _bytes(lambda b: b & 0x1F in (1, 2, 3)) + rb"." + _FUSED,
    rb"\x62" + _bytes(lambda b: b & 0x0F in (1, 2, 3)) + _bytes(lambda b: b & 4 == 4) + rb"." + _FUSED,
)), re.DOTALL)


# Products and packed sums of loaded values are worth lifting too: they may stay in a register until the loop around
# stores them.
_SUMMED, _MEMORY = re.compile(r"imul|v?pmul|v?pmadd|v?padd[dq]"), re.compile(r"ptr (?:\w+:)?\[")
# An instruction writes to a memory operand that comes first, except for these.
_STORE = re.compile(r"(?!cmp|test|bt |push|call|jmp|nop|prefetch|ucomis|comis|mul|imul|div|idiv|f)(?:lock )?[a-z]\w* "
                    r"(?:\w+ ptr )(?:\w+:)?\[")


def around(address: int) -> tuple[int, int]:
    """The addresses for which the answer about ``address`` holds as well: their code is within the same reach."""
    return address - REACH // 2, address + REACH // 2


def worth_lifting(pid: int, address: int) -> bool:
    """Whether there is floating-point arithmetic near ``address`` in the live process, or a loop around it that
    stores, multiplies or sums, and calls nothing."""
    try:
        memory = Memory(pid)
    except Rejected:
        return True  # lifting will give the reason
    try:
        low = memory.read_some(address - REACH, REACH)
        low = low if len(low) == REACH else b""
        code = low + memory.read_some(address, REACH)
    finally:
        memory.close()
    return _ARITHMETIC.search(code) is not None or stores_in_a_loop(code, address - len(low), address)


def stores_in_a_loop(code: bytes, start: int, address: int) -> bool:
    """Whether ``address`` is in a loop that stores, multiplies or sums, and calls nothing.

    The loop is found by following the code from ``address`` without taking conditional branches, up to a branch back to
    ``address`` or before it. ``code``: the bytes from ``start`` on."""
    from memopt.ir.graph import Kind
    from memopt.x86.decoder import decode

    def straight(first: int) -> tuple[DecodedInstruction, ...]:
        return decode(code[first - start:], first, STRAIGHT) if start <= first < start + len(code) else ()

    pending = list(straight(address))
    passed: list[DecodedInstruction] = []
    for _ in range(STRAIGHT):
        if not pending:
            return False
        instruction = pending.pop(0)
        passed.append(instruction)
        target = instruction.target
        if instruction.kind in (Kind.CALL, Kind.RETURN, Kind.INDIRECT, Kind.TRAP):
            return False
        if instruction.kind in (Kind.JUMP, Kind.CONDITIONAL) and target is not None and target <= address:
            before = [i for i in straight(target) if i.address < address]
            return _writes_or_sums((*before, *passed)) and all(
                i.kind not in (Kind.CALL, Kind.RETURN, Kind.INDIRECT, Kind.TRAP) for i in before)
        if instruction.kind is Kind.JUMP and target is not None:
            pending = list(straight(target))
    return False


def _writes_or_sums(instructions: Sequence[DecodedInstruction]) -> bool:
    texts = [f"{i.mnemonic} {i.operands_text}" for i in instructions]
    if any(map(_STORE.match, texts)):
        return True
    return any(map(_SUMMED.match, texts)) and any(map(_MEMORY.search, texts))
