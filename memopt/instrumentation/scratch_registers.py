"""Scratch registers of a probe: registers and flags that the following instructions set before they read them.

Example: in front of ``mov rax, [rdi]; add rax, 1`` a probe may change rax and the flags without saving them.

In: the instructions behind the probe, in a straight line. Out: dead registers, and whether the flags are dead. The
search does not go beyond the straight line and ends at the first instruction that is not understood. So the answer may
name too few registers, never too many.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from memopt.ir.graph import DecodedInstruction

FAMILIES: dict[str, str] = {
    name: family
    for family, names in {
        "rax": "rax eax ax al ah", "rbx": "rbx ebx bx bl bh", "rcx": "rcx ecx cx cl ch", "rdx": "rdx edx dx dl dh",
        "rsi": "rsi esi si sil", "rdi": "rdi edi di dil", "rbp": "rbp ebp bp bpl", "rsp": "rsp esp sp spl",
    }.items() for name in names.split()
} | {f"r{n}{suffix}": f"r{n}" for n in range(8, 16) for suffix in ("", "d", "w", "b")}
"""The 64-bit register that each name is a part of."""

_WORD = re.compile(r"[a-z]+\w*")
_MOVES = frozenset(["mov", "movabs", "movzx", "movsx", "movsxd", "lea"])  # set their first operand, no flags
_VECTOR = re.compile(r"v?(mov|add|sub|mul|div|sqrt|xor|and|or|cvt|unpck|shuf|p[a-z]+|max|min|broadcast|fn?m)[a-z0-9]*")
_TESTS = ("pcmp", "vpcmp", "ptest", "vptest")  # these set flags, or registers that the text does not name
_COMPARES = ["ucomisd", "ucomiss", "comisd", "comiss"]
_SETTING = frozenset(["add", "sub", "cmp", "test", "and", "or", "xor", "neg", *_COMPARES,
                      *(f"v{c}" for c in _COMPARES)])
_ONLY_NAMED = frozenset(["inc", "dec", "not", "nop", "endbr64"]) | _MOVES | _SETTING  # these have no implicit operands
_WIDE = frozenset(FAMILIES.values()) | {"eax", "ebx", "ecx", "edx", "esi", "edi", "ebp"} | {
    f"r{n}d" for n in range(8, 16)}


class _Effect(NamedTuple):
    """The effect of an instruction on registers (named by their 64 bits) and flags."""

    named: frozenset[str]  # all registers in the text
    target: str | None  # the register that it overwrites as a whole, if there is one
    read: frozenset[str]  # the registers it reads before it writes ``target``
    flags: bool | None  # True: all are set; False: some are; None: they are left alone


def idle(instructions: Iterable[DecodedInstruction]) -> tuple[frozenset[str], bool]:
    """The 64-bit registers that a straight line sets before it reads them, and whether it does so with the flags."""
    met: set[str] = {"rsp"}
    free: set[str] = set()
    flags: bool | None = None
    for instruction in instructions:
        effect = _effect(instruction.mnemonic, instruction.operands_text)
        if effect is None:
            break
        if effect.target is not None and effect.target not in met and effect.target not in effect.read:
            free.add(effect.target)
        met |= effect.named
        flags = effect.flags if flags is None else flags
    return frozenset(free), bool(flags)


@lru_cache(maxsize=1 << 16)
def _effect(name: str, text: str) -> _Effect | None:
    """The effect of the instruction with this mnemonic and text; None where it is not understood."""
    vector = "mm" in text and _VECTOR.fullmatch(name) is not None and not name.startswith(_TESTS)
    if name not in _ONLY_NAMED and not vector:
        return None
    first, _, others = text.partition(", ")
    clears = name == "xor" and first == others
    flags = True if name in _SETTING else False if name in ("inc", "dec") else None  # these leave the carry alone
    target = FAMILIES[first] if (name in _MOVES or clears) and first in _WIDE else None
    return _Effect(_families(text), target, frozenset() if clears else _families(others), flags)


def _families(text: str) -> frozenset[str]:
    return frozenset(FAMILIES[word] for word in _WORD.findall(text) if word in FAMILIES)
