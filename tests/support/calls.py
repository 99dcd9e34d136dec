"""Lifts a loop of assembly code that calls small functions or functions of the C library."""

from __future__ import annotations

import functools

import pytest

from memopt.cfg.flowgraph import discover
from memopt.cfg.inlining import inlined, is_small
from memopt.cfg.library_models import LibraryFunction
from memopt.cfg.natural_loops import find_loops
from memopt.ir.graph import DecodedInstruction, FlowGraph
from memopt.ir.operations import Block
from memopt.ir.reasons import Reason, Rejected
from memopt.lifting.execution.assumptions import GENERAL
from memopt.lifting.lift import Code, Lifted, lift_region
from memopt.x86.semantics import lift_block
from tests.support.binaries import assemble
from tests.support.lifting import DISPLACED, STACK

TEXT, SLOT, ROUTINE = 0x401000, 0x404018, 0x7F00_0000_1000
REGISTERS = {"rbx": 0, "r15": 10, "r12": 0x10000, "r13": 0x80000, "r14": 0xF0000, "rbp": 80, "rsp": STACK}
ADDED = "add qword ptr [r12+rbx*8], 1"
LOOP = "xor ebx, ebx; i: {body}; inc rbx; cmp rbx, r15; jne i; ret; {functions}"


def lift(body: str, functions: str = "", routine: str = "", registers: dict[str, int] | None = None) -> Lifted:
    """The loop with this ``body``. ``functions``: code it calls. ``routine``: the library function it calls."""
    source = ".intel_syntax noprefix\n" + LOOP.format(body=body, functions=functions or "library: ret")
    machine_code = assemble(source)

    def read(address: int, size: int) -> bytes:
        return machine_code[address - TEXT:address - TEXT + size]

    def callee(call: DecodedInstruction) -> FlowGraph | LibraryFunction | None:
        if routine:
            return LibraryFunction(routine, ROUTINE, SLOT)
        assert call.target is not None
        function = discover(read, call.target, (TEXT, TEXT + len(machine_code)))
        return function if is_small(function) else None

    graph = discover(read, TEXT, (TEXT, TEXT + len(machine_code)))
    loop = find_loops(graph).loops[0]
    graph, links = inlined(graph, loop.blocks, callee)
    forest = find_loops(graph)

    @functools.cache
    def operations(address: int) -> Block:
        return links.block(address, lambda real: lift_block(graph.blocks[address].code, real))

    state = {name: 0x10_0000_0000 * (n + 1) for n, name in enumerate(GENERAL)} | REGISTERS | (registers or {})
    cells = {SLOT: ROUTINE}
    loop = next(x for x in forest.loops if x.header == loop.header)
    return lift_region(Code(graph, forest, operations, calls=True), loop, state,
                       lambda address, bits: cells.get(address, 0), DISPLACED)


def refusal(body: str, functions: str = "", routine: str = "", registers: dict[str, int] | None = None) -> Reason:
    """Why the loop that ``lift`` would lift is refused."""
    with pytest.raises(Rejected) as refused:
        lift(body, functions, routine, registers)
    return refused.value.reason
