"""What a probe in front of some instructions may change without saving it: registers and flags that they set first.

Looks no further than the straight line itself, and takes no instruction for more than it is sure of: the answer may
name too little, never too much.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

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
_MOVES = frozenset(["mov", "movabs", "movzx", "movsx", "movsxd", "lea"])  # set their first operand, touch no flags
_VECTOR = re.compile(r"v?(mov|add|sub|mul|div|sqrt|xor|and|or|cvt|unpck|shuf|p[a-z]+|max|min|broadcast|fn?m)[a-z0-9]*")
_TESTS = ("pcmp", "vpcmp", "ptest", "vptest")  # these set flags, or registers they do not name
_COMPARES = ["ucomisd", "ucomiss", "comisd", "comiss"]
_SETTING = frozenset(["add", "sub", "cmp", "test", "and", "or", "xor", "neg", *_COMPARES,
                      *(f"v{c}" for c in _COMPARES)])
_ONLY_NAMED = frozenset(["inc", "dec", "not", "nop", "endbr64"]) | _MOVES | _SETTING  # no operands but those they name
_WIDE = frozenset(FAMILIES.values()) | {"eax", "ebx", "ecx", "edx", "esi", "edi", "ebp"} | {
    f"r{n}d" for n in range(8, 16)}


def idle(instructions: Iterable[DecodedInstruction]) -> tuple[frozenset[str], bool]:
    """Of a straight line: 64-bit registers that it sets before it reads them, and whether it does so with the flags."""
    met: set[str] = {"rsp"}
    free: set[str] = set()
    flags: bool | None = None
    for instruction in instructions:
        name, text = instruction.mnemonic, instruction.operands_text
        first, _, others = text.partition(", ")
        vector = "mm" in text and _VECTOR.fullmatch(name) is not None and not name.startswith(_TESTS)
        if name not in _ONLY_NAMED and not vector:
            break
        named = {FAMILIES[word] for word in _WORD.findall(text) if word in FAMILIES}
        clears = name == "xor" and first == others
        if (name in _MOVES or clears) and first in _WIDE:
            read = set() if clears else {FAMILIES[word] for word in _WORD.findall(others) if word in FAMILIES}
            target = FAMILIES[first]
            met |= read
            if target not in met:
                free.add(target)
        met |= named
        if flags is None and name in _SETTING:
            flags = True
        if name in ("inc", "dec"):
            flags = flags if flags is not None else False  # they leave the carry as it was
    return frozenset(free), bool(flags)
