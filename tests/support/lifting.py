"""Lifting without memopt exec: from assembly with made-up registers, or from a real process stopped at a header."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace

from memopt.cfg.cold_calls import calls_out, root_exits, without_cold_calls
from memopt.cfg.flowgraph import discover
from memopt.cfg.natural_loops import find_loops, with_headers
from memopt.ir.graph import FlowGraph, Kind, Loop, LoopForest
from memopt.ir.operations import Block
from memopt.ir.reasons import Rejected
from memopt.ir.region import Sample
from memopt.lifting.execution.assumptions import GENERAL
from memopt.lifting.lift import Code, Lifted, Observer, lift_region
from memopt.x86.semantics import lift_block
from tests.support.binaries import assemble
from tests.support.traced import Traced

TEXT = 0x401000
STACK = 0x7FFF_0000_0000
DISPLACED = b"\x90" * 5


def code_of(graph: FlowGraph) -> Code:
    @functools.cache
    def operations(address: int) -> Block:
        return lift_block(graph.blocks[address].code, address)

    return Code(graph, find_loops(graph), operations)


def deepest(forest: LoopForest) -> Loop:
    """The outermost loop around the most deeply nested one, the first of several."""
    inner = max(forest.loops, key=lambda loop: loop.depth)
    return list(forest.chain(inner))[-1]


def lift_assembly(source: str, registers: Mapping[str, int], memory: Mapping[int, int] | None = None,
                  vectors: Mapping[str, bytes] | None = None, earlier: tuple[Sample, ...] = (),
                  patient: Callable[[], bool] = lambda: True, observer: Observer | None = None,
                  strided: Callable[[Lifted], bool] | None = None) -> Lifted:
    """Lift the deepest nest of Intel-syntax ``source``, as if stopped at its header with ``registers`` (others hold
    numbers of their own), ``memory`` (cell address -> signed number, else 0) and ``vectors`` (others are unknown),
    after the entries ``earlier``. Direct calls are taken for calls of a square root."""
    return lift_bytes(assemble(".intel_syntax noprefix\n" + source), registers, memory, vectors, earlier, patient,
                      observer, strided)


def lift_bytes(machine_code: bytes, registers: Mapping[str, int], memory: Mapping[int, int] | None = None,
               vectors: Mapping[str, bytes] | None = None, earlier: tuple[Sample, ...] = (),
               patient: Callable[[], bool] = lambda: True, observer: Observer | None = None,
               strided: Callable[[Lifted], bool] | None = None) -> Lifted:
    """The same for assembled code, which lies at ``TEXT``."""
    def read(address: int, size: int) -> bytes:
        return machine_code[address - TEXT:address - TEXT + size]

    code = code_of(discover(read, TEXT, (TEXT, TEXT + len(machine_code))))
    state = {name: 0x10_0000_0000 * (n + 1) for n, name in enumerate(GENERAL)} | {"rsp": STACK} | dict(registers)
    cells = dict(memory or {})
    forest, loop = with_headers(code.forest, deepest(code.forest))
    if any(calls_out(code.graph.blocks[b]) for b in loop.blocks):
        forest, loop = without_cold_calls(code.graph, loop) or (forest, loop)
        code = replace(code, roots=root_exits(code.graph, loop, code.lift, lambda call: call.target is not None))
    return lift_region(replace(code, forest=forest), loop, {r: v % (1 << 64) for r, v in state.items()},
                       lambda address, bits: cells.get(address, 0), DISPLACED, vectors, patient, earlier,
                       observer, strided)


@contextmanager
def stopped_at_nest(argv: list[str], among_calls: bool = False) -> Iterator[tuple[Traced, Code, Loop]]:
    """The program stopped at the header of the deepest nest of its own functions (the first one that runs).
    ``among_calls``: of the nests without calls that are in loops with calls."""
    number = 0
    while True:
        with Traced(argv) as process:
            code, loop = (_nests_among_calls if among_calls else _nests)(process)[number]
            if process.run_to(loop.header):
                yield process, code, loop
                return
        number += 1


def _nests(process: Traced) -> list[tuple[Code, Loop]]:
    """The deepest nest of each function, the deepest first."""
    found = [(max(loop.depth for loop in code.forest.loops), code) for code in _functions(process)]
    return [(code, deepest(code.forest)) for _, code in sorted(found, key=lambda f: -f[0])]


def _nests_among_calls(process: Traced) -> list[tuple[Code, Loop]]:
    found: list[tuple[int, Code, Loop]] = []
    for code in _functions(process):
        def calls(loop: Loop, code: Code = code) -> bool:
            return any(i.kind is Kind.CALL for b in loop.blocks for i in code.graph.blocks[b].instructions)

        for loop in code.forest.loops:
            around = [x for x in code.forest.loops if loop.blocks < x.blocks]
            if around and all(map(calls, around)) and not calls(loop):
                inside = max(x.depth for x in code.forest.loops if x.blocks <= loop.blocks)
                found.append((inside - loop.depth, code, loop))
    return [(code, loop) for _, code, loop in sorted(found, key=lambda f: -f[0])]


def _functions(process: Traced) -> Iterator[Code]:
    """The program's own functions that have loops."""
    text = process.text()
    for start, end in process.functions():
        if text.start <= start < text.end:
            with suppress(Rejected):
                code = code_of(discover(process.read, start, (start, end)))
                if code.forest.loops:
                    yield code


def lift_stopped(process: Traced, code: Code, loop: Loop) -> Lifted:
    """Lift ``loop``, at whose header the process is stopped."""
    return lift_region(code, loop, process.registers(), process.peek, DISPLACED, process.vectors())


def normalised(text: str) -> str:
    """Loops and loads named by the order in which they appear, without the carried flags."""
    names: dict[str, dict[str, str]] = {"c": {}, "v": {}}

    def name(match: re.Match[str]) -> str:
        kind = "v" if match[0].startswith("v") else "c"
        return names[kind].setdefault(match[0].removeprefix("c:"), f"{kind}{len(names[kind])}")

    lines = (line for line in text.splitlines() if not line.lstrip().startswith("carry cc_"))
    return re.sub(r"c:[0-9a-f]+|(?<=final\()[0-9a-f]+|\bv\d+", name, "\n".join(lines))
