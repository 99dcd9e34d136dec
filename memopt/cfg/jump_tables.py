"""Jump tables: the targets of the indirect jumps that compilers make of a switch, or of labels as values.

Example: ``movsxd rax, dword ptr [rdx + rax*4]; add rax, rdx; jmp rax`` jumps by a table of distances at rdx; ``jmp
qword ptr [rax*8 + 0x4010]`` by a table of addresses. Without optimisation the index is multiplied apart, and an
address may be loaded in another block than that of the jump.

In: a flow graph, the bytes of the file. Out: the targets of each indirect jump whose table is found. A table ends where
an entry leads out of the function, or where another table starts. That may name too many targets, but never too few
of a table that was found. It is good enough to show structure, not to prove anything.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator

from memopt.ir.graph import BasicBlock, DecodedInstruction, FlowGraph, Kind
from memopt.x86.decoder import rip_target

_MOST_ENTRIES = 4096
_DISTANCE = re.compile(r"\w+, dword ptr \[(r\w+) \+ (?:r\w+\*4|(r\w+))\]")
_ABSOLUTE = re.compile(r"(?:r\w+, )?qword ptr \[r\w+\*8 \+ (0x[0-9a-f]+)\]")
_ADDRESS = re.compile(r"(?:r\w+, )?qword ptr \[(r\w+) \+ (?:r\w+\*8|(r\w+))\]")
_LOADS = ("mov", "movsxd", "jmp", "notrack jmp")


def switches(graph: FlowGraph, read: Callable[[int, int], bytes], bounds: tuple[int, int]
             ) -> dict[int, tuple[int, ...]]:
    """The targets inside ``bounds`` of each indirect jump of ``graph`` whose table is found, by the jump's address.

    ``read``: (address, size) -> at most size bytes of the file as loaded.
    """
    bases = _bases(graph)
    starts = sorted({base for found in bases.values() for base in found.values()})
    result: dict[int, tuple[int, ...]] = {}
    for block in graph.blocks.values():
        if block.kind is Kind.INDIRECT:
            targets = tuple(dict.fromkeys(_targets(block, bases, starts, read, bounds)
                                          or _of_any(graph, bases, starts, read, bounds)))
            if targets:
                result[block.instructions[-1].address] = targets
    return result


def _bases(graph: FlowGraph) -> dict[str, dict[int, int]]:
    """For each register the addresses that a rip-relative ``lea`` puts into it, by the address of the ``lea``."""
    found: dict[str, dict[int, int]] = {}
    for block in graph.blocks.values():
        for instruction in block.instructions:
            base = rip_target(instruction) if instruction.mnemonic == "lea" else None
            if base is not None:
                register = instruction.operands_text.partition(",")[0]
                found.setdefault(register, {})[instruction.address] = base
    return found


def _targets(block: BasicBlock, bases: dict[str, dict[int, int]], starts: list[int], read: Callable[[int, int], bytes],
             bounds: tuple[int, int]) -> tuple[int, ...]:
    """The targets in the table from which the block loads, the last load first; empty if it loads from none."""
    for instruction in reversed(block.instructions):
        if instruction.mnemonic in _LOADS:
            found = _loaded(instruction, bases, starts, read, bounds)
            if found is not None:
                return found
    return ()


def _of_any(graph: FlowGraph, bases: dict[str, dict[int, int]], starts: list[int], read: Callable[[int, int], bytes],
            bounds: tuple[int, int]) -> tuple[int, ...]:
    """The targets of a jump whose own block loads from no table: the addresses in all tables of the function."""
    loads = (i for block in graph.blocks.values() for i in block.instructions
             if i.mnemonic == "mov" and (_ABSOLUTE.fullmatch(i.operands_text) or _ADDRESS.fullmatch(i.operands_text)))
    return tuple(t for load in loads for t in _loaded(load, bases, starts, read, bounds) or ())


def _loaded(instruction: DecodedInstruction, bases: dict[str, dict[int, int]], starts: list[int],
            read: Callable[[int, int], bytes], bounds: tuple[int, int]) -> tuple[int, ...] | None:
    """The targets in the table that the instruction loads an entry from; None where it loads from no table."""
    text = instruction.operands_text
    if match := _ABSOLUTE.fullmatch(text):
        return tuple(_entries(int(match[1], 16), "<Q", 0, starts, read, bounds))
    for pattern, form in ((_DISTANCE, "<i"), (_ADDRESS, "<Q")):
        if match := pattern.fullmatch(text):
            loaded = {at: base for register in match.groups() for at, base in bases.get(register or "", {}).items()}
            for at in sorted(loaded, key=lambda a: (a > instruction.address, -a)):
                base = loaded[at] if form == "<i" else 0
                targets = tuple(_entries(loaded[at], form, base, starts, read, bounds))
                if targets:
                    return targets
    return None


def _entries(table: int, form: str, base: int, starts: list[int], read: Callable[[int, int], bytes],
             bounds: tuple[int, int]) -> Iterator[int]:
    size = struct.calcsize(form)
    limit = min((s for s in starts if s > table), default=table + size * _MOST_ENTRIES)
    data = read(table, min(limit - table, size * _MOST_ENTRIES))
    for (entry,) in struct.iter_unpack(form, data[:len(data) // size * size]):
        if not bounds[0] + (form == "<Q") <= base + entry < bounds[1]:  # a function's own address is not a label in it
            return
        yield base + entry
