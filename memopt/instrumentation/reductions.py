"""Reductions in straight-line code: a load, an associative operation and a store to the same place, as in ``s += x``.

Example: ``movsd xmm0, [rax]; addsd xmm0, [rdi]; movsd [rax], xmm0``, or ``add dword ptr [rax], 1``. A profile shows a
dependence between such an access and itself as a reduction: its order does not matter.

In: the instructions of a block and two of their addresses. Out: whether they are the load and the store of a
reduction. Instructions whose text does not show it for certain are taken for no reduction.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from memopt.instrumentation.induction_registers import written
from memopt.ir.graph import DecodedInstruction

_COMBINES = re.compile(r"v?(p?add|p?mul|p?max|p?min|sub)(s|ps|pd|ss|sd|[bwdq]|s[bwd]|u[bwdq]|l[dw])?"
                       r"|p?x?or|p?and|vpx?or|vpand|inc|dec|imul")
_MOVES = re.compile(r"v?mov(s[sd]|[au]p[sd]|dq[au]|[dq])?")
_MEMORY = re.compile(r"\[[^]]+\]")
_WORD = re.compile(r"[a-z]+\w*")


def accumulates(block: Sequence[DecodedInstruction], writer: int, reader: int) -> bool:
    """Whether the instruction at ``reader`` loads a value that is combined with another and stored back to the same
    place by the instruction at ``writer``; both are in ``block``, and may be one."""
    at = {i.address: n for n, i in enumerate(block)}
    if writer not in at or reader not in at or at[reader] > at[writer]:
        return False
    first, last = block[at[reader]], block[at[writer]]
    place = _MEMORY.search(first.operands_text)
    target = _MEMORY.search(last.operands_text)
    if place is None or target is None or place[0] != target[0]:
        return False
    if first is last:
        return _name(first) is not None
    register = first.operands_text.partition(",")[0]
    held = last.operands_text.rpartition(", ")[2]
    if not _MOVES.fullmatch(last.mnemonic) or _MEMORY.search(register) or register != held:
        return False
    combined = _name(first) is not None
    if not combined and not _MOVES.fullmatch(first.mnemonic):
        return False
    bases = set(_WORD.findall(place[0]))
    for between in block[at[reader] + 1:at[writer]]:
        target_register, _, others = between.operands_text.partition(", ")
        changed = written(between)
        if changed is None or changed & bases:
            return False
        if target_register == register:
            if _name(between) is None:
                return False
            combined = True
        elif register in others.split(", "):
            return False  # the value is used for something else, too
    return combined


def _name(instruction: DecodedInstruction) -> str | None:
    return instruction.mnemonic if _COMBINES.fullmatch(instruction.mnemonic.rsplit(" ", 1)[-1]) else None
