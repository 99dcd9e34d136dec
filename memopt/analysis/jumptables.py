"""Where the jumps of a switch go: tables of addresses, or of distances from their own start, as compilers make them.

gcc and clang load an entry with the index times its size, add the table's address where entries are distances, and jump
there. A table ends where an entry leads out of the function, or where another one starts. That may name too many
targets, never too few of a table that was found: enough to show structure, not to prove anything.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator

from memopt.ir.graph import BasicBlock, FlowGraph, Kind
from memopt.x86.decoder import rip_target

_MOST_ENTRIES = 4096
_DISTANCE = re.compile(r"(r\w+), dword ptr \[(r\w+) \+ r\w+\*4\]")
_ABSOLUTE = re.compile(r"(?:r\w+, )?qword ptr \[r\w+\*8 \+ (0x[0-9a-f]+)\]")


def switches(graph: FlowGraph, read: Callable[[int, int], bytes], bounds: tuple[int, int]
             ) -> dict[int, tuple[int, ...]]:
    """Targets inside ``bounds`` of each indirect jump of ``graph`` whose table is found, by the jump's address.

    ``read``: (address, size) -> at most size bytes of the file as loaded."""
    bases = _bases(graph)
    starts = sorted({base for found in bases.values() for base in found.values()})
    result: dict[int, tuple[int, ...]] = {}
    for block in graph.blocks.values():
        if block.kind is Kind.INDIRECT:
            targets = tuple(dict.fromkeys(_targets(block, bases, starts, read, bounds)))
            if targets:
                result[block.instructions[-1].address] = targets
    return result


def _bases(graph: FlowGraph) -> dict[str, dict[int, int]]:
    """For each register the addresses that are put into it, by where."""
    found: dict[str, dict[int, int]] = {}
    for block in graph.blocks.values():
        for instruction in block.instructions:
            base = rip_target(instruction) if instruction.mnemonic == "lea" else None
            if base is not None:
                register = instruction.operands_text.partition(",")[0]
                found.setdefault(register, {})[instruction.address] = base
    return found


def _targets(block: BasicBlock, bases: dict[str, dict[int, int]], starts: list[int], read: Callable[[int, int], bytes],
             bounds: tuple[int, int]) -> Iterator[int]:
    """Of the first table with an entry that can be one: that loaded last before the jump, then the others."""
    for instruction in reversed(block.instructions):
        absolute, distance = (pattern.fullmatch(instruction.operands_text) for pattern in (_ABSOLUTE, _DISTANCE))
        if absolute:
            yield from _entries(int(absolute[1], 16), "<Q", 0, starts, read, bounds)
            return
        if distance and instruction.mnemonic == "movsxd":
            loaded = bases.get(distance[2], {})
            for at in sorted(loaded, key=lambda a: (a > instruction.address, -a)):
                targets = tuple(_entries(loaded[at], "<i", loaded[at], starts, read, bounds))
                if targets:
                    yield from targets
                    return


def _entries(table: int, form: str, base: int, starts: list[int], read: Callable[[int, int], bytes],
             bounds: tuple[int, int]) -> Iterator[int]:
    size = struct.calcsize(form)
    limit = min((s for s in starts if s > table), default=table + size * _MOST_ENTRIES)
    data = read(table, min(limit - table, size * _MOST_ENTRIES))
    for (entry,) in struct.iter_unpack(form, data[:len(data) // size * size]):
        if not bounds[0] <= base + entry < bounds[1]:
            return
        yield base + entry
