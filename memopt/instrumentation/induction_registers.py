"""Induction registers: a loop changes them by a fixed step once per iteration, so that a profile needs no counter.

Example: ``add rax, 8`` ran (rax at the exit - rax at the entry of the loop) / 8 times, whatever path the loop took
inside and however it ended.

In: a flow graph and its loops. Out: one ``Stepping`` for each loop that has such a register. A loop with calls, or with
jumps whose targets are not known, has none. A register that some instruction may change without naming it is not used,
either.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from memopt.cfg.loop_nesting import Nesting
from memopt.instrumentation.scratch_registers import FAMILIES
from memopt.ir.frozen import dataclass
from memopt.ir.graph import DecodedInstruction, FlowGraph, Kind, Loop

_STEP = re.compile(r"(\w+), (-?(?:0x[0-9a-f]+|\d+))")
_LEA = re.compile(r"(r\w+), \[(r\w+) ([+-]) (0x[0-9a-f]+|\d+)\]")
_FIRST_ONLY = re.compile(
    r"mov|movabs|movzx|movsx|movsxd|lea|add|sub|adc|sbb|and|or|xor|neg|not|inc|dec|sh[lr]|sa[lr]|ro[lr]|shld|shrd|set\w+"
    r"|cmov\w+|popcnt|tzcnt|lzcnt|bs[fr]|bswap|andn|bls\w+|bextr|bzhi|rorx|s[ah][lr]x|pdep|pext|movbe|bt[src]")
_NOTHING = re.compile(r"cmp|test|nop|endbr64|bt|prefetch\w+|[sml]fence|pause")
_IMPLIED: Mapping[str, frozenset[str]] = {
    "cdqe": frozenset(("rax",)), "cwde": frozenset(("rax",)), "cbw": frozenset(("rax",)), "cqo": frozenset(("rdx",)),
    "cdq": frozenset(("rdx",)), "mul": frozenset(("rax", "rdx")), "div": frozenset(("rax", "rdx")),
    "idiv": frozenset(("rax", "rdx")),
}
_ALSO_UNNAMED = re.compile(r"v?(maskmov\w*|pcmp[ei]str\w*)")


@dataclass(frozen=True, slots=True)
class Stepping:
    """An induction register of a loop: one instruction of the loop adds ``step`` to it, and no other changes it."""

    address: int  # of the instruction
    block: int  # the block it is in
    register: str  # the name of its 64 bits
    step: int
    bits: int  # 64, or 32 for arithmetic modulo 2**32 that clears the upper half


def steppings(graph: FlowGraph, nesting: Nesting) -> dict[int, Stepping]:
    """The induction register of each loop that has one, by the index of the loop in ``nesting``."""
    found = {}
    innermost = nesting.innermost
    for index, loop in enumerate(nesting.loops):
        if loop.header not in nesting.irreducible and all(
                graph.blocks[b].kind in (Kind.PLAIN, Kind.JUMP, Kind.CONDITIONAL) for b in loop.blocks):
            stepping = _stepping(graph, loop, {b for b in loop.blocks if innermost[b] == index})
            if stepping is not None:
                found[index] = stepping
    return found


def _stepping(graph: FlowGraph, loop: Loop, own: set[int]) -> Stepping | None:
    writes: dict[str, int] = {}
    candidates: list[Stepping] = []
    for block in loop.blocks:
        for instruction in graph.blocks[block].instructions:
            changed = written(instruction)
            if changed is None:
                return None
            for register in changed:
                writes[register] = writes.get(register, 0) + 1
            step = _step(instruction) if block in own else None
            if step is not None:
                candidates.append(Stepping(instruction.address, block, *step))
    good = [c for c in candidates if writes[c.register] == 1]
    latches = {source for source, _ in loop.back_edges}
    return max(good, key=lambda c: (c.block in latches, c.block == loop.header, c.bits, -c.block), default=None)


def _step(instruction: DecodedInstruction) -> tuple[str, int, int] | None:
    """(64-bit register, step, bits) if the instruction adds a constant to a register; else None."""
    name, text = instruction.mnemonic, instruction.operands_text
    register, amount = text, 0
    if name in ("inc", "dec"):
        amount = 1 if name == "inc" else -1
    elif name in ("add", "sub") and (match := _STEP.fullmatch(text)):
        register = match[1]
        amount = int(match[2], 0) if name == "add" else -int(match[2], 0)
    elif name == "lea" and (match := _LEA.fullmatch(text)) and match[1] == match[2]:
        register, amount = match[1], int(match[3] + match[4], 0)
    family = FAMILIES.get(register)
    if family in (None, "rsp") or amount == 0:
        return None
    bits = 64 if register == family else 32
    if bits == 32 and register[-1] != "d" and not register.startswith("e"):
        return None  # 8 and 16 bits: the rest of the register stays as it was
    # The text may show a negative immediate as an unsigned number.
    amount = (amount + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
    return family, amount, bits


def written(instruction: DecodedInstruction) -> frozenset[str] | None:
    """The 64-bit registers that ``instruction`` may change, in whole or in part; None where that is not certain."""
    name, text = instruction.mnemonic, instruction.operands_text
    if instruction.kind in (Kind.JUMP, Kind.CONDITIONAL):
        return frozenset() if name.startswith("j") else frozenset(("rcx",)) if name.startswith("loop") else None
    first, _, others = text.partition(", ")
    target = frozenset((FAMILIES[first],)) if first in FAMILIES else frozenset()
    if _NOTHING.fullmatch(name):
        return frozenset()
    if _FIRST_ONLY.fullmatch(name):
        return target
    if name in _IMPLIED:
        return _IMPLIED[name]
    if name == "imul":
        return target if others else frozenset(("rax", "rdx"))
    if "mm" in text and not _ALSO_UNNAMED.fullmatch(name):
        return target
    return None
